"""What updates do to rows, and what they refuse."""

from __future__ import annotations

import importlib
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F  # noqa: N812

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import (
    ConstraintViolationError,
    InvalidArgumentError,
    InvalidTableError,
)
from airflow_delta.engine.model.schema import (
    BOOLEAN,
    INTEGER,
    LONG,
    STRING,
    StructField,
    StructType,
)
from airflow_delta.spark import delete, read_changes, read_snapshot, update, write
from airflow_delta.spark.dml import rewritten_updates
from airflow_delta.spark.dml.row_store import RowStore
from tests.spark.dml.tables import all_files, rows_in, stored_bytes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The package has a function of the module's name.
update_module: Any = importlib.import_module("airflow_delta.spark.dml.update")

VECTORS = {"delta.enableDeletionVectors": "true"}
FEED = {"delta.enableChangeDataFeed": "true"}
GENERATED = StructType(
    (
        StructField("id", LONG),
        StructField("twice", LONG, metadata={"delta.generationExpression": "id * 2"}),
        StructField("s", STRING, metadata={"CURRENT_DEFAULT": "concat('d', 1)"}),
    )
)

_TYPE = "__CHAR_VARCHAR_TYPE_STRING"
CHARS = StructType(
    (
        StructField("id", LONG),
        StructField("s", STRING, metadata={_TYPE: "char(5)"}),
        StructField("other", STRING, metadata={_TYPE: "char(3)"}),
        StructField("is_ab", BOOLEAN, metadata={"delta.generationExpression": "s = 'ab'"}),
    )
)


def test_expressions_see_the_old_values(spark: SparkSession, tmp_path: Path) -> None:
    write(spark.sql("SELECT id, id * 10 AS v, 'x' AS s FROM range(4)"), str(tmp_path))
    values = {"V": "id", "`ID`": F.col("v") + 1, "s": 7}
    assert update(spark, str(tmp_path), values, F.col("id") > 1).num_updated_rows == 2
    assert rows_in(spark, tmp_path) == [(0, 0, "x"), (1, 10, "x"), (21, 2, "7"), (31, 3, "7")]
    assert not update(spark, str(tmp_path), {"v": None}, "id = 5").written
    assert update(spark, str(tmp_path), {"v": None}).num_updated_rows == 4
    assert {row[1] for row in rows_in(spark, tmp_path)} == {None}


@pytest.mark.parametrize("partition_by", [(), ("p",)], ids=["whole", "partitioned"])
@pytest.mark.parametrize("properties", [{}, VECTORS], ids=["copies", "vectors"])
def test_large_files_are_read_again(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    properties: Mapping[str, str],
    partition_by: Sequence[str],
) -> None:
    rows = spark.sql("SELECT id, id * 10 AS v, id % 2 AS p FROM range(40)").repartition(3)
    write(rows, str(tmp_path), partition_by=partition_by, properties=properties)
    stored: list[Any] = []
    monkeypatch.setattr(RowStore, "store", lambda _, found: stored.append(found))
    monkeypatch.setattr(update_module, "_MOST_STORED_BYTES", 0)
    assert update(spark, str(tmp_path), {"v": "v + 1"}, "id % 8 = 3").num_updated_rows == 5
    assert not stored
    expected = [(n, n * 10 + (n % 8 == 3), n % 2) for n in range(40)]
    assert rows_in(spark, tmp_path) == sorted(expected, key=str)


def _redefine(table: Path, configuration: Mapping[str, str], twice: str) -> None:
    """Commit other properties and another generation expression, as a writer that reads no rows."""
    log = table / "_delta_log"
    actions = map(json.loads, (log / f"{0:020}.json").read_text().splitlines())
    metadata = next(action["metaData"] for action in actions if "metaData" in action)
    metadata["configuration"].update(configuration)
    metadata["schemaString"] = metadata["schemaString"].replace("id * 2", twice)
    action = json.dumps({"metaData": metadata})
    (log / f"{DeltaTable(str(table)).latest_version() + 1:020}.json").write_text(action)


def test_copied_rows_are_neither_checked_nor_computed_anew(
    spark: SparkSession, tmp_path: Path
) -> None:
    properties = {
        "delta.feature.allowColumnDefaults": "supported",
        "delta.constraints.old": "id > 0",
    }
    DeltaTable.create(str(tmp_path), GENERATED, properties=properties)
    write(spark.sql("SELECT id, 'x' AS s FROM range(1, 6)").coalesce(1), str(tmp_path))
    _redefine(tmp_path, {"delta.constraints.new": "id < 4"}, "id * 3")
    result = update(spark, str(tmp_path), {"s": "'y'"}, "id = 2")
    assert (result.num_updated_rows, result.num_copied_rows) == (1, 4)
    expected = [(1, 2, "x"), (2, 6, "y"), (3, 6, "x"), (4, 8, "x"), (5, 10, "x")]
    assert rows_in(spark, tmp_path) == expected
    before = all_files(tmp_path)
    with pytest.raises(ConstraintViolationError, match=r"constraint new.*: 1 row breaks"):
        update(spark, str(tmp_path), {"s": "'y'"}, "id IN (3, 5)")
    assert all_files(tmp_path) == before


def test_files_with_vectors_in_a_table_without_them(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.sql("SELECT id, 0 AS v FROM range(9)").coalesce(1)
    write(rows, str(tmp_path), properties=VECTORS)
    delete(spark, str(tmp_path), "id IN (2, 5)")
    table = DeltaTable(str(tmp_path))
    table.alter.set_properties({"delta.enableDeletionVectors": "false"})
    result = update(spark, str(tmp_path), {"v": "id"}, "id % 4 = 1")
    assert (result.num_updated_rows, result.num_copied_rows) == (1, 6)
    assert rows_in(spark, tmp_path) == [
        (n, n if n == 1 else 0) for n in range(9) if n not in (2, 5)
    ]
    assert table.history(1)[0].operation_metrics["numDeletionVectorsRemoved"] == "1"
    assert table.snapshot().files()["deletionVector"].null_count == 1


def test_files_of_which_all_rows_change_beside_others(spark: SparkSession, tmp_path: Path) -> None:
    """One file whose rows all meet the condition, by its statistics, and one of which some do."""
    for first in (0, 4):
        write(spark.range(first, first + 4).selectExpr("id", "0 AS v").coalesce(1), str(tmp_path))
    result = update(spark, str(tmp_path), {"v": "1"}, "id < 6")
    assert (result.num_updated_rows, result.num_copied_rows) == (6, 2)
    assert rows_in(spark, tmp_path) == [(n, int(n < 6)) for n in range(8)]


@pytest.mark.deep
def test_a_condition_that_changes_meanwhile_is_asked_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(spark.sql("SELECT id, 0 AS v FROM range(3)").coalesce(1), str(tmp_path))
    find = update_module.collect_rows

    def find_and_wait(*given: Any, **named: Any) -> Any:
        found = find(*given, **named)
        time.sleep(max(0.0, until - time.time()) + 0.1)
        return found

    for module in (update_module, rewritten_updates):
        monkeypatch.setattr(module, "collect_rows", find_and_wait)
    until = time.time() + 20
    soon = f"current_timestamp() < timestamp_micros({int(until * 1e6)}) AND id > 0"
    assert update(spark, str(tmp_path), {"v": 1}, soon).num_updated_rows == 2
    assert time.time() > until
    assert rows_in(spark, tmp_path) == [(0, 0), (1, 1), (2, 1)]


def test_python_isnt_called_for_other_rows(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.sql("SELECT id, if(id = 0, 'x', '7') AS s FROM range(3)").coalesce(1)
    write(rows, str(tmp_path))
    parse = F.udf(lambda text: str(int(text) + 1), "string")
    update(spark, str(tmp_path), {"s": parse("s")}, "id > 0")
    assert rows_in(spark, tmp_path) == [(0, "x"), (1, "8"), (2, "8")]


def test_copied_texts_are_not_padded(spark: SparkSession, tmp_path: Path) -> None:
    char = StructField("s", STRING, metadata={"__CHAR_VARCHAR_TYPE_STRING": "char(5)"})
    table = DeltaTable.create(str(tmp_path), StructType((StructField("id", LONG), char)))
    write(spark.sql("SELECT id, 'ab' AS s FROM range(2)").coalesce(1), str(tmp_path))
    update(spark, str(tmp_path), {"s": "'c'"}, "id = 0")
    assert table.snapshot().to_arrow(["s"], "id = 1")["s"].to_pylist() == ["ab"]


@pytest.mark.parametrize("partition_by", [(), ("s",)], ids=["whole", "partitioned"])
@pytest.mark.parametrize("properties", [{}, {**VECTORS, **FEED}], ids=["copies", "vectors"])
def test_rules_of_char_columns(
    spark: SparkSession,
    tmp_path: Path,
    properties: Mapping[str, str],
    partition_by: Sequence[str],
) -> None:
    known = {"delta.constraints.known": "s IN ('ab', 'cd')"}
    table = DeltaTable.create(
        str(tmp_path), CHARS, partition_by=partition_by, properties={**known, **properties}
    )
    write(spark.sql("SELECT id, 'ab' AS s, 'cd' AS other FROM range(3)").coalesce(1), str(tmp_path))
    update(spark, str(tmp_path), {"id": "7"}, "id = 1")
    kept = (7, "ab   ", "cd ", True)
    assert kept in rows_in(spark, tmp_path)
    # Spark reads a shorter CHAR, padded.
    update(spark, str(tmp_path), {"s": "other"}, "id = 2")
    assigned = (2, "cd   ", "cd ", False)
    assert rows_in(spark, tmp_path) == sorted([(0, "ab   ", "cd ", True), assigned, kept], key=str)
    # Other texts are written and compared as they are.
    update(spark, str(tmp_path), {"s": "'cd'"}, "id = 0")
    assert table.snapshot().to_arrow(["s"], "id = 0")["s"].to_pylist() == ["cd"]
    with pytest.raises(ConstraintViolationError, match="constraint known"):
        update(spark, str(tmp_path), {"s": "'xy'"}, "id = 7")


def test_a_file_with_other_rows_than_the_log_says(spark: SparkSession, tmp_path: Path) -> None:
    write(spark.sql("SELECT id, 0 AS v FROM range(9)").coalesce(1), str(tmp_path))
    commit = tmp_path / "_delta_log" / f"{0:020}.json"
    commit.write_text(commit.read_text().replace('numRecords\\":9', 'numRecords\\":8'))
    before = all_files(tmp_path)
    with pytest.raises(InvalidTableError, match=r"has 9 rows .* it has 8: nothing was committed"):
        update(spark, str(tmp_path), {"v": 1}, "id % 4 = 1")
    assert all_files(tmp_path) == before


def test_members_of_structs(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.sql(
        "SELECT 1 AS id, named_struct('a', 1, 'b', named_struct('c', 'x', 'd', 2)) AS s, 0 AS `s.a` "
        "UNION ALL SELECT 2, NULL, 0"
    )
    write(rows, str(tmp_path), properties={"delta.columnMapping.mode": "name"})
    values = {"s.b.C": "concat('y', id)", ("s", "a"): "s.a + 1", "s.a": 5}
    update(spark, str(tmp_path), values)
    # As in Delta Spark, a struct that was null becomes one.
    assert rows_in(spark, tmp_path) == [(1, (2, ("y1", 2)), 5), (2, (None, ("y2", None)), 5)]
    update(spark, str(tmp_path), {"s": "named_struct('b', named_struct('d', 3L, 'c', 1), 'a', 9)"})
    assert {row[1] for row in rows_in(spark, tmp_path)} == {(9, ("1", 3))}


def test_generated_columns_and_defaults(spark: SparkSession, tmp_path: Path) -> None:
    table = DeltaTable.create(
        str(tmp_path), GENERATED, properties={"delta.feature.allowColumnDefaults": "supported"}
    )
    write(spark.sql("SELECT 1L AS id, 'x' AS s UNION ALL SELECT 2L, 'y'"), str(tmp_path))
    update(spark, str(tmp_path), {"id": "id + 10", "s": "default"}, "id = 1")
    assert rows_in(spark, tmp_path) == [(11, 22, "d1"), (2, 4, "y")]
    update(spark, str(tmp_path), {"id": 3, "twice": 6}, "id = 2")
    before = all_files(tmp_path)
    with pytest.raises(ConstraintViolationError, match=r"twice .*1 row breaks this rule"):
        update(spark, str(tmp_path), {"twice": "twice + 1"}, "id = 3")
    assert all_files(tmp_path) == before
    assert rows_in(spark, tmp_path) == [(11, 22, "d1"), (3, 6, "y")]
    assert table.latest_version() == 3


@pytest.mark.parametrize("properties", [{}, VECTORS], ids=["copies", "vectors"])
def test_rows_that_would_break_a_rule(
    spark: SparkSession, tmp_path: Path, properties: Mapping[str, str]
) -> None:
    rules = {"delta.constraints.positive": "v > 0", **FEED, **properties}
    varchar = {"__CHAR_VARCHAR_TYPE_STRING": "varchar(3)"}
    schema = (
        StructField("id", LONG),
        StructField("v", INTEGER),
        StructField("s", STRING, metadata=varchar),
    )
    DeltaTable.create(str(tmp_path), StructType(schema), properties=rules)
    rows = spark.sql("SELECT id, 1 AS v, 'abc' AS s FROM range(4)")
    write(rows.coalesce(1), str(tmp_path))
    before = all_files(tmp_path)
    for values, message in [
        ({"v": "v - id"}, "constraint positive.*3 rows break"),
        ({"v": None}, "constraint positive.*4 rows break"),
        ({"s": "'abcd'"}, "more characters than its type varchar"),
        ({"v": "3000000000L"}, "have a value in the column v that its type integer can't hold"),
        ({"v": "'text'"}, "the column v of the rows is string"),
        ({"s": "array(1)"}, "the column s of the rows is array"),
    ]:
        with pytest.raises(ConstraintViolationError, match=message):
            update(spark, str(tmp_path), values)
    assert all_files(tmp_path) == before
    assert stored_bytes(spark) == 0


REFUSED: dict[str, tuple[Any, Any, str]] = {
    "no dictionary": ("v = 1", None, "expected a dictionary"),
    "nothing": ({}, None, "expected a dictionary"),
    "an unknown column": ({"nope": 1}, None, "'nope': the table has no such column.*it has id, v"),
    "inside an array": ({("l", "element"): 1}, None, "no such column outside of arrays"),
    "no name": ({5: 1}, None, "no column's name"),
    "twice": ({"v": 1, "V": 2}, None, "assigned twice, also as v"),
    "a struct and its member": ({"s": "s", "s.a": 2}, None, "assigned twice, also as s"),
    "a member and its struct": ({"s.a": 2, "s": "s"}, None, "assigned twice, also as s.a"),
    "no value": ({"v": object()}, None, "the value of 'v' is a object"),
    "no SQL": ({"v": "1 +"}, None, "can't resolve the new value of v .*PARSE_SYNTAX_ERROR"),
    "no column": ({"v": "nope"}, None, "can't resolve the new value of v .*UNRESOLVED_COLUMN"),
    "a hidden column": ({"v": "__delta_row"}, None, "can't resolve the new value of v"),
    "an aggregate": ({"id": 1, "v": "sum(v)"}, None, "the new value of v isn't one value for each"),
    "a window": ({"v": "row_number() OVER (ORDER BY id)"}, None, "new value of v isn't one value"),
    "several rows": ({"v": "explode(array(1, 2))"}, None, "the new value of v isn't one value"),
    "an unknown condition": ({"v": 1}, "nope = 1", "can't resolve the condition nope = 1"),
    "chance": ({"v": 1}, "rand() > 0.5", "isn't the same for a row each time"),
    "a subquery": ({"v": 1}, "id IN (SELECT 1)", "has a subquery"),
    "an aggregate as a condition": ({"v": 1}, "sum(v) > 1", "can't resolve the condition"),
    "all columns": ({"v": "hash(*)"}, None, r"the new value of v has a \*"),
    "all columns inside": (
        {"v": "v * length(to_json(struct(*)))"},
        None,
        r"new value of v has a \*",
    ),
    "all columns but one": ({"v": "hash(* EXCEPT (id))"}, None, "the new value of v"),
    "all columns in a condition": ({"v": 1}, "xxhash64(*) = 1", r"xxhash64\(\*\) = 1 has a \*"),
    "all columns inside a condition": ({"v": 1}, "v + hash(*) IS NULL", r"has a \*"),
}


def test_updates_that_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.sql("SELECT 1 AS id, 2 AS v, array(1) AS l, named_struct('a', 1) AS s")
    write(rows, str(tmp_path))
    for name, (values, condition, message) in REFUSED.items():
        with pytest.raises(InvalidArgumentError, match=message):
            pytest.fail(f"{name}: {update(spark, str(tmp_path), values, condition)}")
    for values, condition in [
        ({"v": F.hash(F.struct("*"))}, None),
        ({"v": 1}, F.hash(F.struct("*")) == 1),
    ]:
        with pytest.raises(InvalidArgumentError, match=r"has a \*"):
            update(spark, str(tmp_path), values, condition)
    with pytest.raises(InvalidArgumentError, match=r"has a \*"):
        delete(spark, str(tmp_path), "xxhash64(*) = xxhash64(1, 2)")
    no_condition: Any = False
    for change in (
        lambda: update(spark, str(tmp_path), {"v": 1}, no_condition),
        lambda: delete(spark, str(tmp_path), no_condition),
    ):
        with pytest.raises(InvalidArgumentError, match="condition: expected a condition as a text"):
            change()
    assert DeltaTable(str(tmp_path)).latest_version() == 0
    # A product is none.
    assert update(spark, str(tmp_path), {"v": "v * 2"}, "id * 1 = 1").num_updated_rows == 1


def test_tables_and_columns_that_nobody_may_update(spark: SparkSession, tmp_path: Path) -> None:
    identity = {
        "delta.identity.start": 1,
        "delta.identity.step": 1,
        "delta.identity.allowExplicitInsert": True,
    }
    schema = StructType((StructField("id", LONG, metadata=identity), StructField("v", LONG)))
    table = DeltaTable.create(str(tmp_path), schema)
    write(spark.range(3).toDF("v"), str(tmp_path))
    with pytest.raises(ConstraintViolationError, match=r"identity columns \['id'\].*can't change"):
        update(spark, str(tmp_path), {"ID": 7})
    before = {(row[1], row[0]) for row in rows_in(spark, tmp_path)}
    update(spark, str(tmp_path), {"v": "v + 10"}, "v > 0")
    assert {(row[1] % 10, row[0]) for row in rows_in(spark, tmp_path)} == before
    table.alter.set_properties({"delta.appendOnly": "true"})
    with pytest.raises(ConstraintViolationError, match=r"append-only.*UPDATE changes or removes"):
        update(spark, str(tmp_path), {"v": 1})


@pytest.mark.parametrize("properties", [FEED, {**FEED, **VECTORS}], ids=["copies", "vectors"])
def test_values_of_chance_are_those_of_the_feed(
    spark: SparkSession, tmp_path: Path, properties: Mapping[str, str]
) -> None:
    rows = spark.sql("SELECT id, 'x' AS s, 0D AS r FROM range(6)").repartition(2)
    write(rows, str(tmp_path), properties=properties)
    update(spark, str(tmp_path), {"s": "uuid()", "r": "rand()"}, "id > 1")
    after = {row for row in rows_in(spark, tmp_path) if row[0] > 1}
    assert len({row[1] for row in after}) == len({row[2] for row in after}) == 4
    changes = read_changes(spark, str(tmp_path), 1, 1).where("_change_type = 'update_postimage'")
    assert {tuple(row) for row in changes.select("id", "s", "r").collect()} == after
    assert stored_bytes(spark) == 0


def test_what_the_commit_says_of_itself(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.range(10).coalesce(1).withColumn("v", F.lit(0))
    write(rows, str(tmp_path), properties={**VECTORS, **FEED})
    first = update(spark, str(tmp_path), {"v": 1}, "id > 6", txn=("task", 1), user_metadata="why")
    again = update(spark, str(tmp_path), {"v": 1}, "id > 6", txn=("task", 1))
    assert (again.version, again.written) == (first.version, False)
    nothing = update(spark, str(tmp_path), {"v": 1}, "id > 60", txn=("task", 2))
    assert (nothing.version, nothing.written) == (2, True)
    _, info, *_ = DeltaTable(str(tmp_path)).history()
    assert (info.operation, info.user_metadata) == ("UPDATE", "why")
    assert info.operation_parameters == {"predicate": json.dumps(["id > 6"])}
    metrics = {name: int(value) for name, value in info.operation_metrics.items()}
    del metrics["numAddedBytes"], metrics["executionTimeMs"], metrics["numAddedChangeFiles"]
    assert first.num_removed_files == 0
    assert metrics == {
        "numAddedFiles": 1,
        # Delta Spark counts the file that comes back with a deletion vector.
        "numRemovedFiles": 1,
        "numRemovedBytes": 0,
        "numDeletionVectorsAdded": 1,
        "numDeletionVectorsRemoved": 0,
        "numDeletionVectorsUpdated": 0,
        "numUpdatedRows": 3,
        "numCopiedRows": 0,
    }


def test_rows_keep_their_ids_through_every_kind_of_update(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = spark.sql("SELECT id, id % 3 AS p, 0 AS v FROM range(12)").repartition(2)
    tracking = {"delta.enableRowTracking": "true", **VECTORS}
    write(rows, str(tmp_path), partition_by=["p"], properties=tracking)

    def ids() -> dict[int, tuple[int, int]]:
        frame = read_snapshot(spark, str(tmp_path), with_row_tracking=True)
        columns = frame.select("id", "_row_id", "_row_commit_version").collect()
        return {row[0]: (row[1], row[2]) for row in columns}

    before = ids()
    update(spark, str(tmp_path), {"v": 1}, "p = 1")
    update(spark, str(tmp_path), {"p": 7}, "id < 3")
    DeltaTable(str(tmp_path)).alter.set_properties({"delta.enableDeletionVectors": "false"})
    update(spark, str(tmp_path), {"v": 2}, "id IN (0, 4, 6)")
    versions = {0: 4, 4: 4, 6: 4, 1: 2, 2: 2, 7: 1, 10: 1}
    assert ids() == {number: (before[number][0], versions.get(number, 0)) for number in range(12)}
    infos = DeltaTable(str(tmp_path)).history()
    assert {
        i.raw["tags"]["delta.rowTracking.preserved"] for i in infos if i.operation == "UPDATE"
    } == {"true"}
