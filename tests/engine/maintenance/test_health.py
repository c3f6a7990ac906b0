"""The numbers of a table, counted anew from the log's actions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from airflow_delta.engine import LONG, AddFile, DeltaTable, StructField, StructType
from airflow_delta.engine.errors import UnsupportedFeatureError
from airflow_delta.engine.maintenance.health import read_health
from airflow_delta.engine.model.dv_descriptor import DeletionVectorDescriptor
from airflow_delta.engine.snapshot.opening import open_newest
from tests.row_tables import random_table

MB = 1 << 20
DAY_MS = 86_400_000


def test_numbers_are_those_of_the_actions(tmp_path: Path) -> None:
    made = random_table(tmp_path / "t", 9, partition_by=("p",), num_files=9)
    table = made.table
    files = table.snapshot().files().to_pylist()
    health = table.health()
    vectors = [file["deletionVector"] for file in files if file["deletionVector"]]
    assert (health.num_files, health.num_small_files) == (9, 9)
    assert health.size_in_bytes == health.small_bytes == sum(file["size"] for file in files)
    assert health.num_vectors == len(vectors) > 0
    assert health.num_deleted_rows == sum(vector["cardinality"] for vector in vectors)
    log = [path for path in (made.path / "_delta_log").rglob("*") if path.is_file()]
    assert (health.log_files, health.log_bytes) == (len(log), sum(p.stat().st_size for p in log))
    version = table.latest_version()
    assert (health.version, health.commits_since_checkpoint) == (version, version + 1)
    plan = table.optimize(dry_run=True).plan
    assert health.optimize.num_files == len(plan.files) - plan.num_bins
    assert health.optimize.size_in_bytes == plan.size_in_bytes
    assert 0 <= health.age_ms < DAY_MS  # type: ignore[operator]


def test_after_the_operations_there_is_nothing_to_gain(tmp_path: Path) -> None:
    table = random_table(tmp_path / "t", 10, num_files=6).table
    sizes = sum(file["size"] for file in table.snapshot().files().to_pylist())
    table.optimize()
    table.checkpoint()
    health = table.health()
    assert (health.num_files, health.num_deleted_rows, health.num_vectors) == (1, 0, 0)
    assert (health.optimize.num_files, health.checkpoint.num_files) == (0, 0)
    # Each file was removed once, and some with a deletion vector.
    assert (health.num_tombstones, health.tombstone_bytes) == (6, sizes)
    assert health.vacuum.to_dict() == {"files": 0, "bytes": 0, "reason": None}
    later = read_health(
        open_newest(table.storage),
        now_ms=health.timestamp_ms + 8 * DAY_MS,  # type: ignore[operator]
    )
    assert later.vacuum.to_dict() == {"files": 6, "bytes": sizes, "reason": None}
    assert later.age_ms == 8 * DAY_MS


def test_a_file_that_got_a_deletion_vector_is_no_tombstone(tmp_path: Path) -> None:
    schema = StructType((StructField("id", LONG),))
    told = {"delta.enableDeletionVectors": "true"}
    table = DeltaTable.create(str(tmp_path), schema, properties=told)
    vector = DeletionVectorDescriptor("u", "ab^-aqEH.-t@S}K{vb[*k^", 4, 40, 3)
    stats = '{"numRecords":9,"tightBounds":false}'
    first = AddFile("a.parquet", {}, 7, 1, data_change=True, stats=stats)
    transaction = table.transaction("WRITE")
    transaction.add_file(first)
    transaction.commit()
    transaction = table.transaction("DELETE")
    transaction.remove_files(transaction.read_files())
    transaction.add_file(
        AddFile("a.parquet", {}, 7, 1, data_change=True, stats=stats, deletion_vector=vector)
    )
    transaction.commit()
    health = table.health()
    assert (health.num_tombstones, health.num_deleted_rows, health.num_vectors) == (0, 3, 1)


def test_what_is_unknown_has_a_reason(tmp_path: Path) -> None:
    schema = StructType((StructField("id", LONG),))
    table = DeltaTable.create(str(tmp_path), schema)
    path = tmp_path / "_delta_log" / f"{0:020}.json"
    text = path.read_text(encoding="utf-8")
    broken = '"configuration":{"delta.targetFileSize":"many"'
    assert '"configuration":{' in text
    path.write_text(
        text.replace('"configuration":{}', broken + "}").replace(
            '"configuration":{"', broken + ',"'
        ),
        encoding="utf-8",
    )
    health = table.health()
    assert health.optimize.reason == "delta.targetFileSize or the clustering columns can't be read"
    assert health.optimize.num_files is None
    assert health.to_dict()["gains"]["cleanup"]["files"] == 0


def test_a_wrong_partition_value_is_the_reason_why_a_gain_is_unknown(tmp_path: Path) -> None:
    schema = StructType((StructField("id", LONG), StructField("p", LONG)))
    table = DeltaTable.create(str(tmp_path), schema, partition_by=["p"])
    add = {"path": "p=a/0.parquet", "partitionValues": {"p": "a"}, "size": 5}
    line = json.dumps({"add": {**add, "modificationTime": 1, "dataChange": True}})
    (tmp_path / "_delta_log" / f"{1:020}.json").write_text(f"{line}\n", encoding="utf-8")
    health = table.health()
    assert (health.num_files, health.size_in_bytes, health.num_small_files) == (1, 5, 1)
    assert health.optimize.num_files is None
    assert "the partition column 'p'" in str(health.optimize.reason)


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        ({"delta.enableIcebergCompatV2": "true"}, "feature icebergCompatV2"),
        (
            {"delta.parquet.compression.codec": "lzo"},
            "codec is 'lzo', which the engine can't write",
        ),
    ],
)
def test_what_optimize_refuses_is_no_gain(
    tmp_path: Path, properties: dict[str, str], reason: str
) -> None:
    schema = StructType((StructField("id", LONG),))
    table = DeltaTable.create(str(tmp_path), schema, properties=properties)
    transaction = table.transaction("WRITE", enforces=["icebergCompatV2"])
    for number in range(5):
        stats = '{"numRecords":1}'
        transaction.add_file(
            AddFile(f"{number}.parquet", {}, 1000, 1, data_change=True, stats=stats)
        )
    transaction.commit()
    gain = table.health().optimize
    assert (gain.num_files, gain.size_in_bytes) == (None, None)
    assert reason in str(gain.reason)
    with pytest.raises(UnsupportedFeatureError, match=reason):
        table.optimize()


@pytest.mark.parametrize("size", [1, 40 * MB])
def test_the_target_size_says_what_is_small(tmp_path: Path, size: int) -> None:
    schema = StructType((StructField("id", LONG),))
    told = {"delta.targetFileSize": "64mb"}
    table = DeltaTable.create(str(tmp_path), schema, properties=told)
    transaction = table.transaction("WRITE")
    transaction.add_file(AddFile("a.parquet", {}, size, 1, data_change=True))
    transaction.commit()
    assert table.health().num_small_files == (1 if size == 1 else 0)
