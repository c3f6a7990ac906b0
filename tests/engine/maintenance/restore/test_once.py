"""A restore that is tried again, after its first try has made the commit, or beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import CommitConflictError, InvalidArgumentError
from airflow_delta.engine.maintenance.restore import missing_files as restore_missing
from airflow_delta.engine.transaction import commit_loop
from tests.log_builder import add, commit_path, remove, write_commit, write_table

TRY = ("airflow:lake.restore", 7)


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DeltaTable:
    """Version 0 has ``a``, version 1 has ``b``."""
    monkeypatch.setattr(commit_loop, "pause", lambda _: None)
    monkeypatch.setattr(restore_missing, "find_missing_files", lambda *_: [])
    return DeltaTable(write_table(tmp_path, [add("a")], [remove("a"), add("b")]))


def paths(table: DeltaTable) -> set[str]:
    return set(table.snapshot().files(columns=["path"])["path"].to_pylist())


def test_a_second_try_finds_the_commit_of_the_first(table: DeltaTable) -> None:
    first = table.restore(0, once=TRY)
    assert first.commit is not None
    assert (first.version, first.commit.repeated, first.restored_version) == (2, False, 0)
    write_commit(Path(table.uri), 3, add("c"))
    again = table.restore(0, once=TRY)
    assert again.commit is not None
    assert (again.version, again.commit.repeated, again.restored_version) == (2, True, 0)
    assert again.plan is None
    assert again.metrics == first.metrics
    assert again.metrics["numRestoredFiles"] == 1
    assert again.checkpoint_due, "the first try may have died before it was written"
    assert (table.latest_version(), paths(table)) == (3, {"a", "c"})


def test_another_number_is_another_restore(table: DeltaTable) -> None:
    table.restore(0, once=TRY)
    write_commit(Path(table.uri), 3, add("c"))
    assert table.restore(0, once=(TRY[0], 8)).version == 4
    assert table.restore(2, once=("another", 7)).version == 5
    assert paths(table) == {"a"}


def test_an_identifier_that_restored_another_version_is_refused(table: DeltaTable) -> None:
    table.restore(0, once=TRY)
    with pytest.raises(InvalidArgumentError, match=r"restored version 0: expected version 1"):
        table.restore(1, once=TRY)
    assert table.latest_version() == 2


def test_a_time_that_moves_on_from_try_to_try_is_no_other_restore(table: DeltaTable) -> None:
    first = table.restore(timestamp=1_000_100, once=TRY)
    assert (first.version, first.restored_version) == (2, 0)
    again = table.restore(timestamp=1_000_900, once=TRY)
    assert (again.version, again.restored_version) == (2, None)
    for late in (table.snapshot().timestamp_ms, 10**15):  # that of the restore itself, and beyond
        assert table.restore(timestamp=late, once=TRY).version == 2


def test_a_commit_that_is_gone_still_counts(table: DeltaTable) -> None:
    table.restore(0, once=TRY)
    write_commit(Path(table.uri), 3, add("c"))
    write_commit(Path(table.uri), 4, add("d"))
    table.checkpoint(3)
    for version in range(3):
        commit_path(Path(table.uri), version).unlink()
    again = DeltaTable(table.uri).restore(0, once=TRY)
    assert again.commit is not None
    assert (again.commit.repeated, again.restored_version, again.metrics) == (True, 0, {})


def test_of_two_tries_at_once_one_restores(
    table: DeltaTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    others: list[int | None] = []

    def meanwhile(*_: object) -> list[str]:
        if not others:
            others.append(None)
            others[0] = DeltaTable(table.uri).restore(0, once=TRY).version
        return []

    monkeypatch.setattr(restore_missing, "find_missing_files", meanwhile)
    late = table.restore(0, once=TRY)
    assert others == [2]
    assert late.commit is not None
    assert (late.version, late.commit.repeated, table.latest_version()) == (2, True, 2)


def test_a_conflict_with_somebody_else_stays_one(
    table: DeltaTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    def meanwhile(*_: object) -> list[str]:
        write_commit(Path(table.uri), 2, add("c"))
        return []

    monkeypatch.setattr(restore_missing, "find_missing_files", meanwhile)
    with pytest.raises(CommitConflictError, match="version 2"):
        table.restore(0, once=TRY)
    assert table.latest_version() == 2


def test_a_dry_run_leaves_no_identifier(table: DeltaTable) -> None:
    assert table.restore(0, once=TRY, dry_run=True).commit is None
    assert table.version_of_transaction(*TRY) is None
