from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64

from airflow_delta.engine import AddFile, DeltaTable
from airflow_delta.engine.deletion_vectors import roaring, z85
from airflow_delta.engine.model.dv_descriptor import DeletionVectorDescriptor
from airflow_delta.engine.model.schema import LONG, StructField, StructType
from airflow_delta.spark import read_snapshot
from airflow_delta.spark.deleted_rows import without_deleted_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EDGES = [0, 63, 64, 65_535, 65_536, 131_071, 199_999]


def test_rows_go_by_file_and_position(spark: SparkSession) -> None:
    rng = random.Random(1)
    deleted = {
        0: np.array(EDGES, dtype=np.int64),
        2: np.array(sorted(rng.sample(range(200_000), 50_000)), dtype=np.int64),
        3: np.array([], dtype=np.int64),
    }
    rows = spark.range(4).withColumnRenamed("id", "number")
    rows = rows.crossJoin(spark.range(200_000).withColumnRenamed("id", "row_index"))
    kept = without_deleted_rows(spark, rows, deleted).select("number", "row_index").toArrow()
    for number in range(4):
        mask = np.ones(200_000, dtype=bool)
        mask[deleted.get(number, [])] = False
        found = kept.filter(pa.compute.equal(kept["number"], number))["row_index"].to_pylist()
        assert sorted(found) == np.flatnonzero(mask).tolist()


def test_positions_beyond_32_bits(spark: SparkSession) -> None:
    far = [2**40, 2**40 + 1, 2**40 + 65_536]
    rows = spark.createDataFrame([(7, position) for position in far], "number long, row_index long")
    kept = without_deleted_rows(spark, rows, {7: np.array([far[0], far[2]], dtype=np.int64)})
    assert [row.row_index for row in kept.collect()] == [far[1]]


@pytest.mark.parametrize("predicate", [None, "n >= 150000", "n = 65536"])
def test_positions_hold_whatever_row_groups_are_skipped(
    spark: SparkSession, tmp_path: Path, predicate: str | None
) -> None:
    table = str(tmp_path)
    DeltaTable.create(
        table,
        StructType((StructField("n", LONG),)),
        properties={"delta.enableDeletionVectors": "true"},
    )
    numbers = pa.table({"n": range(200_000)})
    for name in ("masked.parquet", "plain.parquet"):
        pq.write_table(numbers, tmp_path / name, row_group_size=10_000)
    size = (tmp_path / "plain.parquet").stat().st_size
    data = roaring.serialize(BitMap64(EDGES))
    inline = z85.encode(data + bytes(-len(data) % 4))
    vector = DeletionVectorDescriptor("i", inline, None, len(data), len(EDGES))
    transaction = DeltaTable(table).transaction("WRITE")
    for name, deletion_vector in (("masked.parquet", vector), ("plain.parquet", None)):
        transaction.add_file(
            AddFile(
                name,
                {},
                size,
                0,
                data_change=True,
                stats='{"numRecords":200000}',
                deletion_vector=deletion_vector,
            )
        )
    transaction.commit()
    rows = [
        n for n in range(200_000) if predicate is None or eval(predicate.replace(" = ", " == "))
    ]
    want = sorted(rows + [n for n in rows if n not in EDGES])
    found = read_snapshot(spark, table, predicate=predicate).toArrow()["n"].to_pylist()
    assert sorted(found) == want
