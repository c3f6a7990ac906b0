"""A remove must name a live file, at every attempt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_delta.engine import DeltaTable, OptimisticTransaction, RemoveFile
from airflow_delta.engine.errors import ConcurrentDeleteDeleteError, ConstraintViolationError
from airflow_delta.engine.model.dv_descriptor import DeletionVectorDescriptor
from airflow_delta.engine.model.schema import LONG, StructField, StructType
from tests.log_builder import add, commit_path, metadata, remove, write_commit, write_table
from tests.table_builder import FAR_FUTURE_MS

VECTOR = DeletionVectorDescriptor("u", "ab^-aqEH.-t@S}K{vb[*k^", 4, 40, 6)
OTHER = DeletionVectorDescriptor("u", "ab^-aqEH.-t@S}K{vb[*k^", 50, 40, 7)


def removal(root: Path, *paths: str, vector: DeletionVectorDescriptor | None = None) -> Any:
    transaction = DeltaTable(str(root)).transaction("DELETE")
    for path in paths:
        transaction.remove_file(RemoveFile(path, data_change=True, deletion_vector=vector))
    return transaction


def live(root: Path) -> set[str]:
    return set(DeltaTable(str(root)).snapshot().files(columns=["path"])["path"].to_pylist())


def masked_table(root: Path) -> None:
    features = ["deletionVectors"]
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": features,
        "writerFeatures": features,
    }
    masked = add("f", deletionVector=VECTOR.to_json(), stats='{"numRecords":9}')
    write_commit(root, 0, {"protocol": protocol}, metadata(), masked, add("plain"))


def test_a_live_file_is_removed(tmp_path: Path) -> None:
    write_table(tmp_path, [add("f"), add("g")], [add("h")])
    removal(tmp_path, "f", "h").commit()
    assert live(tmp_path) == {"g"}


@pytest.mark.parametrize("path", ["never", "removed", "f%20"])
def test_a_file_that_is_not_live_cannot_be_removed(tmp_path: Path, path: str) -> None:
    write_table(tmp_path, [add("f"), add("removed")], [remove("removed")])
    with pytest.raises(ConstraintViolationError, match=f"no file '{path}' with no deletion vector"):
        removal(tmp_path, "f", path).commit()
    assert not commit_path(tmp_path, 2).exists()


@pytest.mark.parametrize(
    ("path", "vector", "named"),
    [
        ("f", None, "no deletion vector"),
        ("f", OTHER, r"the deletion vector 'uab\^-aqEH\.-t@S}K{vb\[\*k\^@50'"),
        ("plain", VECTOR, r"the deletion vector 'uab\^-aqEH\.-t@S}K{vb\[\*k\^@4'"),
    ],
)
def test_a_remove_repeats_the_deletion_vector_of_the_add(
    tmp_path: Path, path: str, vector: DeletionVectorDescriptor | None, named: str
) -> None:
    masked_table(tmp_path)
    with pytest.raises(ConstraintViolationError, match=f"no file '{path}' with {named}"):
        removal(tmp_path, path, vector=vector).commit()
    removal(tmp_path, "f", vector=VECTOR).commit()
    assert live(tmp_path) == {"plain"}


def test_an_absolute_path_may_be_spelt_otherwise(tmp_path: Path) -> None:
    write_table(tmp_path, [add("file:///elsewhere/a%40b")])
    removal(tmp_path, "/elsewhere/a@b").commit()
    assert live(tmp_path) == set()


def test_a_file_that_a_winner_has_removed_under_another_name_is_a_conflict(tmp_path: Path) -> None:
    write_table(tmp_path, [add("/elsewhere/f")])
    transaction = removal(tmp_path, "/elsewhere/f")
    write_commit(tmp_path, 1, remove("file:///elsewhere/f"))
    with pytest.raises(ConcurrentDeleteDeleteError, match="file:///elsewhere/f"):
        transaction.commit()


def test_one_file_under_two_names_is_one_file(tmp_path: Path) -> None:
    write_table(tmp_path, [add("/elsewhere/f")])
    with pytest.raises(ConstraintViolationError, match="2 remove actions"):
        removal(tmp_path, "/elsewhere/f", "file:///elsewhere/f").commit()


def test_a_new_table_has_nothing_to_remove(tmp_path: Path) -> None:
    schema = StructType((StructField("id", LONG),))
    other = DeltaTable.create(str(tmp_path / "other"), schema).snapshot()
    transaction = OptimisticTransaction(DeltaTable(str(tmp_path / "new")).storage, None, "X")
    transaction.set_protocol(other.protocol)
    transaction.set_metadata(other.metadata)
    transaction.remove_file(RemoveFile("f", data_change=True))
    with pytest.raises(ConstraintViolationError, match="no file 'f'"):
        transaction.commit()


@pytest.mark.parametrize("timestamp", [None, FAR_FUTURE_MS])
def test_a_remove_without_a_time_gets_that_of_the_commit(
    tmp_path: Path, timestamp: int | None
) -> None:
    write_table(tmp_path, [add("f")])
    transaction = DeltaTable(str(tmp_path)).transaction("DELETE")
    transaction.remove_file(RemoveFile("f", data_change=True, deletion_timestamp=timestamp))
    made = transaction.commit()
    tombstones = DeltaTable(str(tmp_path)).snapshot().tombstones()
    assert tombstones["deletionTimestamp"].to_pylist() == [timestamp or made.timestamp_ms]
