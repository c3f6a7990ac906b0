"""Commits that are made once, however often they are tried."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_delta.engine import AddFile, CommitResult, DeltaTable, OptimisticTransaction
from airflow_delta.engine.commit.filesystem import FileSystemCommitter
from airflow_delta.engine.errors import (
    CommitOutcomeUnknownError,
    ConcurrentAppendError,
    ConcurrentTransactionError,
)
from airflow_delta.engine.transaction import commit_loop, once
from tests.log_builder import add, commit_path, write_commit, write_table


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DeltaTable:
    monkeypatch.setattr(commit_loop, "pause", lambda _: None)
    write_table(tmp_path, [])
    return DeltaTable(str(tmp_path))


def write(table: DeltaTable, version: int, *, app: str = "app", path: str = "f") -> CommitResult:
    def stage(txn: OptimisticTransaction) -> dict[str, int]:
        txn.add_file(AddFile(path, {}, 1, 1, data_change=True))
        return {"numFiles": 1}

    return table.commit_once(app, version, "WRITE", stage, user_metadata="u")


def versions(table: DeltaTable) -> int:
    return DeltaTable(table.uri).latest_version()


def test_the_second_try_finds_the_commit_of_the_first(table: DeltaTable) -> None:
    first = write(table, 7)
    assert (first.version, first.repeated, first.attempts) == (1, False, 1)
    second = write(table, 7)
    assert (second.version, second.repeated, second.attempts) == (1, True, 0)
    assert second.timestamp_ms == first.timestamp_ms
    assert (second.num_files_added, versions(table)) == (0, 1)
    info = table.history(1)[0]
    assert (info.operation, info.user_metadata) == ("WRITE", "u")
    assert info.operation_metrics == {"numFiles": "1"}


def test_so_does_one_from_another_process_after_other_commits(table: DeltaTable) -> None:
    write(table, 7)
    write(table, 8, path="g")
    write(table, 7, app="other", path="h")
    again = write(DeltaTable(table.uri), 7)
    assert (again.version, again.repeated, versions(table)) == (1, True, 3)


def test_a_smaller_number_is_no_repetition(table: DeltaTable) -> None:
    """Tasks of older dates may run after those of newer ones."""
    write(table, 7)
    older = write(table, 3, path="g")
    assert (older.version, older.repeated) == (2, False)
    assert [write(table, number).version for number in (7, 3)] == [1, 2]
    assert versions(table) == 2


def test_of_two_tries_at_the_same_time_one_commits(table: DeltaTable) -> None:
    """The other one begins while the first one stages."""
    twins: list[CommitResult] = []

    def stage(txn: OptimisticTransaction) -> None:
        if not twins:
            twins.append(write(DeltaTable(table.uri), 7))
        txn.add_file(AddFile("f", {}, 1, 1, data_change=True))

    result = table.commit_once("app", 7, "WRITE", stage)
    assert (result.version, result.repeated) == (1, True)
    assert (twins[0].version, twins[0].repeated, versions(table)) == (1, False, 1)


def test_another_number_of_the_application_comes_first(table: DeltaTable) -> None:
    staged: list[int | None] = []

    def stage(txn: OptimisticTransaction) -> None:
        if not staged:
            write(DeltaTable(table.uri), 8, path="g")
        staged.append(txn.read_version)
        txn.add_file(AddFile("f", {}, 1, 1, data_change=True))

    result = table.commit_once("app", 7, "WRITE", stage)
    assert (result.version, result.repeated, staged) == (2, False, [0, 1])


def test_a_try_whose_outcome_was_unknown_is_tried_again(
    table: DeltaTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = FileSystemCommitter.commit

    def lost(self: FileSystemCommitter, version: int, data: bytes, *, txn_id: str) -> bool:
        commit(self, version, data, txn_id=txn_id)
        raise CommitOutcomeUnknownError("the answer is lost", version=version, txn_id=txn_id)

    with monkeypatch.context() as patched:
        patched.setattr(FileSystemCommitter, "commit", lost)
        with pytest.raises(CommitOutcomeUnknownError, match="lost"):
            write(table, 7)
    result = write(table, 7)
    assert (result.version, result.repeated, versions(table)) == (1, True, 1)


def test_other_conflicts_are_told(table: DeltaTable, tmp_path: Path) -> None:
    def stage(txn: OptimisticTransaction) -> None:
        txn.read_table()
        txn.add_file(AddFile("f", {}, 1, 1, data_change=True))
        write_commit(tmp_path, 1, add("theirs"))

    with pytest.raises(ConcurrentAppendError, match="version 1"):
        table.commit_once("app", 7, "WRITE", stage)


def test_it_gives_up_at_last(
    table: DeltaTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(once, "_ROUNDS", 3)
    staged: list[int] = []

    def stage(txn: OptimisticTransaction) -> None:
        staged.append(len(staged) + 1)
        write_commit(tmp_path, len(staged), {"txn": {"appId": "app", "version": len(staged)}})
        txn.add_file(AddFile("f", {}, 1, 1, data_change=True))

    with pytest.raises(ConcurrentTransactionError, match="version 3"):
        table.commit_once("app", 99, "WRITE", stage)
    assert staged == [1, 2, 3]


def test_a_commit_whose_file_is_gone_tells_no_time(table: DeltaTable, tmp_path: Path) -> None:
    write(table, 7)
    table.checkpoint()
    for version in (0, 1):
        commit_path(tmp_path, version).unlink()
    result = write(DeltaTable(table.uri), 7)
    assert (result.version, result.timestamp_ms, result.repeated) == (1, None, True)
