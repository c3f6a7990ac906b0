from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import InvalidTableError, UnsupportedFeatureError
from airflow_delta.engine.model.actions import AddFile
from airflow_delta.spark.writer.target import WriteRequest, existing_target, new_target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def request(table: Path, mode: str = "append", **properties: str) -> WriteRequest:
    return WriteRequest(DeltaTable(str(table)), mode, (), properties, {})


def test_an_overwrite_removes_the_logical_files_as_they_were_added(tmp_path: Path) -> None:
    for day in ("a b", None):
        data = pa.table({"n": [1], "day": pa.array([day], pa.string())})
        write_deltalake(tmp_path, data, mode="append", partition_by=["day"])
    assert existing_target(request(tmp_path)).replaced == []
    removes = existing_target(request(tmp_path, "overwrite")).replaced
    adds = DeltaTable(str(tmp_path)).snapshot().files().to_pylist()
    assert {(r.path, r.size) for r in removes} == {(add["path"], add["size"]) for add in adds}
    for remove in removes:
        (add,) = (add for add in adds if add["path"] == remove.path)
        assert dict(remove.partition_values or {}) == dict(add["partitionValues"])
        assert remove.extended_file_metadata
        assert remove.data_change


def test_the_deletion_vector_is_part_of_what_is_removed(
    tmp_path: Path, golden_copy: Callable[[str], Path]
) -> None:
    table = golden_copy("dat-deletion_vectors")
    (remove,) = existing_target(request(table, "overwrite")).replaced
    (add,) = DeltaTable(str(table)).snapshot().files().to_pylist()
    stored = AddFile.from_json(
        {
            "path": add["path"],
            "partitionValues": {},
            "size": add["size"],
            "modificationTime": 0,
            "dataChange": True,
            "deletionVector": add["deletionVector"],
        },
        "test",
    )
    assert remove.deletion_vector is not None
    assert remove.deletion_vector == stored.deletion_vector


def test_what_a_new_table_cannot_be(spark: SparkSession, tmp_path: Path) -> None:
    nested = spark.sql("SELECT named_struct('a', 1) AS s, 1 AS n")
    by_struct = WriteRequest(DeltaTable(str(tmp_path)), "append", ("s",), {}, {})
    with pytest.raises(InvalidTableError, match="only primitive types can partition a table"):
        new_target(by_struct, nested)
    with pytest.raises(UnsupportedFeatureError, match="checkConstraints"):
        new_target(request(tmp_path, **{"delta.constraints.few": "n < 9"}), nested)
    with pytest.raises(InvalidTableError, match="no type of the Delta protocol"):
        new_target(request(tmp_path), spark.sql("SELECT interval 1 day AS i"))
    # Mapped tables aren't written, so that mapping can't be the advice.
    with pytest.raises(InvalidTableError, match=r"\['x y'\] have .*: rename them in the rows"):
        new_target(request(tmp_path), spark.sql("SELECT 1 AS `x y`"))
    assert list(tmp_path.iterdir()) == []
