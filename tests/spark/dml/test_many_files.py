"""Changes of rows in a table of 100,000 files, of which only those exist that must be looked into."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.model.schema import LONG, StructField, StructType
from airflow_delta.spark import delete, merge, update
from tests.table_builder import commit_file, lines

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.deep

NUM_FILES = 100_000
REAL = (70_000, 70_001, 70_002)
"""The numbers of the files that exist. File n has the rows 3n and 3n + 1."""


@pytest.mark.parametrize("has_vectors", [True, False])
def test_only_files_that_may_have_such_rows_are_opened(
    spark: SparkSession, tmp_path: Path, has_vectors: bool
) -> None:
    table = str(tmp_path)
    write_table(tmp_path, has_vectors=has_vectors)
    keys = "VALUES (210000L), (210001L), (210002L), (210004L) AS keys(id)"
    merged = (
        merge(spark, table, spark.sql(f"SELECT id, 7L AS v FROM {keys}"), "target.id = source.id")
        .when_matched_delete("source.id = 210004")
        .when_matched_update_all()
        .when_not_matched_insert_all()
        .execute()
    )
    assert (merged.num_updated_rows, merged.num_deleted_rows, merged.num_inserted_rows) == (2, 1, 1)
    assert update(spark, table, {"v": "v + 1"}, "id = 210006").num_updated_rows == 1
    for condition, num_files in (
        ("id < 210000", REAL[0]),
        ("id > 210007", NUM_FILES - REAL[-1] - 1),
    ):
        gone = delete(spark, table, condition)
        assert (gone.num_removed_files, gone.num_deleted_rows) == (num_files, 2 * num_files)
    snapshot = DeltaTable(table).snapshot()
    found = snapshot.to_arrow().sort_by("id").to_pylist()
    expected = [(210_000, 7), (210_001, 7), (210_002, 7), (210_003, 0), (210_006, 1), (210_007, 0)]
    assert [(row["id"], row["v"]) for row in found] == expected
    assert not snapshot.verify().differences


def write_table(table: Path, *, has_vectors: bool) -> None:
    """Write the log of the table, as one commit, and the files that exist."""
    schema = StructType((StructField("id", LONG), StructField("v", LONG)))
    properties = {"delta.enableDeletionVectors": str(has_vectors).lower()}
    DeltaTable.create(str(table), schema, properties=properties)
    for number in REAL:
        pq.write_table(
            pa.table({"id": [3 * number, 3 * number + 1], "v": [0, 0]}),
            table / f"{number}.parquet",
        )
    size = (table / f"{REAL[0]}.parquet").stat().st_size
    adds = (
        {
            "path": f"{n}.parquet",
            "partitionValues": {},
            "size": size,
            "modificationTime": 1,
            "dataChange": True,
            "stats": json.dumps(
                {
                    "numRecords": 2,
                    "minValues": {"id": 3 * n, "v": 0},
                    "maxValues": {"id": 3 * n + 1, "v": 0},
                    "nullCount": {"id": 0, "v": 0},
                }
            ),
        }
        for n in range(NUM_FILES)
    )
    commit = lines([{"commitInfo": {"timestamp": 1}}, *({"add": add} for add in adds)])
    (table / commit_file(1)).write_bytes(commit)
