"""Opening the newest version while others commit, and clean up, faster than it is read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from airflow_delta.engine import AddFile, DeltaTable
from airflow_delta.engine.errors import CorruptLogError, VersionNotFoundError
from airflow_delta.engine.log.segment import LogSegment, load_segment
from airflow_delta.engine.maintenance.log_compaction.plan import plan_log_compaction
from airflow_delta.engine.snapshot import segment_commits
from airflow_delta.engine.snapshot.opening import open_newest
from airflow_delta.engine.storage.base import Storage
from tests.engine.log.logs import Hiding, commit
from tests.faulty_storage import Fault, FaultyStorage
from tests.log_builder import PROTOCOL, add, metadata
from tests.table_builder import (
    Action,
    Files,
    MemoryTable,
    classic_checkpoint,
    commit_file,
    commits,
    hint,
    state_of,
    states,
)

HISTORY: list[list[Action]] = [
    [PROTOCOL, metadata(), add("a")],
    [add("b")],
    [add("c"), metadata(configuration={"k": "1"})],
    [add("d")],
    [add("e"), metadata(configuration={"k": "2"})],
]
LAST = 3
"""The newest version when the reader comes; the next one is made meanwhile."""
STATES = states(HISTORY)
BEFORE = {p: c for p, c in commits(HISTORY).items() if p != commit_file(LAST + 1)}
LOGS: dict[str, Files] = {
    "commits": BEFORE,
    "checkpoint": {**BEFORE, **classic_checkpoint(STATES[1], 1), **hint(1)},
}

Ask = Callable[[DeltaTable], Any]


def move_on(table: MemoryTable) -> None:
    """One more version, and nothing left of any other."""
    table.put(classic_checkpoint(STATES[LAST + 1], LAST + 1) | hint(LAST + 1))
    table.put({commit_file(LAST + 1): commits(HISTORY)[commit_file(LAST + 1)]})
    older = [
        path for path in table.files() if "_delta_log/0" in path and f"{LAST + 1:020}" not in path
    ]
    table.storage.delete(older)


def table_over(table: MemoryTable, storage: Storage) -> DeltaTable:
    delta = table.delta()
    delta.__dict__["storage"] = storage
    return delta


def opened(delta: DeltaTable) -> tuple[int, str | None]:
    snapshot = delta.snapshot()
    return snapshot.version, snapshot.metadata.configuration.get("k")


ASKED: dict[str, tuple[Ask, set[Any]]] = {
    "snapshot": (opened, {(LAST, "1"), (LAST + 1, "2")}),
    "plan": (lambda delta: plan_log_compaction(delta.storage).version, {LAST, LAST + 1}),
    "history": (lambda delta: len(delta.history()), {0, 1, LAST + 1}),
    "newest": (lambda delta: len(delta.history(1)), {0, 1}),
}


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("log", LOGS)
def test_whoever_asks_for_the_newest_version_gets_one(log: str, asked: str) -> None:
    ask, answers = ASKED[asked]
    with MemoryTable(LOGS[log]) as table:
        storage = FaultyStorage(table.storage)
        ask(table_over(table, storage))
    for nth in range(1, len(storage.calls) + 1):
        with MemoryTable(LOGS[log]) as table:
            fault = Fault("*", nth, meanwhile=lambda table=table: move_on(table))
            assert ask(table_over(table, FaultyStorage(table.storage, fault))) in answers, nth


@pytest.mark.parametrize("log", LOGS)
def test_a_version_that_was_asked_for_is_not_another_one(log: str) -> None:
    with MemoryTable(LOGS[log]) as table:
        fault = Fault("read_many", 1, meanwhile=lambda: move_on(table))
        delta = table_over(table, FaultyStorage(table.storage, fault))
        with pytest.raises(VersionNotFoundError, match=f"version {LAST} can't be loaded") as caught:
            delta.snapshot(version=LAST)
        assert (caught.value.version, caught.value.latest) == (LAST, LAST + 1)


def test_a_snapshot_keeps_the_version_that_it_has_told(monkeypatch: pytest.MonkeyPatch) -> None:
    # Otherwise it has read the statistics already.
    monkeypatch.setattr(segment_commits, "_WHOLE_BYTES", 0)
    with MemoryTable(BEFORE) as table:
        snapshot = open_newest(table.storage, parsed=True)
        assert snapshot.version == LAST
        move_on(table)
        with pytest.raises(VersionNotFoundError, match=f"version {LAST} can't be loaded"):
            snapshot.files(["stats"])
        assert (snapshot.version, snapshot.metadata.configuration) == (LAST, {"k": "1"})


def test_it_is_tried_so_often_and_no_more() -> None:
    tried: list[LogSegment] = []

    def find(storage: Storage) -> LogSegment:
        """As if what is found were cleaned up each time before it can be read."""
        tried.append(replace(stale, table=storage.root))
        return tried[-1]

    with MemoryTable(BEFORE) as table:
        stale = load_segment(table.storage)
        move_on(table)
        with pytest.raises(VersionNotFoundError, match=f"versions {LAST + 1} to {LAST + 1}"):
            open_newest(table.storage, find=find)
    assert len(tried) == 10


RACES: dict[str, tuple[Ask, Any]] = {
    "snapshot": (lambda delta: state_of(delta.snapshot()), STATES[LAST]),
    "version": (lambda delta: delta.snapshot(version=LAST).version, LAST),
    "history": (lambda delta: [i.version for i in delta.history()], [3, 2, 1, 0]),
    "newest": (lambda delta: [i.version for i in delta.history(2)], [3, 2]),
    "time": (lambda delta: delta.version_at(delta.snapshot().timestamp_ms), LAST),
}


@pytest.mark.parametrize("asked", RACES)
@pytest.mark.parametrize("hidden", range(LAST))
def test_a_commit_that_a_listing_misses_is_no_gap(asked: str, hidden: int) -> None:
    """It was made while the directory was read, and its successor's name was given."""
    ask, expected = RACES[asked]
    with MemoryTable(BEFORE) as table:
        hiding = Hiding(table.storage, commit(hidden))
        assert ask(table_over(table, hiding)) == expected
        assert hiding.left == 0
        always = Hiding(table.storage, commit(hidden), times=float("inf"))
        with pytest.raises(CorruptLogError, match=r"missing|truncated"):
            ask(table_over(table, always))


def test_a_transaction_that_lost_sees_all_winners() -> None:
    with MemoryTable(BEFORE) as table:
        hiding = Hiding(table.storage, commit(LAST + 1))
        hiding.__dict__["capabilities"] = replace(table.storage.capabilities, remote=True)
        transaction = table_over(table, hiding).transaction("WRITE")
        transaction.add_file(AddFile("x", {}, 1, 1, data_change=True))
        later = commits([*HISTORY[: LAST + 1], [add("e")], [add("f")]])
        table.put({commit_file(v): later[commit_file(v)] for v in (LAST + 1, LAST + 2)})
        assert transaction.commit().version == LAST + 3
        assert hiding.left == 0
