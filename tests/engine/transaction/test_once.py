"""Commits that are made once, however often they are tried."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from airflow_delta.engine import AddFile, CommitResult, DeltaTable, OptimisticTransaction
from airflow_delta.engine.commit.filesystem import FileSystemCommitter
from airflow_delta.engine.errors import (
    CommitOutcomeUnknownError,
    ConcurrentAppendError,
    ConcurrentTransactionError,
    MetadataChangedError,
)
from airflow_delta.engine.model.schema import LONG, StructField, StructType
from airflow_delta.engine.transaction import commit_loop, once
from tests.faulty_storage import FaultyStorage
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


@pytest.mark.parametrize("made", [1, 2, 3, 4])
def test_a_repeated_commit_reports_that_a_checkpoint_is_due(tmp_path: Path, made: int) -> None:
    schema = StructType((StructField("id", LONG),))
    every_two = {"delta.checkpointInterval": "2"}
    table = DeltaTable.create(str(tmp_path), schema, properties=every_two)
    firsts = [write(table, number, path=f"f{number}") for number in range(1, made + 1)]
    assert [first.checkpoint_due for first in firsts] == [False, True, False, True][:made]
    again = [write(DeltaTable(table.uri), number) for number in range(1, made + 1)]
    assert [result.checkpoint_due for result in again] == [first.checkpoint_due for first in firsts]
    assert all(result.repeated for result in again)


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


def describe(txn: OptimisticTransaction) -> None:
    txn.set_metadata(replace(txn.base.metadata, description="new"))
    txn.add_file(AddFile("f", {}, 1, 1, data_change=True))


def test_of_two_tries_that_change_the_metadata_one_commits(table: DeltaTable) -> None:
    """The conflict over the metadata is raised first."""
    twins: list[CommitResult] = []

    def stage(txn: OptimisticTransaction) -> None:
        if not twins:
            twins.append(DeltaTable(table.uri).commit_once("app", 7, "WRITE", describe))
        describe(txn)

    result = table.commit_once("app", 7, "WRITE", stage)
    assert (result.version, result.repeated, versions(table)) == (1, True, 1)


def test_a_try_is_found_behind_another_conflict(table: DeltaTable, tmp_path: Path) -> None:
    twins: list[CommitResult] = []

    def stage(txn: OptimisticTransaction) -> None:
        txn.read_table()
        if not twins:
            write_commit(tmp_path, 1, add("theirs"))
            twins.append(write(DeltaTable(table.uri), 7))
        txn.add_file(AddFile("f", {}, 1, 1, data_change=True))

    result = table.commit_once("app", 7, "WRITE", stage)
    assert (result.version, result.repeated, versions(table)) == (2, True, 2)


def test_a_conflict_without_another_try_stays_one(table: DeltaTable) -> None:
    def stage(txn: OptimisticTransaction) -> None:
        DeltaTable(table.uri).alter.set_description("theirs")
        describe(txn)

    with pytest.raises(MetadataChangedError, match="version 1"):
        table.commit_once("app", 7, "WRITE", stage)
    assert versions(table) == 1


def test_a_try_is_found_though_a_checkpoint_has_dropped_its_identifier(tmp_path: Path) -> None:
    """PROTOCOL.md: writers may drop identifiers that are older than the table's retention."""
    expire = {"delta.setTransactionRetentionDuration": "interval 0 seconds"}
    schema = StructType((StructField("id", LONG),))
    table = DeltaTable.create(str(tmp_path), schema, properties=expire)
    write(table, 7)
    table.checkpoint()
    again = DeltaTable(str(tmp_path))
    assert again.snapshot().state.non_file_state.transactions == {}
    result = write(again, 7)
    assert (result.version, result.repeated, versions(table)) == (1, True, 1)


def reads(table: DeltaTable, version: int, **options: bool) -> tuple[CommitResult, int]:
    """Commit, and count the commits that are read for it."""
    delta = DeltaTable(table.uri)
    delta.__dict__["storage"] = storage = FaultyStorage(table.storage)
    delta.transaction("WRITE")
    storage.calls.clear()

    def stage(txn: OptimisticTransaction) -> None:
        txn.add_file(AddFile(f"f{version}", {}, 1, 1, data_change=True))

    result = delta.commit_once("app", version, "WRITE", stage, **options)
    asked = [call.path for call in storage.calls if call.operation == "read_many"]
    return result, sum(len(paths.split(",")) for paths in asked)


def test_a_number_above_the_newest_of_an_ascending_row_is_not_searched_for(
    table: DeltaTable,
) -> None:
    for number in (1, 2, 4):
        write(table, number, path=f"g{number}")
    assert reads(table, 5)[1] == 4
    result, read = reads(table, 6, ascending=True)
    assert (result.version, result.repeated, read) == (5, False, 0)
    result, _ = reads(table, 6, ascending=True)
    assert (result.version, result.repeated) == (5, True)
    # One below it might have been committed.
    assert reads(table, 2, ascending=True)[0].repeated
    assert not reads(table, 3, ascending=True)[0].repeated


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

    def lost(self: FileSystemCommitter, version: int, data: bytes, *, txn_id: str) -> None:
        commit(self, version, data, txn_id=txn_id)
        raise CommitOutcomeUnknownError("the answer is lost", version=version, txn_id=txn_id)

    with monkeypatch.context() as patched:
        patched.setattr(FileSystemCommitter, "commit", lost)
        with pytest.raises(CommitOutcomeUnknownError, match="lost"):
            write(table, 7)
    result = write(table, 7)
    assert (result.version, result.repeated, versions(table)) == (1, True, 1)


def test_other_conflicts_are_raised(table: DeltaTable, tmp_path: Path) -> None:
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


def test_a_commit_whose_file_is_deleted_has_no_time(table: DeltaTable, tmp_path: Path) -> None:
    write(table, 7)
    table.checkpoint()
    for version in (0, 1):
        commit_path(tmp_path, version).unlink()
    result = write(DeltaTable(table.uri), 7)
    assert (result.version, result.timestamp_ms, result.repeated) == (1, None, True)
