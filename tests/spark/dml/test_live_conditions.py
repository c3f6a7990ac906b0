"""Conditions that fail for rows of files that aren't rows of the table: deleted ones, or other partitions'.

Delta Spark makes the same changes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pyspark.errors
import pytest
from pyroaring import BitMap64
from pyspark.sql import DataFrame

from airflow_delta.engine import DeltaTable
from airflow_delta.spark import delete, merge, update, write
from airflow_delta.spark.dml.live_conditions import matching_rows
from airflow_delta.spark.dml.merge import key_filter
from airflow_delta.spark.reader.snapshot_reader import LOCATION_LIVE, SnapshotReader
from tests.delta_spark.peer import DeltaSpark
from tests.spark.dml.tables import rows_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VECTORS = {"delta.enableDeletionVectors": "true"}
RULES = {"delta.constraints.positive": "v >= 0"}
ROWS = "SELECT id, CAST(id AS INT) AS v FROM range(5)"
PARTITIONED = (
    "SELECT 'a' AS p, 1L AS id, 1 AS v UNION ALL SELECT 'a', 3L, 3 UNION ALL SELECT 'bb', 2L, 0"
)


def with_a_deleted_row(
    spark: SparkSession, table: Path, properties: Mapping[str, str] = VECTORS
) -> None:
    """The rows 1 to 4, and a deleted one whose value is 0."""
    write(spark.sql(ROWS).coalesce(1), str(table), properties=properties)
    assert delete(spark, str(table), "v = 0").num_deletion_vectors == 1


def with_a_rule(spark: SparkSession, table: Path) -> None:
    """The same rows in a table that checks new values."""
    with_a_deleted_row(spark, table, {**VECTORS, **RULES})


def with_an_old_vector(spark: SparkSession, table: Path) -> None:
    """The same rows in a table that checks new values, and whose files are now rewritten."""
    with_a_rule(spark, table)
    DeltaTable(str(table)).alter.set_properties({"delta.enableDeletionVectors": "false"})


def with_partitions(spark: SparkSession, table: Path) -> None:
    """The rows 1 and 3 in one partition; in the other a row whose value is 0."""
    write(spark.sql(PARTITIONED).coalesce(1), str(table), partition_by=["p"])


@dataclass(frozen=True)
class Change:
    """A change through us, and the same one through Delta Spark."""

    ours: Callable[[SparkSession, str], Any]
    theirs: str


def deleted(condition: str) -> Change:
    return Change(
        lambda spark, table: delete(spark, table, condition), f"DELETE FROM T! WHERE {condition}"
    )


def updated(condition: str, value: str = "10 DIV v") -> Change:
    return Change(
        lambda spark, table: update(spark, table, {"v": value}, condition),
        f"UPDATE T! SET v = {value} WHERE {condition}",
    )


SOURCE = "SELECT * FROM VALUES (1L, 1L), (2L, 2L), (7L, 7L) AS s(id, x)"


def merged(on: str, condition: str = "true") -> Change:
    return Change(
        lambda spark, table: (
            merge(spark, table, spark.sql(SOURCE), on)
            .when_matched_update({"v": "-1"}, condition)
            .execute()
        ),
        f"MERGE INTO T! target USING ({SOURCE}) source ON {on} "
        f"WHEN MATCHED AND {condition} THEN UPDATE SET v = -1",
    )


def inserted(on: str) -> Change:
    return Change(
        lambda spark, table: (
            merge(spark, table, spark.sql(SOURCE), on)
            .when_not_matched_insert({"id": "source.id", "v": "-1"})
            .execute()
        ),
        f"MERGE INTO T! target USING ({SOURCE}) source ON {on} "
        "WHEN NOT MATCHED THEN INSERT (id, v) VALUES (source.id, -1)",
    )


FEW = "SELECT * FROM (SELECT id, id AS x FROM range(1, 8)) WHERE 10 DIV x > 1"
BY_KEY = Change(
    lambda spark, table: (
        merge(spark, table, spark.sql(FEW), "target.v = source.x")
        .when_matched_update({"v": "-1"})
        .execute()
    ),
    f"MERGE INTO T! target USING ({FEW}) source ON target.v = source.x "
    "WHEN MATCHED THEN UPDATE SET v = -1",
)


def filtered(change: Change) -> Change:
    """The same merge, as if the table were large enough for its rows to be filtered by keys."""

    def ours(spark: SparkSession, table: str) -> object:
        with patch.object(key_filter, "_LEAST_TABLE_BYTES", 0):
            return change.ours(spark, table)

    return Change(ours, change.theirs)


def kept(on: str, condition: str) -> Change:
    return Change(
        lambda spark, table: (
            merge(spark, table, spark.sql(SOURCE), on)
            .when_not_matched_by_source_update({"v": "10 DIV target.v"}, condition)
            .execute()
        ),
        f"MERGE INTO T! target USING ({SOURCE}) source ON {on} "
        f"WHEN NOT MATCHED BY SOURCE AND {condition} THEN UPDATE SET v = 10 DIV target.v",
    )


FAILING = "10 DIV v > 4"
DELETED = {
    "delete": deleted(FAILING),
    "of a column": deleted("10 / v > 4 AND id < 4"),
    "a part that Spark evaluates once": deleted("10 DIV v BETWEEN 5 AND 20"),
    "nothing if two are equal": deleted("nullif(10 DIV v, 1) > 4"),
    "update": updated(FAILING),
    "alternatives": updated(f"{FAILING} OR id = 3"),
    "merge": merged("target.id = source.id AND 10 DIV target.v > 5"),
    "a merge by what fails": merged("10 DIV target.v - 4 = source.x"),
    "a merge by both": merged("target.id = source.id AND 10 DIV target.v > source.x"),
    "a merge with what is known of the source": BY_KEY,
    "a clause": merged("target.id = source.id", "10 DIV target.v > 5"),
    "a clause by source": kept("target.id = source.id", "10 DIV target.v < 3"),
    "inserts": inserted("target.id = source.id AND 10 DIV target.v > 5"),
    "inserts after a filter": filtered(inserted("target.id = source.id AND 10 DIV target.v > 5")),
}
UPDATED = {
    "what fails": updated(FAILING),
    "all of it": updated("true"),
    "what breaks a rule": updated("true", "v - 1"),
}
OF_PARTITIONS = {
    "delete": deleted(f"length(p) = 1 AND {FAILING}"),
    "in any order": deleted(f"{FAILING} AND length(p) = 1"),
    "by a pattern": deleted(f"p LIKE '%a' AND {FAILING}"),
    "update by a pattern": updated(f"p LIKE '%a' AND {FAILING}"),
    "merge by a pattern": merged(
        "target.p LIKE '%a' AND 10 DIV target.v > 4 AND target.id = source.id"
    ),
    "alternatives": deleted(f"(length(p) = 1 AND {FAILING}) OR (length(p) = 2 AND id = 9)"),
    "update": updated(f"length(p) = 1 AND {FAILING}"),
    "merge": merged("length(target.p) = 1 AND 10 DIV target.v > 4 AND target.id = source.id"),
}
IN_SHORT = {
    "delete, deleted",
    "a merge by both, deleted",
    "inserts, deleted",
    "what fails, rewritten",
    "update, partitions",
}
CASES = [
    pytest.param(
        make,
        change,
        id=f"{name}, {kind}",
        marks=() if f"{name}, {kind}" in IN_SHORT else pytest.mark.deep,
    )
    for kind, make, changes in (
        ("deleted", with_a_deleted_row, DELETED),
        ("rewritten", with_an_old_vector, UPDATED),
        ("with a rule", with_a_rule, UPDATED),
        ("partitions", with_partitions, OF_PARTITIONS),
    )
    for name, change in changes.items()
]


def test_a_session_that_refuses_cartesian_products(spark: SparkSession, tmp_path: Path) -> None:
    with_a_deleted_row(spark, tmp_path)
    before = rows_in(spark, tmp_path)
    spark.conf.set("spark.sql.crossJoin.enabled", "false")
    try:
        merged("target.id = source.id AND 10 DIV target.v > 5").ours(spark, str(tmp_path))
    finally:
        spark.conf.unset("spark.sql.crossJoin.enabled")
    assert rows_in(spark, tmp_path) != before


@pytest.mark.parametrize(("make", "change"), CASES)
def test_conditions_see_rows_of_the_table_alone(
    spark: SparkSession,
    delta_spark: DeltaSpark,
    tmp_path: Path,
    make: Callable[[SparkSession, Path], None],
    change: Change,
) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for table in (one, other):
        make(spark, table)
    before = rows_in(spark, one)
    change.ours(spark, str(one))
    delta_spark.sql(change.theirs.replace("T!", f"delta.`{other}`"))
    assert rows_in(spark, one) == rows_in(spark, other) != before


def test_a_row_of_the_table_still_fails(spark: SparkSession, tmp_path: Path) -> None:
    with_a_deleted_row(spark, tmp_path)
    with pytest.raises(pyspark.errors.ArithmeticException, match="DIVIDE_BY_ZERO"):
        delete(spark, str(tmp_path), "10 DIV (v - 1) > 4")


def plan_of(spark: SparkSession, table: Path, condition: str, partition_by: Sequence[str]) -> str:
    snapshot = DeltaTable(str(table)).snapshot()
    reader = SnapshotReader(spark, DeltaTable(str(table)), snapshot)
    rows = matching_rows(reader, snapshot.files(), condition, partition_by=partition_by)
    return planned(rows.drop(LOCATION_LIVE))


def planned(rows: DataFrame) -> str:
    plan: Any = rows._jdf.queryExecution().executedPlan()
    # These are others each time.
    return re.sub(r"#\d+L?|plan_id=\d+|\[id=\d+\]|delta-files-\w+", "", str(plan.toString()))


def pushed(plan: str) -> str:
    (found,) = re.findall(r"PushedFilters: \[(.*?)\], ", plan)
    return str(found)


def test_filters_of_parquet(spark: SparkSession, tmp_path: Path) -> None:
    """What can't fail skips row groups, also on a table with deletion vectors."""
    with_a_deleted_row(spark, tmp_path)
    for condition, expected in {
        "v = 3": "EqualTo(v,3)",
        "v > 3 AND id IN (1, 2)": "GreaterThan(v,3)",
        "v > 3.5": "GreaterThan(v,3)",
        "10 DIV v > 4 AND v > 3": "GreaterThan(v,3)",
        "id < unix_seconds(current_timestamp())": "LessThan(id,",
        "NOT (v > 3 OR id = 1)": "LessThanOrEqual(v,3)",
    }.items():
        assert expected in pushed(plan_of(spark, tmp_path, condition, ())), condition
    assert "EqualTo" not in pushed(plan_of(spark, tmp_path, "10 DIV v = 4", ()))


@pytest.mark.parametrize("partition_by", [(), ("p",)], ids=["whole", "partitioned"])
def test_other_conditions_stay_as_they_are(
    spark: SparkSession, tmp_path: Path, partition_by: Sequence[str]
) -> None:
    rows = spark.sql("SELECT id, CAST(id AS INT) AS v, 'a' AS p FROM range(5)").coalesce(1)
    write(rows, str(tmp_path), partition_by=partition_by)
    snapshot = DeltaTable(str(tmp_path)).snapshot()
    located = SnapshotReader(spark, DeltaTable(str(tmp_path)), snapshot).located_rows(
        snapshot.files()
    )
    for condition in ("10 DIV v > 4", "v = 3"):
        plan = plan_of(spark, tmp_path, condition, partition_by)
        assert plan == planned(located.where(condition))
        assert "is_live" not in plan


def test_only_files_with_wanted_rows_are_read(spark: SparkSession, tmp_path: Path) -> None:
    for start in (0, 10, 20):
        write(spark.range(start, start + 10).coalesce(1), str(tmp_path))
    table = DeltaTable(str(tmp_path))
    files = table.snapshot().files()
    wanted = {2: BitMap64([1, 3]), 0: BitMap64([9])}
    rows = SnapshotReader(spark, table, table.snapshot()).located_rows(files, only=wanted)
    assert len(rows.inputFiles()) == 2
    found = {row.id for row in rows.select("id").collect()}
    every = [
        [row.id for row in spark.read.parquet(f"{tmp_path}/{path}").collect()]
        for path in files["path"].to_pylist()
    ]
    assert found == {every[2][1], every[2][3], every[0][9]}
