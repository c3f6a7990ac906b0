"""Rows that change the definition of the table that they are written to."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import ConstraintViolationError, InvalidArgumentError
from airflow_delta.spark import merge, read_snapshot, write
from tests.deep import deep_but_for
from tests.delta_spark.peer import DeltaSpark
from tests.spark.conftest import bag, rows_of
from tests.spark.writer.test_feature_twins import assert_alike

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AUTO_MERGE = {"spark.databricks.delta.schema.autoMerge.enabled": "true"}
NO_MERGE = {"spark.databricks.delta.schema.autoMerge.enabled": "false"}

EVOLUTIONS = {
    "new columns at every depth": (
        "id BIGINT, s STRUCT<a: INT>, l ARRAY<STRUCT<x: INT>>, m MAP<STRING, STRUCT<k: INT>>",
        {},
        [
            "SELECT 1L AS id, 'new' AS extra",
            "SELECT named_struct('b', 'x', 'a', 1) AS s, 2L AS id",
            (
                "SELECT map('k', named_struct('k', 1, 'z', DATE'2020-01-01')) AS m, "
                "array(named_struct('x', 1, 'y', 2)) AS l"
            ),
        ],
    ),
    "wider types": (
        "id INT, d DECIMAL(5,2), s STRUCT<a: SMALLINT>, l ARRAY<INT>, day DATE",
        {"delta.enableTypeWidening": "true", "delta.feature.timestampNtz": "supported"},
        [
            "SELECT 3000000000L AS id",
            (
                "SELECT 12345.678BD AS d, named_struct('a', 70000) AS s, array(3000000000L) AS l, "
                "TIMESTAMP_NTZ'2020-01-01 10:00:00' AS day"
            ),
        ],
    ),
    "types without widening": (
        "id INT, n BIGINT",
        {},
        ["SELECT 5L AS id, 7 AS n, 1 AS more"],
    ),
    "column mapping": (
        "id INT, s STRUCT<a: INT>",
        {"delta.columnMapping.mode": "name"},
        ["SELECT 1 AS id, named_struct('a', 1, 'b c', 2) AS s, 'x' AS `d;e`"],
    ),
}


@pytest.mark.parametrize(
    "name", deep_but_for(EVOLUTIONS, "new columns at every depth", "wider types")
)
def test_columns_and_types_grow_as_with_delta_spark(
    spark: SparkSession, delta_spark: DeltaSpark, tmp_path: Path, name: str
) -> None:
    columns, properties, steps = EVOLUTIONS[name]
    ours, its = tmp_path / "ours", tmp_path / "its"
    listed = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
    clause = f" TBLPROPERTIES ({listed})" if listed else ""
    for table in (ours, its):
        delta_spark.sql(
            f"CREATE TABLE delta.`{table}` ({columns}) USING delta{clause}", settings=NO_MERGE
        )
    for rows in steps:
        delta_spark.sql(f"INSERT INTO delta.`{its}` BY NAME {rows}", settings=AUTO_MERGE)
        write(spark.sql(rows), str(ours), merge_schema=True)
    delta_spark.sql("SELECT 1", settings=NO_MERGE)
    assert_alike(spark, delta_spark, ours, its)


def test_partition_columns_get_wider_types(
    spark: SparkSession, delta_spark: DeltaSpark, tmp_path: Path
) -> None:
    ours, its = tmp_path / "ours", tmp_path / "its"
    delta_spark.sql(
        f"CREATE TABLE delta.`{its}` (id INT, p INT, q DECIMAL(4,2)) USING delta "
        "PARTITIONED BY (p, q) TBLPROPERTIES ('delta.enableTypeWidening' = 'true')"
    )
    delta_spark.sql(f"INSERT INTO delta.`{its}` VALUES (1, 1, 1.5), (2, NULL, NULL)")
    shutil.copytree(its, ours)
    rows = "SELECT 3 AS id, 3000000000L AS p, 123.456BD AS q"
    delta_spark.sql(f"INSERT INTO delta.`{its}` BY NAME {rows}", settings=AUTO_MERGE)
    write(spark.sql(rows), str(ours), merge_schema=True)
    rows = "SELECT 1 AS id, 2 AS p, 0.1234BD AS q"
    delta_spark.sql(
        f"MERGE WITH SCHEMA EVOLUTION INTO delta.`{its}` AS t USING ({rows}) AS s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET *",
        settings=NO_MERGE,
    )
    begun = merge(spark, str(ours), spark.sql(rows), "target.id = source.id", merge_schema=True)
    begun.when_matched_update_all().execute()
    assert_alike(spark, delta_spark, ours, its)


def test_a_column_that_a_rule_is_about_keeps_its_type(spark: SparkSession, tmp_path: Path) -> None:
    properties = {"delta.enableTypeWidening": "true", "delta.constraints.few": "id < 9"}
    write(spark.sql("SELECT 1 AS id"), str(tmp_path), properties=properties)
    with pytest.raises(InvalidArgumentError, match=r"constraint 'few' \(id < 9\)"):
        write(spark.sql("SELECT 2L AS id"), str(tmp_path), merge_schema=True)
    assert write(spark.sql("SELECT 2L AS id"), str(tmp_path)).written


def test_an_overwrite_may_define_the_table_anew(spark: SparkSession, tmp_path: Path) -> None:
    first = spark.sql("SELECT 1 AS id, 'a' AS p, named_struct('x', 1) AS s")
    mode = {"delta.columnMapping.mode": "id"}
    write(first, str(tmp_path), partition_by=["p"], properties=mode)
    before = DeltaTable(str(tmp_path)).snapshot()
    rows = spark.sql(
        "SELECT DATE'2020-01-01' AS q, 'text' AS ID, named_struct('x', 1, 'y', 2) AS s"
    )
    write(rows, str(tmp_path), mode="overwrite", overwrite_schema=True, partition_by=["q"])
    after = DeltaTable(str(tmp_path)).snapshot()
    assert after.metadata.partition_columns == ("q",)
    assert bag(rows_of(read_snapshot(spark, str(tmp_path)))) == bag(rows_of(rows))
    assert bag(rows_of(read_snapshot(spark, str(tmp_path), 0))) == bag(rows_of(first))
    ids = {
        name: field.metadata["delta.columnMapping.id"]
        for snapshot in (before, after)
        for name, field in ((f"{snapshot.version}.{f.name}", f) for f in snapshot.schema)
    }
    assert ids["0.id"] == ids["1.ID"]
    assert ids["0.s"] == ids["1.s"]
    assert ids["1.q"] not in {ids["0.id"], ids["0.p"], ids["0.s"]}
    (info,) = DeltaTable(str(tmp_path)).history(1)
    assert info.operation_parameters == {
        "mode": "Overwrite",
        "partitionBy": json.dumps(["q"]),
        "canOverwriteSchema": "true",
    }


def test_an_overwrite_keeps_the_columns_of_constraints(spark: SparkSession, tmp_path: Path) -> None:
    properties = {"delta.constraints.few": "id < 9 AND s.x IS NOT NULL"}
    rows = spark.sql("SELECT 1 AS id, 2 AS n, named_struct('x', 1, 'y', 2) AS s")
    write(rows, str(tmp_path), properties=properties)

    def redefine(query: str) -> int:
        rows = spark.sql(query)
        return write(rows, str(tmp_path), mode="overwrite", overwrite_schema=True).version

    for query, column in (
        ("SELECT 2 AS n, named_struct('x', 1) AS s", "id"),
        ("SELECT 2 AS id, named_struct('y', 1) AS s", r"s\.x"),
    ):
        message = rf"{column} can't be dropped: the constraint 'few' \(.*\) may refer to it"
        with pytest.raises(InvalidArgumentError, match=message):
            redefine(query)
    assert redefine("SELECT 2 AS ID, named_struct('X', 1) AS s") == 1
    with pytest.raises(ConstraintViolationError, match="constraint few"):
        redefine("SELECT 9 AS id, named_struct('x', 1) AS s")


def test_a_table_that_exists_is_left_alone_by_two_modes(
    spark: SparkSession, tmp_path: Path
) -> None:
    assert write(spark.range(1), str(tmp_path), mode="ignore").written
    assert not write(spark.range(2), str(tmp_path), mode="ignore").written
    assert DeltaTable(str(tmp_path)).latest_version() == 0


def test_columns_that_nobody_knows_stop_a_write_without_evolution(
    spark: SparkSession, tmp_path: Path
) -> None:
    write(spark.sql("SELECT 1 AS id, named_struct('x', 1) AS s"), str(tmp_path))
    for rows in ("SELECT 1 AS id, 2 AS n", "SELECT named_struct('x', 1, 'y', 2) AS s"):
        with pytest.raises(ConstraintViolationError, match="merge_schema=True"):
            write(spark.sql(rows), str(tmp_path))
    assert DeltaTable(str(tmp_path)).latest_version() == 0
