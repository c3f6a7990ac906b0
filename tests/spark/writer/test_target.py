from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import InvalidTableError, UnsupportedFeatureError
from airflow_delta.spark import read_snapshot, write
from airflow_delta.spark.writer.request import WriteRequest
from airflow_delta.spark.writer.target import new_target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def request(table: Path, mode: str = "append", **properties: str) -> WriteRequest:
    return WriteRequest(DeltaTable(str(table)), mode, properties=properties)


def removals(table: Path, version: int) -> list[dict[str, Any]]:
    """The ``remove`` actions of a commit."""
    text = (table / "_delta_log" / f"{version:020}.json").read_text()
    return [action["remove"] for action in map(json.loads, text.splitlines()) if "remove" in action]


def test_an_overwrite_removes_the_logical_files_as_they_were_added(
    spark: SparkSession, tmp_path: Path
) -> None:
    for day in ("a b", None):
        data = pa.table({"n": [1], "day": pa.array([day], pa.string())})
        write_deltalake(tmp_path, data, mode="append", partition_by=["day"])
    adds = DeltaTable(str(tmp_path)).snapshot().files().to_pylist()
    rows = spark.sql("SELECT 2L AS n, 'c' AS day")
    result = write(rows, str(tmp_path), mode="overwrite")
    removed = removals(tmp_path, result.version)
    assert {(r["path"], r["size"]) for r in removed} == {(a["path"], a["size"]) for a in adds}
    for remove in removed:
        (add,) = (add for add in adds if add["path"] == remove["path"])
        assert remove["partitionValues"] == dict(add["partitionValues"])
        assert remove["extendedFileMetadata"]
        assert remove["dataChange"]


def test_the_deletion_vector_is_part_of_what_is_removed(
    spark: SparkSession, golden_copy: Callable[[str], Path]
) -> None:
    table = golden_copy("dat-deletion_vectors")
    (add,) = DeltaTable(str(table)).snapshot().files().to_pylist()
    rows = read_snapshot(spark, str(table)).limit(1)
    result = write(rows, str(table), mode="overwrite")
    (remove,) = removals(table, result.version)
    kept = {name: value for name, value in add["deletionVector"].items() if value is not None}
    assert remove["deletionVector"] == kept


def test_overwrites_keep_the_row_ids_of_the_rows_that_they_copy(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = spark.sql("SELECT id, id % 2 AS p FROM range(8)").coalesce(1)
    tracking = {"delta.enableRowTracking": "true"}
    write(rows, str(tmp_path), partition_by=["p"], properties=tracking)

    def ids() -> dict[int, int]:
        frame = read_snapshot(spark, str(tmp_path), with_row_tracking=True)
        return dict(frame.select("id", "_row_id").collect())

    before = ids()
    write(rows.where("id = 2"), str(tmp_path), "overwrite", replace_where="id = 2")
    after = ids()
    assert after.pop(2) not in before.values()
    assert after == {number: row_id for number, row_id in before.items() if number != 2}
    write(rows.where("p = 1"), str(tmp_path), "overwrite", partition_overwrite="dynamic")
    write(rows, str(tmp_path), "overwrite")
    tags = [info.raw["tags"] for info in DeltaTable(str(tmp_path)).history()]
    assert tags == [{"delta.rowTracking.preserved": "true"}] * 4


def test_what_a_new_table_cannot_be(spark: SparkSession, tmp_path: Path) -> None:
    nested = spark.sql("SELECT named_struct('a', 1) AS s, 1 AS n")
    by_struct = WriteRequest(DeltaTable(str(tmp_path)), "append", ("s",))
    with pytest.raises(InvalidTableError, match="only primitive types can partition a table"):
        new_target(by_struct, nested)
    with pytest.raises(UnsupportedFeatureError, match="icebergCompatV3"):
        new_target(request(tmp_path, **{"delta.enableIcebergCompatV3": "true"}), nested)
    with pytest.raises(InvalidTableError, match="no type of the Delta protocol"):
        new_target(request(tmp_path), spark.sql("SELECT interval 1 day AS i"))
    with pytest.raises(InvalidTableError, match=r"set delta\.columnMapping"):
        new_target(request(tmp_path), spark.sql("SELECT 1 AS `x y`"))
    assert list(tmp_path.iterdir()) == []
