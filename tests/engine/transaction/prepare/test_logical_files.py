"""What the files of a commit do to those of the table, at every attempt."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_delta.engine import AddFile, DeltaTable, OptimisticTransaction, RemoveFile
from airflow_delta.engine.errors import ConcurrentDeleteDeleteError, ConstraintViolationError
from airflow_delta.engine.log.version_checksum import VersionChecksum, write_checksum
from airflow_delta.engine.model.dv_descriptor import DeletionVectorDescriptor
from airflow_delta.engine.model.schema import LONG, StructField, StructType
from airflow_delta.engine.snapshot.state import LogState
from tests.engine.transaction.prepare.attempts import (
    attempt,
    file,
    first_attempt,
    table,
    tombstone,
    write,
)
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
    with pytest.raises(ConstraintViolationError, match=f"such as '{path}' with no deletion vector"):
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
    with pytest.raises(ConstraintViolationError, match=f"such as '{path}' with {named}"):
        removal(tmp_path, path, vector=vector).commit()
    removal(tmp_path, "f", vector=VECTOR).commit()
    assert live(tmp_path) == {"plain"}


def test_an_absolute_path_may_be_spelt_otherwise(tmp_path: Path) -> None:
    write_table(tmp_path, [add("file:///elsewhere/a@b")])
    removal(tmp_path, "/elsewhere/a%40b").commit()
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
    with pytest.raises(ConstraintViolationError, match="such as 'f'"):
        transaction.commit()


def added(path: str, **fields: Any) -> AddFile:
    return file(path, stats='{"numRecords":9}', **fields)


def vectors(root: Path) -> None:
    """A table that allows new deletion vectors: ``f`` has one, ``plain`` has none."""
    features = ("deletionVectors",)
    masked = add("f", deletionVector=VECTOR.to_json(), stats='{"numRecords":9}')
    on = {"delta.enableDeletionVectors": "true"}
    table(root, features, masked, add("plain", stats='{"numRecords":9}'), configuration=on)


@pytest.mark.parametrize(
    ("add_", "remove_"),
    [
        (added("f"), tombstone("f", deletion_vector=VECTOR)),
        (added("f", deletion_vector=OTHER), tombstone("f", deletion_vector=VECTOR)),
        (added("plain", deletion_vector=OTHER), tombstone("plain")),
        (added("f", data_change=False), tombstone("f", deletion_vector=VECTOR)),
    ],
)
def test_a_path_is_live_with_one_deletion_vector(
    tmp_path: Path, add_: AddFile, remove_: RemoveFile
) -> None:
    vectors(tmp_path)
    other = tombstone("plain" if add_.path == "f" else "f", deletion_vector=VECTOR)
    other = replace(other, deletion_vector=None) if other.path == "plain" else other
    for removes in ((), (other,)):
        with pytest.raises(
            ConstraintViolationError, match=f"'{add_.path}' .* would be in the table twice"
        ):
            attempt(tmp_path, adds=(added("new"), add_), removes=removes)
    write(tmp_path, attempt(tmp_path, adds=(added("new"), add_), removes=(remove_,)))
    paths = DeltaTable(str(tmp_path)).snapshot().files(columns=["path"])["path"].to_pylist()
    assert sorted(paths) == ["f", "new", "plain"]


def test_a_file_may_be_added_as_it_is_there(tmp_path: Path) -> None:
    vectors(tmp_path)
    for again in (added("plain"), added("f", deletion_vector=VECTOR)):
        write(tmp_path, attempt(tmp_path, adds=(again,)))
        write(tmp_path, attempt(tmp_path, adds=(replace(again, data_change=False),)))
    assert DeltaTable(str(tmp_path)).snapshot().num_files == 2


@pytest.mark.parametrize(
    ("num_files", "looked_at"), [(None, False), (10_000, True), (10_001, False)], ids=str
)
def test_a_blind_append_does_not_wait_for_the_files_of_a_large_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_files: int | None, looked_at: bool
) -> None:
    vectors(tmp_path)
    delta = DeltaTable(str(tmp_path))
    delta.checkpoint()
    checksum = tmp_path / "_delta_log" / f"{0:020}.crc"
    checksum.unlink(missing_ok=True)
    if num_files is not None:
        write_checksum(
            delta.storage, 0, VersionChecksum(table_size_bytes=num_files, num_files=num_files)
        )
    asked: list[Any] = []
    files = LogState.live_adds
    monkeypatch.setattr(
        LogState, "live_adds", lambda self, *a, **k: asked.append(k) or files(self, *a, **k)
    )
    attempt(tmp_path, adds=(added("new"),))
    assert bool(asked) == looked_at
    # Whatever else needs the files makes sure of all.
    for needs in (
        {"adds": (added("f"), added("new", deletion_vector=OTHER))},
        {"adds": (added("f"),), "removes": (tombstone("plain"),)},
        {"adds": (added("f"), added("plain", data_change=False))},
    ):
        with pytest.raises(ConstraintViolationError, match=r"'f' .* would be in the table twice"):
            attempt(tmp_path, **needs)


def test_tables_that_have_no_deletion_vectors_are_not_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table(tmp_path, (), add("f"))
    monkeypatch.setattr(LogState, "live_adds", lambda *_, **__: pytest.fail("not needed"))
    attempt(tmp_path, adds=(file("f"), file("g")))


def test_what_is_added_without_a_change_of_data_was_there(tmp_path: Path) -> None:
    table(tmp_path, (), add("f"))
    attempt(tmp_path, adds=(file("f", data_change=False),))
    new = file("new", data_change=False)
    with pytest.raises(ConstraintViolationError, match="'new' is added with dataChange=false"):
        attempt(tmp_path, adds=(file("f", data_change=False), new))
    attempt(tmp_path, adds=(new,), removes=(tombstone("f", data_change=False),))


def test_a_new_table_has_nothing_to_rearrange(tmp_path: Path) -> None:
    like = DeltaTable(str(table(tmp_path / "like", ()))).snapshot()
    with pytest.raises(ConstraintViolationError, match="is added with dataChange=false"):
        first_attempt(tmp_path, like.protocol, like.metadata, adds=(file(data_change=False),))


def test_what_is_removed_without_a_change_of_data_is_in_another_file(tmp_path: Path) -> None:
    table(tmp_path, (), add("f", stats='{"numRecords":9}'), add("untold"))
    for path in ("f", "untold"):
        gone = (tombstone(path, data_change=False),)
        with pytest.raises(
            ConstraintViolationError, match=f"'{path}' is removed with dataChange=f"
        ):
            attempt(tmp_path, removes=gone)
        attempt(tmp_path, removes=gone, adds=(file("new", data_change=False),))


def test_a_file_without_rows_may_go_without_a_word(tmp_path: Path) -> None:
    all_deleted = replace(VECTOR, cardinality=9)
    table(
        tmp_path,
        ("deletionVectors",),
        add("empty", stats='{"numRecords":0}'),
        add("f", deletionVector=all_deleted.to_json(), stats='{"numRecords":9}'),
        add("rows", deletionVector=VECTOR.to_json(), stats='{"numRecords":9}'),
    )
    purged = (
        tombstone("empty", data_change=False),
        tombstone("f", data_change=False, deletion_vector=all_deleted),
    )
    attempt(tmp_path, removes=purged)
    rows = tombstone("rows", data_change=False, deletion_vector=VECTOR)
    with pytest.raises(ConstraintViolationError, match="'rows' is removed with dataChange=false"):
        attempt(tmp_path, removes=(*purged, rows))


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
