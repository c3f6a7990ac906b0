"""What the stages make of whole transactions, as another reader sees it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable as Peer

from airflow_delta.engine import AddFile, DeltaTable
from airflow_delta.engine.errors import MetadataChangedError
from tests.engine.transaction.prepare.attempts import counted, protocol, schema, table
from tests.log_builder import add, metadata, write_commit

TRACKED = ("rowTracking", "domainMetadata")
TIMED = {"delta.enableInCommitTimestamps": "true"}


def data_file(root: Path, name: str, *ids: int) -> AddFile:
    """A data file with a column ``id``."""
    pq.write_table(pa.table({"id": pa.array(ids, pa.int64())}), root / name)
    size = (root / name).stat().st_size
    return AddFile(name, {}, size, 1, True, stats=counted(len(ids)))


def append(root: Path, *files: AddFile, **options: Any) -> None:
    transaction = DeltaTable(str(root)).transaction("WRITE", **options)
    transaction.add_files(files)
    transaction.commit()


def rows(root: Path) -> list[int]:
    return sorted(Peer(root).to_pyarrow_table()["id"].to_pylist())


def test_a_table_with_row_ids_and_in_commit_timestamps_is_read_by_the_peer(tmp_path: Path) -> None:
    write_commit(
        tmp_path,
        0,
        {"commitInfo": {"inCommitTimestamp": 1}},
        protocol(*TRACKED, "inCommitTimestamp"),
        metadata(schema=schema(id="long"), configuration=TIMED),
    )
    append(tmp_path, data_file(tmp_path, "a", 1, 2, 3), data_file(tmp_path, "b", 4))
    append(tmp_path, data_file(tmp_path, "c", 5, 6))
    assert rows(tmp_path) == [1, 2, 3, 4, 5, 6]
    snapshot = DeltaTable(str(tmp_path)).snapshot()
    assert snapshot.row_tracking is not None
    assert snapshot.row_tracking.high_water_mark == 5
    times = [DeltaTable(str(tmp_path)).snapshot(version).timestamp_ms for version in (0, 1, 2)]
    assert times == sorted(set(times))


def test_rows_that_came_meanwhile_push_ids_up(tmp_path: Path) -> None:
    table(tmp_path, TRACKED, schema=schema(id="long"))
    slow = DeltaTable(str(tmp_path)).transaction("WRITE")
    slow.add_file(data_file(tmp_path, "slow", 1, 2))
    append(tmp_path, data_file(tmp_path, "fast", 3, 4, 5))
    made = slow.commit()
    assert (made.version, made.attempts) == (2, 2)
    files = DeltaTable(str(tmp_path)).snapshot().files().to_pylist()
    assert {f["path"]: (f["baseRowId"], f["defaultRowCommitVersion"]) for f in files} == {
        "fast": (0, 1),
        "slow": (3, 2),
    }
    assert rows(tmp_path) == [1, 2, 3, 4, 5]


def test_two_inserts_of_identity_values_at_a_time_conflict(tmp_path: Path) -> None:
    columns = schema(id="long")
    columns["fields"][0]["metadata"] = {"delta.identity.start": 1, "delta.identity.step": 1}
    table(tmp_path, ("identityColumns",), schema=columns)

    def insert(name: str, furthest: int) -> Any:
        transaction = DeltaTable(str(tmp_path)).transaction("WRITE", enforces=["identityColumns"])
        transaction.add_file(data_file(tmp_path, name, furthest))
        transaction.use_identity_values("id", furthest)
        return transaction

    slow, fast = insert("slow", 1), insert("fast", 1)
    fast.commit()
    with pytest.raises(MetadataChangedError):
        slow.commit()
    insert("again", 2).commit()
    assert rows(tmp_path) == [1, 2]
    field = DeltaTable(str(tmp_path)).snapshot().schema.field("id")
    assert field is not None
    assert field.metadata["delta.identity.highWaterMark"] == 2


def test_timestamps_begin_with_the_version_that_was_won(
    tmp_path: Path,
) -> None:
    table(tmp_path, ("inCommitTimestamp",))
    transaction = DeltaTable(str(tmp_path)).transaction("SET TBLPROPERTIES")
    current = DeltaTable(str(tmp_path)).snapshot().metadata
    transaction.set_metadata(replace(current, configuration=TIMED))
    far = 4_000_000_000_000  # a file from a clock that is far ahead
    write_commit(tmp_path, 1, add("theirs"), modified_ms=far)
    made = transaction.commit()
    assert made.version == 2
    assert made.timestamp_ms > far
    stored = DeltaTable(str(tmp_path)).snapshot().metadata.configuration
    assert stored["delta.inCommitTimestampEnablementVersion"] == "2"
    assert stored["delta.inCommitTimestampEnablementTimestamp"] == str(made.timestamp_ms)
