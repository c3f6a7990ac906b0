"""A cleanup that runs while a table is read: at every call, the files just listed may vanish.

The reader lists afresh, once, and answers for the version that it had begun with.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from airflow_delta.engine import DeltaTable
from tests.faulty_storage import Fault, FaultyStorage
from tests.log_builder import PROTOCOL, add, metadata, remove
from tests.table_builder import (
    FAR_FUTURE_MS,
    Files,
    MemoryTable,
    classic_checkpoint,
    commit_file,
    commits,
    hint,
    state_of,
    states,
    v2_checkpoint,
)

HISTORY = [
    [PROTOCOL, metadata(), add("a"), add("b")],
    [add("c"), {"txn": {"appId": "app", "version": 1}}],
    [remove("b", deletionTimestamp=FAR_FUTURE_MS), add("d")],
    [add("e")],
    [add("f")],
]
LAST = len(HISTORY) - 1
STATES = [state.visible() for state in states(HISTORY)]

OLD = classic_checkpoint(STATES[1], 1)
OLD_V2 = v2_checkpoint(STATES[1], 1, form="json", sidecars=2)
LOGS: dict[str, Files] = {
    "commits": commits(HISTORY),
    "checkpoint": commits(HISTORY) | OLD | hint(1),
    "v2": commits(HISTORY) | OLD_V2 | hint(1),
}


def clean_up(table: MemoryTable) -> None:
    """Leave the commits from version 3 on, and a checkpoint that stands for what is older."""
    table.put(classic_checkpoint(STATES[3], 3))
    table.put(hint(3))
    gone = [commit_file(version) for version in range(3)]
    table.storage.delete([*gone, *OLD, *OLD_V2])


def read(delta: DeltaTable) -> object:
    snapshot = delta.snapshot()
    return snapshot.version, state_of(snapshot)


def poll(delta: DeltaTable) -> object:
    return delta.latest_version()


@pytest.mark.parametrize("ask", [read, poll])
@pytest.mark.parametrize("log", LOGS)
def test_a_reader_outlives_a_cleanup_at_any_call(
    log: str, ask: Callable[[DeltaTable], object]
) -> None:
    with MemoryTable(LOGS[log]) as table:
        delta = table.delta()
        delta.__dict__["storage"] = storage = FaultyStorage(table.storage)
        expected = ask(delta)
        calls = len(storage.calls)
    assert expected in (LAST, (LAST, STATES[LAST]))
    for nth in range(1, calls + 1):
        with MemoryTable(LOGS[log]) as table:
            delta = table.delta()
            fault = Fault("*", nth, meanwhile=lambda table=table: clean_up(table))
            delta.__dict__["storage"] = FaultyStorage(table.storage, fault)
            assert ask(delta) == expected, f"cleaned up at call {nth} of {calls}"
