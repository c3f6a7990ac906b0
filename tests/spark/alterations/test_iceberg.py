"""Iceberg compatibility for tables with data, and what becomes of their files afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import (
    CommitConflictError,
    InvalidArgumentError,
    InvalidTableError,
)
from airflow_delta.engine.model.paths import resolve
from airflow_delta.spark import delete, enable_iceberg_compat, read_snapshot, write
from airflow_delta.spark.rewrite.files import FileRewriter
from tests.delta_spark.peer import DeltaSpark
from tests.spark.conftest import bag, rows_of
from tests.spark.writer.test_feature_twins import field_ids

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = (
    "SELECT id, IF(id < 2, 'a b', NULL) AS p, array(named_struct('x', id)) AS a, "
    "map('k', array(id)) AS m, TIMESTAMP'2024-01-02 03:04:05' AS ts FROM range({}, {}, 1, 1)"
)


def live(table: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = DeltaTable(str(table)).snapshot().files().to_pylist()
    return found


def location(table: Path, add: dict[str, Any]) -> str:
    return resolve(str(table), add["path"])


def columns(table: Path, add: dict[str, Any]) -> list[str]:
    names: list[str] = pq.ParquetFile(location(table, add)).schema_arrow.names
    return names


@pytest.mark.deep
def test_files_get_the_form_that_iceberg_needs(
    spark: SparkSession, delta_spark: DeltaSpark, tmp_path: Path
) -> None:
    properties = {"delta.enableDeletionVectors": "true", "delta.enableRowTracking": "true"}
    write(spark.sql(ROWS.format(0, 5)), str(tmp_path), partition_by=["p"], properties=properties)
    delete(spark, str(tmp_path), "id = 3")
    before = rows_of(read_snapshot(spark, str(tmp_path), with_row_tracking=True))
    former = {add["path"] for add in live(tmp_path)}

    result = enable_iceberg_compat(spark, str(tmp_path))

    assert (result.version, result.num_removed_files, result.num_added_files) == (2, 2, 2)
    assert not enable_iceberg_compat(spark, str(tmp_path)).written
    snapshot = DeltaTable(str(tmp_path)).snapshot()
    assert snapshot.properties.iceberg_compat_v2_enabled
    assert not snapshot.properties.deletion_vectors_enabled
    assert bag(rows_of(read_snapshot(spark, str(tmp_path), with_row_tracking=True))) == bag(before)
    for add in live(tmp_path):
        assert add["path"] not in former
        assert add["deletionVector"] is None
        assert dict(add["tags"]) == {"ICEBERG_COMPAT_VERSION": "2"}
        assert columns(tmp_path, add)[:5] == ["id", "a", "m", "ts", "p"]
    delta_spark.sql(f"INSERT INTO delta.`{tmp_path}` {ROWS.format(5, 7)}")
    write(spark.sql(ROWS.format(7, 9)), str(tmp_path))
    ids = sorted(row["id"] for row in delta_spark.sql(f"SELECT id FROM delta.`{tmp_path}`"))
    assert ids == [0, 1, 2, 4, 5, 6, 7, 8]


@pytest.mark.parametrize("version", [1, 2])
def test_files_that_are_written_anew_keep_the_form(
    spark: SparkSession, tmp_path: Path, version: int
) -> None:
    rows = spark.sql(ROWS.format(0, 4))
    rows = rows.drop("a", "m") if version == 1 else rows
    properties = {
        f"delta.enableIcebergCompatV{version}": "true",
        "delta.columnMapping.mode": "name",
        "delta.parquet.compression.codec": "zstd",
    }
    write(rows, str(tmp_path), partition_by=["p"], properties=properties)
    (form,) = {tuple(field_ids(location(tmp_path, add))) for add in live(tmp_path)}
    delete(spark, str(tmp_path), "id IN (1, 3)")
    assert len(live(tmp_path)) == 2
    for add in live(tmp_path):
        path = location(tmp_path, add)
        assert tuple(field_ids(path)) == form
        assert dict(add["tags"] or {}) == ({"ICEBERG_COMPAT_VERSION": "2"} if version > 1 else {})
        assert pq.ParquetFile(path).metadata.row_group(0).column(0).compression == "ZSTD"
        values = pq.ParquetFile(path).read().to_pylist()
        (partition,) = dict(add["partitionValues"]).values()
        assert {row[columns(tmp_path, add)[-1]] for row in values} == {partition}
    assert sorted(r.id for r in read_snapshot(spark, str(tmp_path)).collect()) == [0, 2]


def test_what_is_in_the_way_is_named(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(spark.sql("SELECT 1 AS id, NULL AS nothing"), str(tmp_path))
    with pytest.raises(InvalidArgumentError, match="expected 1 or 2"):
        enable_iceberg_compat(spark, str(tmp_path), 3)
    with pytest.raises(InvalidTableError, match="void"):
        enable_iceberg_compat(spark, str(tmp_path))
    other = tmp_path / "other"
    write(spark.range(2), str(other))
    rewrite = FileRewriter.rewrite

    def slow(self: FileRewriter, *arguments: Any, **named: Any) -> Any:
        write(spark.range(2, 3), str(other))
        return rewrite(self, *arguments, **named)

    monkeypatch.setattr(FileRewriter, "rewrite", slow)
    with pytest.raises(CommitConflictError):
        enable_iceberg_compat(spark, str(other))
    assert len([*other.rglob("*.parquet")]) == len(live(other))
    assert not DeltaTable(str(other)).snapshot().properties.iceberg_compat_v2_enabled
