"""What deletions, and overwrites by condition, do to files, statistics and change data."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F  # noqa: N812

from airflow_delta.engine import AddFile, DeltaTable
from airflow_delta.engine.errors import (
    ConstraintViolationError,
    InvalidArgumentError,
    InvalidTableError,
    UnsupportedFeatureError,
)
from airflow_delta.spark import delete, merge, read_changes, read_snapshot, update, write
from airflow_delta.spark.dml import deletion
from airflow_delta.spark.dml.dry_run import plan_deletion
from tests.spark.dml.tables import all_files, rows_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_statistics_of_a_file_whose_columns_have_another_order(
    spark: SparkSession, tmp_path: Path
) -> None:
    properties = {"delta.enableDeletionVectors": "true"}
    write(spark.createDataFrame([], "a long, b long"), str(tmp_path), properties=properties)
    pq.write_table(pa.table({"b": [100, 200], "a": [1, 2]}), tmp_path / "foreign.parquet")
    transaction = DeltaTable(str(tmp_path)).transaction("WRITE", enforces=["deletionVectors"])
    size = (tmp_path / "foreign.parquet").stat().st_size
    transaction.add_files([AddFile("foreign.parquet", {}, size, 0, data_change=True)])
    transaction.commit()

    delete(spark, str(tmp_path), "a = 1")

    (add,) = DeltaTable(str(tmp_path)).snapshot().files().to_pylist()
    assert json.loads(add["stats"]) == {"numRecords": 2, "tightBounds": False}
    assert read_snapshot(spark, str(tmp_path)).where("b = 200").count() == 1


def test_change_data_are_the_rows_that_were_found(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A condition that knows the time has another value when it is evaluated again."""
    rows = spark.createDataFrame([(1, 1), (2, 2), (3, 3)], "id int, v int").coalesce(1)
    write(rows, str(tmp_path), properties={"delta.enableChangeDataFeed": "true"})
    spark.sql("DECLARE OR REPLACE VARIABLE least INT DEFAULT 3")
    remove_rows = deletion.remove_rows

    def later(*arguments: Any) -> Any:
        spark.sql("SET VARIABLE least = 2")
        return remove_rows(*arguments)

    monkeypatch.setattr(deletion, "remove_rows", later)
    delete(spark, str(tmp_path), "v >= least")
    changes = read_changes(spark, str(tmp_path), 1, 1).select("_change_type", "id")
    assert list(map(tuple, changes.collect())) == [("delete", 3)]


def test_partitions_whose_names_spark_hides(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.createDataFrame([(1, "a"), (2, "b")], "id int, `.p` string").coalesce(1)
    feed = {"delta.enableChangeDataFeed": "true"}
    write(rows, str(tmp_path), partition_by=[".p"], properties=feed)
    write(rows, str(tmp_path), "overwrite", replace_where="id = 1 OR `.p` = 'b'")
    assert sorted(map(tuple, read_snapshot(spark, str(tmp_path)).collect())) == [(1, "a"), (2, "b")]
    changes = read_changes(spark, str(tmp_path), 1, 1).select("_change_type", "id")
    assert sorted(map(tuple, changes.collect())) == [
        (kind, number) for kind in ("delete", "insert") for number in (1, 2)
    ]


def test_change_data_of_a_table_whose_location_looks_like_a_pattern(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = str(tmp_path / "a[1] {x}*?" / "t")
    rows = spark.sql("SELECT id, id % 2 AS p FROM range(4)").coalesce(1)
    write(rows, table, partition_by=["p"], properties={"delta.enableChangeDataFeed": "true"})
    for name in ("ignoreMissingFiles", "ignoreCorruptFiles"):
        spark.conf.set(f"spark.sql.files.{name}", "true")
    try:
        write(rows.where("id = 1"), table, "overwrite", replace_where="id = 1")
        update(spark, table, {"id": "id + 10"}, "id = 2")
        source = spark.sql("SELECT 3L AS id, 0L AS p UNION ALL SELECT 4, NULL")
        merged = merge(spark, table, source, "target.id = source.id")
        merged.when_matched_update_all().when_not_matched_insert_all().execute()
    finally:
        for name in ("ignoreMissingFiles", "ignoreCorruptFiles"):
            spark.conf.unset(f"spark.sql.files.{name}")
    changes = read_changes(spark, table, 1, 3).select("_commit_version", "_change_type", "id", "p")
    assert set(map(tuple, changes.collect())) == {
        (1, "delete", 1, 1),
        (1, "insert", 1, 1),
        (2, "update_preimage", 2, 0),
        (2, "update_postimage", 12, 0),
        (3, "update_preimage", 3, 1),
        (3, "update_postimage", 3, 0),
        (3, "insert", 4, None),
    }


def test_partition_columns_with_odd_names(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.sql("SELECT id, id AS File_Number, id AS partition_0 FROM range(3)")
    write(rows, str(tmp_path), partition_by=["File_Number", "partition_0"])
    delete(spark, str(tmp_path), "file_number = 1 OR partition_0 + 1 = 3")
    assert [row.id for row in read_snapshot(spark, str(tmp_path)).collect()] == [0]


def test_a_condition_in_python_is_recorded_as_sql(spark: SparkSession, tmp_path: Path) -> None:
    write(spark.range(9), str(tmp_path))
    write(spark.range(1), str(tmp_path), "overwrite", replace_where=F.col("id") < 2)
    delete(spark, str(tmp_path), (F.col("id") > 5) & F.col("id").isin(7))
    found = [
        info.operation_parameters["predicate"] for info in DeltaTable(str(tmp_path)).history(2)
    ]
    assert found == [
        '["((id > CAST(5 AS BIGINT)) AND (CAST(id AS BIGINT) IN (CAST(7 AS BIGINT))))"]',
        "(id < CAST(2 AS BIGINT))",
    ]


def test_a_column_with_the_name_of_a_location_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    write(spark.sql("SELECT 1 AS id, 2 AS __DELTA_ROW"), str(tmp_path))
    with pytest.raises(UnsupportedFeatureError, match="rename"):
        delete(spark, str(tmp_path), "id + 1 = 2")
    assert DeltaTable(str(tmp_path)).latest_version() == 0


def test_an_overwrite_by_condition_that_adds_a_column(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.createDataFrame([(1, 1), (2, 2)], "id int, v int").coalesce(1)
    properties = {"delta.enableChangeDataFeed": "true"}
    write(rows, str(tmp_path), properties=properties)
    new = spark.createDataFrame([(2, 20, 5)], "id int, v int, n int")
    write(new.coalesce(1), str(tmp_path), "overwrite", replace_where="id = 2", merge_schema=True)
    # The metrics of Delta Spark count what is written anew as output, too.
    metrics = DeltaTable(str(tmp_path)).history(1)[0].operation_metrics or {}
    names = ("numFiles", "numOutputRows", "numCopiedRows", "numDeletedRows")
    assert [metrics[name] for name in names] == ["2", "2", "1", "1"]
    changes = read_changes(spark, str(tmp_path), 1, 1).select("_change_type", "id", "v", "n")
    assert sorted(map(tuple, changes.collect())) == [("delete", 2, 2, None), ("insert", 2, 20, 5)]
    assert set(map(tuple, read_snapshot(spark, str(tmp_path)).collect())) == {
        (1, 1, None),
        (2, 20, 5),
    }


def test_new_rows_of_an_overwrite_must_meet_its_condition(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Also if it is null for them: the next overwrite by the same condition would not replace them."""
    old = [(1, 1), (2, None), (3, -3)]
    write(spark.createDataFrame(old, "id int, v int").coalesce(1), str(tmp_path))
    before = sorted(tmp_path.rglob("*.parquet"))
    for value in (None, 0):
        new = spark.createDataFrame([(4, 4), (5, value)], "id int, v int").coalesce(1)
        with pytest.raises(ConstraintViolationError, match="replace_where, v > 0: 1 row breaks"):
            write(new, str(tmp_path), "overwrite", replace_where="v > 0")
    assert sorted(tmp_path.rglob("*.parquet")) == before
    write(new.where("id = 4"), str(tmp_path), "overwrite", replace_where="v > 0")
    rows = {tuple(row) for row in read_snapshot(spark, str(tmp_path)).collect()}
    assert rows == {(2, None), (3, -3), (4, 4)}


def test_conditions_of_overwrites_are_checked_before_anything_is_written(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = spark.createDataFrame([(1, 1)], "id int, n int").coalesce(1)
    write(rows.drop("n"), str(tmp_path))
    before = sorted(tmp_path.rglob("*"))
    unreadable = rows.withColumn("id", F.raise_error(F.lit("the rows were read")).cast("int"))
    for condition, reason in {
        "nope = 5": "Spark can't resolve the condition nope = 5.*UNRESOLVED_COLUMN",
        "n = 5": "Spark can't resolve the condition n = 5.*UNRESOLVED_COLUMN",
        "id = = 5": "Spark can't resolve the condition id = = 5.*PARSE_SYNTAX_ERROR",
        "id + 1": "Spark can't resolve the condition.*not a boolean",
        "rand() >= 0": "isn't the same for a row each time",
    }.items():
        with pytest.raises(InvalidArgumentError, match=reason):
            write(
                unreadable, str(tmp_path), "overwrite", replace_where=condition, merge_schema=True
            )
    assert sorted(tmp_path.rglob("*")) == before


def test_the_plan_of_a_deletion_comes_from_the_log(spark: SparkSession, tmp_path: Path) -> None:
    uri = str(tmp_path)
    write(spark.range(10).selectExpr("id", "id DIV 5 AS p").coalesce(1), uri, partition_by=["p"])
    files = {add["partitionValues"][0][1]: add for add in _live(uri)}
    for path in tmp_path.rglob("*.parquet"):
        path.unlink()
    for condition, partitions, rows, whole in (
        ("p = 1", ["1"], 5, 1),
        ("id < 3", ["0"], 5, 0),
        ("id >= 5", ["1"], 5, 1),
        ("id + 1 > 2", ["0", "1"], 10, 0),
        ("p = 7", [], 0, 0),
        ("true", ["0", "1"], 10, 2),
    ):
        plan = plan_deletion(spark, uri, condition)
        assert sorted(plan.examples) == sorted(files[p]["path"] for p in partitions), condition
        assert plan.size_in_bytes == sum(files[p]["size"] for p in partitions)
        found = (plan.version, plan.num_files, plan.max_rows, plan.num_whole_files)
        assert found == (0, len(partitions), rows, whole), condition
    assert DeltaTable(uri).latest_version() == 0


def _live(uri: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = DeltaTable(uri).snapshot().files().to_pylist()
    return found


def test_files_are_rewritten_together_and_counted(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.sql("SELECT id FROM range(40)").repartitionByRange(4, "id")
    write(rows, str(tmp_path))
    found = delete(spark, str(tmp_path), "id % 10 = 3")
    assert (found.num_copied_rows, found.num_removed_files) == (36, 4)
    # Spark reads such small files in as many tasks as it has cores.
    assert found.num_added_files < 4
    assert rows_in(spark, tmp_path) == sorted(((n,) for n in range(40) if n % 10 != 3), key=str)


@pytest.mark.parametrize("unknown", [False, True], ids=["all counts", "a count is missing"])
def test_a_file_with_other_rows_than_its_statistics_say_is_named(
    spark: SparkSession, tmp_path: Path, *, unknown: bool
) -> None:
    write(spark.sql("SELECT id FROM range(40)").repartitionByRange(4, "id"), str(tmp_path))
    log = tmp_path / "_delta_log" / f"{0:020}.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    adds = [action["add"] for action in actions if "add" in action]
    for add, stats in ((adds[1], {"numRecords": 999}), (adds[2], {})):
        if stats or unknown:
            add["stats"] = json.dumps(stats)
    log.write_text("".join(json.dumps(action) + "\n" for action in actions))
    before = all_files(tmp_path)
    with pytest.raises(InvalidTableError, match=re.escape(adds[1]["path"])):
        delete(spark, str(tmp_path), "id % 10 = 3")
    assert all_files(tmp_path) == before


FAR = [
    "d IN (DATE'+12000-01-01', DATE'2024-01-01')",
    "t IN (TIMESTAMP'+12000-01-01 00:00:00Z', TIMESTAMP'2024-01-01 00:00:00Z')",
    "n IN (TIMESTAMP_NTZ'+12000-01-01 00:00:00', TIMESTAMP_NTZ'2024-01-01 00:00:00')",
    "d IN (DATE'-0044-03-15', DATE'+12000-01-01', DATE'2024-01-01')",
]
"""Days and times that Python doesn't have, which are in the second row."""
LONG = ", ".join(f"DATE'+12000-01-01' + {n}" for n in range(20))


@pytest.mark.parametrize("condition", [*FAR, f"d IN ({LONG})"])
def test_lists_of_days_and_times_that_python_does_not_have(
    spark: SparkSession, tmp_path: Path, condition: str
) -> None:
    times = "TIMESTAMP'{0} 00:00:00Z' AS t, TIMESTAMP_NTZ'{0} 00:00:00' AS n"
    rows = [
        f"SELECT {n} AS id, DATE'{day}' AS d, {times.format(day)}"
        for n, day in enumerate(("2023-01-01", "+12000-01-01", "+13000-01-01"))
    ]
    written = spark.sql(" UNION ALL ".join(rows)).repartitionByRange(3, "id")
    write(written, str(tmp_path), optimize_write=False)
    assert DeltaTable(str(tmp_path)).snapshot().num_files == 3
    found = read_snapshot(spark, str(tmp_path), predicate=condition)
    assert [row.id for row in found.select("id").collect()] == [1]
    assert delete(spark, str(tmp_path), condition).num_deleted_rows == 1
    left = read_snapshot(spark, str(tmp_path)).select("id").collect()
    assert sorted(row.id for row in left) == [0, 2]


def test_a_file_with_fewer_rows_in_its_statistics_than_are_deleted_is_named(
    spark: SparkSession, tmp_path: Path
) -> None:
    write(spark.range(10).coalesce(1), str(tmp_path))
    log = tmp_path / "_delta_log" / f"{0:020}.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    (add,) = [action["add"] for action in actions if "add" in action]
    add["stats"] = json.dumps({"numRecords": 2})
    log.write_text("".join(json.dumps(action) + "\n" for action in actions))
    with pytest.raises(InvalidTableError, match="1 fewer rows") as caught:
        delete(spark, str(tmp_path), "id % 4 = 1")
    assert caught.value.facts["path"] == add["path"]
    assert DeltaTable(str(tmp_path)).latest_version() == 0


def test_rewritten_files_have_statistics_as_new_ones(spark: SparkSession, tmp_path: Path) -> None:
    properties = {
        "delta.enableDeletionVectors": "true",
        "delta.dataSkippingStringPrefixLength": "4",
    }
    rows = spark.sql("SELECT id, repeat('x', 9) AS t FROM range(4)").coalesce(1)
    write(rows, str(tmp_path), properties=properties)
    (before,) = _live(str(tmp_path))
    DeltaTable(str(tmp_path)).alter.set_properties({"delta.enableDeletionVectors": "false"})
    delete(spark, str(tmp_path), "id = 3")
    (after,) = _live(str(tmp_path))
    expected = json.loads(before["stats"])
    assert (expected["minValues"]["t"], expected["tightBounds"]) == ("xxxx", True)
    assert json.loads(after["stats"]) == {
        **expected,
        "numRecords": 3,
        "maxValues": {**expected["maxValues"], "id": 2},
    }


def test_members_of_structs_in_another_case(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.sql("SELECT id, struct(struct(id AS Ab) AS s) AS o FROM range(6)").coalesce(1)
    feed = {"delta.enableChangeDataFeed": "true"}
    write(rows, str(tmp_path), partition_by=["id"], properties=feed)
    assert delete(spark, str(tmp_path), "O.S.aB = 1 AND abs(o.S.AB) = 1").num_deleted_rows == 1
    assert read_snapshot(spark, str(tmp_path), predicate="O.s.AB > 1").count() == 4
    assert update(spark, str(tmp_path), {"O.S.AB": "7"}, "O.s.AB = 2").num_updated_rows == 1
    source = spark.sql("SELECT 3L AS k, 8L AS v")
    merged = merge(spark, str(tmp_path), source, "target.O.S.aB = source.K")
    assert merged.when_matched_update({"O.S.ab": "source.V"}).execute().num_updated_rows == 1
    write(
        rows.where("id = 0").withColumn("id", F.lit(9)),
        str(tmp_path),
        "overwrite",
        replace_where="o.S.AB = 0",
    )
    found = {
        row["id"]: row["o"]["s"]["Ab"] for row in read_snapshot(spark, str(tmp_path)).collect()
    }
    assert found == {2: 7, 3: 8, 4: 4, 5: 5, 9: 0}
