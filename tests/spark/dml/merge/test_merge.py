"""What merges do to rows: matches, names, missing columns, sources of every kind."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F  # noqa: N812

from airflow_delta.engine import AddFile, DeltaTable
from airflow_delta.engine.errors import InvalidArgumentError, MultipleMatchesError
from airflow_delta.spark import MergeBuilder, merge, read_changes, read_snapshot, write
from airflow_delta.spark.dml.merge import execution, key_filter, keys
from airflow_delta.spark.dml.merge import source as merge_source
from tests.deep import deep_but_for
from tests.spark.dml.tables import all_files, rows_in, stored_bytes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

VECTORS = {"delta.enableDeletionVectors": "true"}
FEED = {"delta.enableChangeDataFeed": "true"}
BOTH = [{}, VECTORS]


def make(spark: SparkSession, table: Path, rows: str, **arguments: Any) -> None:
    write(spark.sql(rows).coalesce(1), str(table), **arguments)


@pytest.fixture(scope="module")
def written(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The table that each test has a copy of."""
    table = tmp_path_factory.mktemp("written")
    make(spark, table, "SELECT id, 0 AS v FROM range(10)")
    return table


@pytest.fixture
def numbers(written: Path, tmp_path: Path) -> Path:
    """A table with the ids 0 to 9, all of whose values are 0."""
    return Path(shutil.copytree(written, tmp_path, dirs_exist_ok=True))


def values_in(spark: SparkSession, table: Path) -> dict[int, int]:
    return {row[0]: row[1] for row in rows_in(spark, table)}


def source_of(spark: SparkSession, values: str) -> DataFrame:
    return spark.sql(f"SELECT * FROM VALUES {values} AS t(id, v)")


def test_a_row_that_matches_several(spark: SparkSession, numbers: Path) -> None:
    rows = source_of(spark, "(3L, 1), (3L, 2), (4L, 1), (20L, 9)")
    begun = merge(spark, str(numbers), rows, "target.id = source.id")
    before = all_files(numbers)
    refused: list[MergeBuilder] = [
        begun.when_matched_update_all(),
        # As in Delta Spark, it doesn't matter whether a clause applies to the pairs.
        begun.when_matched_update_all("source.v > 5"),
        begun.when_matched_delete("source.v > 0"),
        begun.when_matched_delete(F.col("source.v") > 0),
        begun.when_matched_delete("source.v = 1").when_matched_delete(),
        begun.when_not_matched_by_source_delete(),
    ]
    for builder in refused:
        with pytest.raises(
            MultipleMatchesError, match="1 row of the table matches several"
        ) as found:
            builder.execute()
        shown = [json.loads(row) for row in found.value.facts["rows"]]
        assert sorted(shown, key=str) == [{"id": 3, "v": 1}, {"id": 3, "v": 2}]
    assert all_files(numbers) == before
    assert stored_bytes(spark) == 0

    assert begun.when_not_matched_insert_all().execute().num_inserted_rows == 1
    result = begun.when_matched_delete().execute()
    assert (result.num_deleted_rows, result.num_copied_rows) == (3, 8)
    assert set(values_in(spark, numbers)) == {0, 1, 2, 5, 6, 7, 8, 9}


def test_a_source_ten_times_as_large(spark: SparkSession, numbers: Path) -> None:
    rows = spark.range(0, 100, 1, 4).select("id", F.lit(1).alias("v"))
    settings = {"spark.sql.autoBroadcastJoinThreshold": "-1", "spark.sql.adaptive.enabled": "false"}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        begun = merge(spark, str(numbers), rows, "target.id = source.id")
        result = begun.when_matched_update_all().when_not_matched_insert_all().execute()
    finally:
        for name in settings:
            spark.conf.unset(name)
    assert (result.num_updated_rows, result.num_inserted_rows) == (10, 90)
    assert values_in(spark, numbers) == dict.fromkeys(range(100), 1)


@pytest.mark.deep
def test_rows_without_a_key_of_the_source_are_not_joined(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(
        spark,
        tmp_path,
        "SELECT id, concat('k', id % 10) AS s, IF(id % 4 = 0, NULL, id % 4) AS n, 0 AS v FROM range(40)",
        properties=VECTORS,
    )
    # The ids 3, 13, 23 and 33 have the text k3; 8, 18, 28 and 38 k8, with null in n where 4 divides the id.
    values = (
        "('k3', 3L, 100), ('k8', NULL, 200), ('k8', NULL, -1), ('k7', 9L, 300), (NULL, 1L, 400)"
    )
    rows = spark.sql(f"SELECT * FROM VALUES {values} AS t(s, n, v)")
    found: list[set[int]] = []

    def with_keys(*arguments: Any) -> DataFrame:
        left = rows_with_keys(*arguments)
        found.append({row.id for row in left.select("id").collect()})
        return left

    rows_with_keys = execution.rows_with_keys
    monkeypatch.setattr(execution, "rows_with_keys", with_keys)
    on = "t.s = source.s AND source.n <=> t.n AND source.v > 0 AND t.id + source.v < 225"

    def merged(on: str = on, *, updates: bool = True) -> dict[int, int]:
        begun = merge(spark, str(tmp_path), rows, on, target_alias="t")
        if updates:
            begun = begun.when_matched_update({"v": "source.v"})
        begun.when_not_matched_insert({"id": "-source.v", "v": "0"}).execute()
        values = {row[0]: row[3] for row in rows_in(spark, tmp_path)}
        DeltaTable(str(tmp_path)).restore(version=0)
        return values

    inserted = dict.fromkeys((*range(40), -300, -400), 0)
    expected = inserted | {3: 100, 23: 100, 8: 200}
    assert merged() == expected
    assert merged(updates=False) == inserted
    # The table is small: to join all of its rows takes less time.
    assert not found
    monkeypatch.setattr(key_filter, "_LEAST_TABLE_BYTES", 0)
    assert merged() == expected
    assert found.pop() == {3, 23, 8, 28}
    assert merged(updates=False) == inserted
    assert found.pop() == {3, 23, 8, 28}
    # Of an expression Spark could ask for rows of other partitions, and for deleted ones, and fail there.
    expression = on.replace("t.s = ", "concat(t.s, '') = ").replace("<=> t.n", "<=> t.n + 0")
    assert merged(expression) == expected
    assert merged(expression, updates=False) == inserted
    assert found == [set(range(40))] * 2
    found.clear()
    # The hashes of so many keys would take too much memory.
    monkeypatch.setattr(key_filter, "_MOST_KEYS", 3)
    assert merged() == expected
    assert not found


def test_columns_of_a_large_source_may_be_bound(
    spark: SparkSession, numbers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = source_of(spark, "(3L, 7), (4L, 8), (30L, 9)")
    monkeypatch.setattr(merge_source, "_MOST_BROADCAST", 0)
    monkeypatch.setattr(key_filter, "_LEAST_TABLE_BYTES", 0)
    begun = merge(spark, str(numbers), rows, F.col("target.id") == rows["id"])
    (
        begun.when_matched_update({"v": rows["v"] + 1}, rows["v"] > 7)
        .when_matched_delete(rows["id"] == 3)
        .when_not_matched_insert({"id": rows["id"], "v": rows["v"]})
        .execute()
    )
    expected = dict.fromkeys(range(10), 0) | {4: 9, 30: 9}
    del expected[3]
    assert values_in(spark, numbers) == expected
    values = {"id": rows["id"] + 100, "v": rows["v"]}
    begun.when_not_matched_insert(values, rows["v"] < 9).execute()
    assert values_in(spark, numbers) == {**expected, 103: 7}


@pytest.mark.parametrize("least", [0, 64 << 20], ids=["filtered", "all rows"])
def test_inserts_evaluate_the_condition_for_rows_that_can_match_alone(
    spark: SparkSession, numbers: Path, monkeypatch: pytest.MonkeyPatch, least: int
) -> None:
    monkeypatch.setattr(key_filter, "_LEAST_TABLE_BYTES", least)
    # An anti join of the source with the table would cast all keys, and allows no Python functions.
    rows = spark.sql("SELECT * FROM VALUES ('x', 1), ('3', 2), ('30', 3) AS t(k, v)")
    cast = "source.k RLIKE '^[0-9]+$' AND target.id = CAST(source.k AS BIGINT)"
    values = {"id": "source.v + 100", "v": "source.v"}
    result = merge(spark, str(numbers), rows, cast).when_not_matched_insert(values).execute()
    assert result.num_inserted_rows == 2
    spark.udf.register("is_near", lambda one, other: abs(one - other) < 2, "boolean")
    unknown = spark.sql("SELECT * FROM VALUES (NULL, 'x', 4), ('a', '5', 5) AS t(kind, k, v)")
    cast = "source.kind = 'a' AND target.id = CAST(source.k AS BIGINT)"
    result = merge(spark, str(numbers), unknown, cast).when_not_matched_insert(values).execute()
    assert result.num_inserted_rows == 1
    near = "target.id = source.v + 3 AND is_near(target.id, source.v + 4)"
    result = merge(spark, str(numbers), rows, near).when_not_matched_insert(values).execute()
    assert result.num_inserted_rows == 0
    expected = dict.fromkeys(range(10), 0) | {101: 1, 103: 3, 104: 4}
    assert values_in(spark, numbers) == expected


@pytest.mark.parametrize("properties", deep_but_for(BOTH, VECTORS), ids=["copies", "vectors"])
def test_a_condition_that_is_no_equality(
    spark: SparkSession, tmp_path: Path, properties: Mapping[str, str]
) -> None:
    make(spark, tmp_path, "SELECT id, 0 AS v FROM range(10)", properties=properties)
    rows = spark.sql("SELECT * FROM VALUES (1, 3, 5), (6, 7, 6), (20, 30, 7) AS t(first, last, v)")
    begun = merge(spark, str(tmp_path), rows, "id BETWEEN first AND last")
    result = (
        begun.when_matched_update({"v": "source.v"})
        .when_not_matched_insert({"id": "first", "v": "v"})
        .when_not_matched_by_source_update({"v": "v - 1"}, "id > 7")
        .execute()
    )
    assert (result.num_updated_rows, result.num_inserted_rows) == (7, 1)
    expected = {0: 0, 1: 5, 2: 5, 3: 5, 4: 0, 5: 0, 6: 6, 7: 6, 8: -1, 9: -1, 20: 7}
    assert values_in(spark, tmp_path) == expected


def test_a_source_that_is_the_table_itself(spark: SparkSession, numbers: Path) -> None:
    rows = read_snapshot(spark, str(numbers)).where("id > 4")
    begun = merge(spark, str(numbers), rows, "target.id = source.id - 1")
    begun.when_matched_update({"v": "source.id"}).when_not_matched_by_source_delete().execute()
    assert values_in(spark, numbers) == {4: 5, 5: 6, 6: 7, 7: 8, 8: 9}


def test_conditions_of_inserts_see_rows_without_a_match_alone(
    spark: SparkSession, numbers: Path
) -> None:
    source = source_of(spark, "(1, 0), (100, 5)")
    begun = merge(spark, str(numbers), source, "target.id = source.id")
    result = begun.when_not_matched_insert_all("10 DIV source.v > 1").execute()
    assert result.num_inserted_rows == 1


def test_a_source_without_rows(spark: SparkSession, numbers: Path) -> None:
    rows = source_of(spark, "(3L, 1)").where("id < 0")
    begun = merge(spark, str(numbers), rows, "target.id = source.id")
    result = begun.when_matched_delete().when_not_matched_insert_all().execute()
    assert (result.version, result.written) == (0, False)
    result = begun.when_not_matched_by_source_delete("id > 1").execute()
    assert result.num_deleted_rows == 8
    assert set(values_in(spark, numbers)) == {0, 1}


def test_a_table_without_rows(spark: SparkSession, numbers: Path) -> None:
    make(spark, numbers, "SELECT id, 0 AS v FROM range(0)", mode="overwrite")
    begun = merge(spark, str(numbers), source_of(spark, "(3L, 1)"), "target.id = source.id")
    begun = begun.when_matched_delete().when_not_matched_by_source_delete()
    assert not begun.execute().written
    assert begun.when_not_matched_insert_all().execute().num_inserted_rows == 1


def test_null_equals_null_if_the_condition_says_so(spark: SparkSession, tmp_path: Path) -> None:
    rows = "SELECT * FROM VALUES (1, 'a'), (NULL, 'b') AS t(id, v)"
    make(spark, tmp_path, rows)
    source = spark.sql(rows).withColumn("v", F.lit("new"))
    begun = merge(spark, str(tmp_path), source, "target.id = source.id").when_matched_update_all()
    assert begun.execute().num_updated_rows == 1
    begun = merge(spark, str(tmp_path), source, "target.id <=> source.id").when_matched_update_all()
    assert begun.execute().num_updated_rows == 2
    assert rows_in(spark, tmp_path) == [(1, "new"), (None, "new")]


def test_names_in_any_case_and_under_other_aliases(spark: SparkSession, tmp_path: Path) -> None:
    make(
        spark,
        tmp_path,
        "SELECT 1 AS Id, 'old' AS `a b`, 2 AS source, named_struct('id', 7) AS t",
        properties={"delta.columnMapping.mode": "name"},
    )
    rows = spark.sql(
        "SELECT 1 AS ID, 'new' AS `A B`, 5 AS target, 6 AS extra, named_struct('id', 8) AS T"
    )
    begun = merge(
        spark,
        str(tmp_path),
        rows,
        "t.iD = S.id AND s.target = 5",
        target_alias="T",
        source_alias="s",
    )
    begun.when_matched_update(
        {"t.`A b`": "concat(t.`a b`, s.`a b`)", "SOURCE": "s.target + t.source", "T.T.ID": "extra"}
    ).execute()
    assert rows_in(spark, tmp_path) == [(1, "oldnew", 7, (6,))]
    same = rows.withColumn("source", F.lit(0)).withColumn("ID", F.lit(2))
    begun = merge(spark, str(tmp_path), same, F.col("target.id") == F.col("source.id"))
    begun.when_not_matched_insert_all().execute()
    assert rows_in(spark, tmp_path) == [(1, "oldnew", 7, (6,)), (2, "new", 0, (8,))]


def test_an_alias_comes_before_a_struct_of_its_name(spark: SparkSession, tmp_path: Path) -> None:
    make(spark, tmp_path, "SELECT 1 AS id, 10 AS v, named_struct('v', 20, 'w', 30) AS target")
    rows = spark.sql("SELECT 1 AS id, 5 AS v")
    begun = merge(spark, str(tmp_path), rows, "target.id = source.id")
    begun.when_matched_update(
        {"target.v": "target.v + source.v", "target.target.v": "21", "target.w": "31"}
    ).execute()
    assert rows_in(spark, tmp_path) == [(1, 15, (21, 31))]


def test_clauses_see_only_their_own_rows(spark: SparkSession, numbers: Path) -> None:
    """A clause for rows of one side may name their columns without an alias."""
    rows = source_of(spark, "(3L, 7), (30L, 8), (40L, 9)")
    begun = merge(spark, str(numbers), rows, "target.id = source.id")
    (
        begun.when_matched_update({"v": "source.v"})
        .when_not_matched_insert({"id": "id", "v": "v + 1"}, "id < 35")
        .when_not_matched_by_source_delete("id < 8")
        .when_not_matched_by_source_update({"v": "v - id"})
        .execute()
    )
    assert values_in(spark, numbers) == {3: 7, 8: -8, 9: -9, 30: 9}
    for name, builder in {
        "v + 1": begun.when_matched_update({"v": "v + 1"}),
        "target.v": begun.when_not_matched_insert({"id": "target.v"}),
        "source.v": begun.when_not_matched_by_source_update({"v": "source.v"}),
        "__delta_row": begun.when_matched_update({"v": "__delta_row"}),
    }.items():
        with pytest.raises(InvalidArgumentError, match="can't resolve the new value of"):
            pytest.fail(f"{name}: {builder.execute()}")


REFUSED: dict[str, tuple[list[tuple[str, ...]], str]] = {
    "no clause": ([], "the merge has no clause"),
    "a clause that is never reached": (
        [("matched_delete",), ("matched_update_all",)],
        "a clause for matched follows one without a condition",
    ),
    "chance": ([("matched_delete", "rand() > 2")], "isn't the same for a row each time"),
    "chance of an insert": ([("not_matched_insert_all", "uuid() > 'x'")], "isn't the same"),
    "a subquery": ([("matched_delete", "target.id IN (SELECT 1)")], "has a subquery"),
    "an aggregate": ([("matched_delete", "sum(source.v) > 1")], "can't resolve the condition"),
    "an unknown column": ([("not_matched_by_source_delete", "nope = 1")], "UNRESOLVED_COLUMN"),
    "no SQL": ([("matched_delete", "1 +")], "PARSE_SYNTAX_ERROR"),
    "all columns of the source": ([("matched_delete", "hash(source.*) = 1")], r"has a \*"),
    "all columns of the table": (
        [("matched_update_all", "xxhash64(target.*) <> xxhash64(source.*)")],
        r"has a \*",
    ),
    "all columns of new rows": ([("not_matched_insert_all", "hash(*) = 1")], r"has a \*"),
    "all columns of other rows": ([("not_matched_by_source_delete", "hash(*) = 1")], r"has a \*"),
}


def test_merges_that_are_refused(spark: SparkSession, numbers: Path) -> None:
    rows = source_of(spark, "(3L, 7)")
    begun = merge(spark, str(numbers), rows, "target.id = source.id")
    for name, (clauses, message) in REFUSED.items():
        builder = begun
        for clause, *arguments in clauses:
            builder = getattr(builder, f"when_{clause}")(*arguments)
        with pytest.raises(InvalidArgumentError, match=message):
            pytest.fail(f"{name}: {builder.execute()}")
    for values, message in [
        ({"nope": 1}, "'nope': the table has no such column"),
        ({"v": 1 << 63}, "the value of 'v' needs more than 64 bits"),
        ({"v": "max(source.v)"}, "the new value of v isn't one value"),
        ({"v": "hash(source.*)"}, r"the new value of v has a \*"),
        ({"v": "row_number() OVER (ORDER BY source.v)"}, "the new value of v isn't one value"),
    ]:
        with pytest.raises(InvalidArgumentError, match=message):
            begun.when_matched_update(values).execute()
        with pytest.raises(InvalidArgumentError, match=message):
            begun.when_not_matched_insert(values).execute()
    no_condition: Any = True
    with pytest.raises(InvalidArgumentError, match="on: expected a condition as a text or Column"):
        merge(spark, str(numbers), rows, no_condition)
    with pytest.raises(InvalidArgumentError, match="condition: expected a condition as a text"):
        begun.when_matched_delete(no_condition)
    with pytest.raises(InvalidArgumentError, match="are both 'source'"):
        merge(spark, str(numbers), rows, "true", target_alias="source")
    for source, message in [
        ([(1, 2)], "expected a DataFrame of Spark, found list"),
        (spark.readStream.format("rate").load(), "the source is a stream: merge its batches"),
        (spark.sql("SELECT 1 AS __Delta_x"), r"the source has the columns \['__Delta_x'\]"),
    ]:
        with pytest.raises(InvalidArgumentError, match=message):
            merge(spark, str(numbers), source, "true").when_matched_delete().execute()
    assert DeltaTable(str(numbers)).latest_version() == 0
    assert stored_bytes(spark) == 0


@pytest.mark.parametrize("properties", deep_but_for(BOTH, {}), ids=["copies", "vectors"])
def test_values_of_chance_are_those_of_the_feed(
    spark: SparkSession, tmp_path: Path, properties: Mapping[str, str]
) -> None:
    rows = "SELECT id, 'x' AS s, 0D AS r FROM range(6)"
    make(spark, tmp_path, rows, properties={**properties, **FEED})
    source = spark.range(3, 9, 1, 3).select("id", F.expr("uuid()").alias("s"))
    values = {"s": "source.s", "r": "rand()"}
    begun = merge(spark, str(tmp_path), source, "target.id = source.id")
    (
        begun.when_matched_update(values, "source.id = 3")
        .when_matched_delete()
        .when_not_matched_insert({"id": "id", **values})
        .execute()
    )
    after = {row for row in rows_in(spark, tmp_path) if row[0] >= 3}
    assert len({row[1] for row in after}) == len({row[2] for row in after}) == 4
    changes = read_changes(spark, str(tmp_path), 1, 1)
    new = changes.where("_change_type IN ('insert', 'update_postimage')").select("id", "s", "r")
    assert {tuple(row) for row in new.collect()} == after
    old = changes.where("_change_type IN ('delete', 'update_preimage')").select("id", "s", "r")
    assert sorted(map(tuple, old.collect())) == [(i, "x", 0.0) for i in (3, 4, 5)]


def test_files_tell_the_changes_where_no_change_data_are_needed(
    spark: SparkSession, tmp_path: Path
) -> None:
    make(spark, tmp_path, "SELECT id, 0 AS v FROM range(10)", properties={**FEED, **VECTORS})
    rows = source_of(spark, "(3L, 7), (30L, 8)")
    begun = merge(spark, str(tmp_path), rows, "target.id = source.id")
    begun.when_matched_delete().when_not_matched_insert_all().execute()
    assert not (tmp_path / "_change_data").exists()
    changes = read_changes(spark, str(tmp_path), 1, 1).select("_change_type", "id", "v")
    assert sorted(map(tuple, changes.collect())) == [("delete", 3, 0), ("insert", 30, 8)]


@pytest.mark.deep
@pytest.mark.parametrize("properties", BOTH, ids=["copies", "vectors"])
def test_many_small_files(
    spark: SparkSession, tmp_path: Path, properties: Mapping[str, str]
) -> None:
    # More partitions with rows of the source than `keys` looks for one by one.
    number = 2 * keys._MOST_PARTITIONS + 40
    make_small_files(spark, tmp_path, number, properties)
    check_small_files(spark, tmp_path, number)


def make_small_files(
    spark: SparkSession, table: Path, number: int, properties: Mapping[str, str]
) -> None:
    """A table of files with two rows each, the ids 0 and 1: hard links to a few files."""
    rows = spark.sql("SELECT id, 0 AS v, 0L AS file FROM range(2)").coalesce(1)
    write(rows, str(table), partition_by=["file"], properties=properties)
    delta = DeltaTable(str(table))
    (add,) = delta.snapshot().files().to_pylist()
    found = table / add["path"]
    transaction = delta.transaction("WRITE", enforces=["deletionVectors"])
    for i in range(1, number):
        path = table / f"{i}.parquet"
        if i % 10_000 == 0:
            # File systems allow some ten thousand links to a file.
            found = Path(shutil.copy(found, path))
        else:
            path.hardlink_to(found)
        transaction.add_file(
            AddFile(
                f"{i}.parquet",
                {"file": str(i)},
                add["size"],
                add["modificationTime"],
                data_change=True,
                stats=add["stats"],
            )
        )
    transaction.commit()


def check_small_files(spark: SparkSession, table: Path, number: int) -> None:
    rows = spark.range(-5, number, 2).select(
        F.lit(0).cast("long").alias("id"), F.col("id").alias("file"), F.lit(1).alias("v")
    )
    on = "target.file = source.file AND target.id = source.id"
    begun = merge(spark, str(table), rows, on)
    result = (
        begun.when_matched_update({"v": "source.v"}, "source.file % 4 = 1")
        .when_matched_delete()
        .when_not_matched_insert_all()
        .execute()
    )
    matched, updated = number // 2, number // 4
    assert (result.num_updated_rows, result.num_deleted_rows) == (updated, matched - updated)
    assert result.num_inserted_rows == 3
    after = read_snapshot(spark, str(table)).agg(F.count("*"), F.sum("v"))
    assert tuple(after.collect()[0]) == (2 * number + 3 - (matched - updated), updated + 3)


def test_what_the_commit_says_of_itself(spark: SparkSession, tmp_path: Path) -> None:
    make(spark, tmp_path, "SELECT id, 0 AS v FROM range(10)", properties=VECTORS)
    rows = source_of(spark, "(3L, 7), (4L, 1), (30L, 8)")
    begun = merge(
        spark, str(tmp_path), rows, "target.id = source.id", txn=("task", 1), user_metadata="why"
    )
    builder = (
        begun.when_matched_delete("source.v > 5")
        .when_matched_update_all()
        .when_not_matched_insert_all()
        .when_not_matched_by_source_update({"v": 5}, F.col("id") == 9)
    )
    first, again = builder.execute(), builder.execute()
    assert (again.version, again.written) == (first.version, False)
    info, _ = DeltaTable(str(tmp_path)).history()
    assert (info.operation, info.user_metadata) == ("MERGE", "why")
    parameters = {name: json.loads(value) for name, value in info.operation_parameters.items()}
    assert parameters == {
        "predicate": ["target.id = source.id"],
        "matchedPredicates": [
            {"predicate": "source.v > 5", "actionType": "delete"},
            {"actionType": "update"},
        ],
        "notMatchedPredicates": [{"actionType": "insert"}],
        "notMatchedBySourcePredicates": [
            {"predicate": "(target.id = CAST(9 AS BIGINT))", "actionType": "update"}
        ],
    }
    metrics = {name: int(value) for name, value in info.operation_metrics.items()}
    for name in ("numTargetBytesAdded", "executionTimeMs"):
        del metrics[name]
    assert {name: value for name, value in metrics.items() if value} == {
        "numSourceRows": 3,
        "numTargetRowsInserted": 1,
        "numTargetRowsUpdated": 2,
        "numTargetRowsMatchedUpdated": 1,
        "numTargetRowsNotMatchedBySourceUpdated": 1,
        "numTargetRowsDeleted": 1,
        "numTargetRowsMatchedDeleted": 1,
        "numOutputRows": 3,
        "numTargetFilesAdded": 1,
        "numTargetDeletionVectorsAdded": 1,
    }


DAYS = (
    "-0044-03-15",
    "0001-01-01",
    "0999-12-31",
    # The Julian calendar ended on the fourth; Java's older classes have no such day.
    "1582-10-10",
    "1970-01-01",
    "9999-12-31",
    "+10000-01-10",
    "+12000-06-30",
)
"""Days of Spark. Some aren't days of Python, or of Java's older classes."""


@pytest.mark.parametrize(
    "partition_by",
    [pytest.param((), id="whole", marks=pytest.mark.deep), pytest.param(("d",), id="partitioned")],
)
def test_a_key_with_any_day(
    spark: SparkSession, tmp_path: Path, partition_by: tuple[str, ...]
) -> None:
    days = DAYS if not partition_by else DAYS[1:6]
    rows = " UNION ALL ".join(f"SELECT DATE'{day}' AS d, 0 AS v" for day in days)
    make(spark, tmp_path, rows, partition_by=partition_by)
    key = spark.sql("SELECT 1 AS n")
    for n, day in enumerate(days, 1):
        source = key.select(F.expr(f"DATE'{day}'").alias("d"), F.lit(n).alias("v"))
        begun = merge(spark, str(tmp_path), source, "target.d = source.d")
        result = begun.when_matched_update_all().when_not_matched_insert_all().execute()
        assert (result.num_updated_rows, result.num_inserted_rows) == (1, 0), day
    found = read_snapshot(spark, str(tmp_path)).selectExpr("CAST(d AS STRING)", "v").collect()
    assert dict(map(tuple, found)) == {day: n for n, day in enumerate(days, 1)}


def test_a_column_of_the_source_that_no_table_can_store(
    spark: SparkSession, tmp_path: Path
) -> None:
    write(spark.sql("SELECT 1 AS id, 1 AS v"), str(tmp_path))
    source = spark.sql("SELECT 1 AS id, 5 AS v, INTERVAL 1 DAY AS i")
    begun = merge(spark, str(tmp_path), source, "target.id = source.id")
    begun.when_matched_update({"v": "source.v + extract(DAY FROM source.i)"}).execute()
    assert rows_in(spark, tmp_path) == [(1, 6)]
