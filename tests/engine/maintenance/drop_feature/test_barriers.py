"""What counts as a barrier: a commit that changes nothing, with a checkpoint, whatever it calls itself."""

from __future__ import annotations

import pytest

from airflow_delta.engine.maintenance.backfill.backfilled import open_backfilled
from airflow_delta.engine.maintenance.drop_feature.barriers import BARRIERS, count_missing_barriers
from tests.log_builder import PROTOCOL, add, metadata
from tests.table_builder import Action, MemoryTable, classic_checkpoint, commits, states

EMPTY: list[Action] = [{"commitInfo": {"operation": "Empty Commit", "timestamp": 1}}]
OTHER: list[Action] = [{"commitInfo": {"operation": "Empty Commit"}}, add("x")]


@pytest.mark.parametrize(
    ("last", "missing"),
    [
        ([EMPTY, EMPTY, EMPTY], 0),
        ([EMPTY, OTHER, EMPTY], 2),
        ([EMPTY, EMPTY, OTHER], BARRIERS),
        ([OTHER, EMPTY, EMPTY], 1),
    ],
)
def test_commits_that_only_say_that_they_are_empty_are_no_barriers(
    last: list[list[Action]], missing: int
) -> None:
    history = [[PROTOCOL, metadata()], *last]
    files = commits(history)
    for version, state in enumerate(states(history)):
        files |= classic_checkpoint(state, version)
    with MemoryTable(files) as table:
        base = open_backfilled(table.storage)
        assert count_missing_barriers(table.storage, base, made=0) == missing
