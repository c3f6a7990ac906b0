"""Cleanups of logs along all axes: what must go goes, and what stays can be read.

The oracle: every version that the plan says can be read gives what the history comes to, and every other
one is refused with the earliest that can. The files that are left are those that the
specification lets stay.
"""

from __future__ import annotations

import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.maintenance.metadata_cleanup.execution import execute_metadata_cleanup
from tests.cleanup_tables import (
    CUTOFF,
    LAST,
    Log,
    check_versions,
    left,
    made,
    planned,
)

# None, one and two complete checkpoints: before the cut-off, at it, after it.
CHECKPOINTS = [(), (3,), (5,), (7,), (3, 5), (3, 7), (5, 7), (2, 4)]
# Without the feature; with the boundary before, between and after the checkpoints.
PROTECTED = [0, 3, 4, 5, 6]
AXES = [
    ("classic", False, False),
    ("classic", True, True),
    ("parts", True, False),
    ("v2 json", True, False),
    ("v2 of the classic name", False, True),
]


@pytest.mark.parametrize("checkpoints", CHECKPOINTS, ids=str)
@pytest.mark.parametrize(("form", "extras", "timestamps"), AXES)
def test_of_what_is_kept_nothing_is_lost(
    form: str, extras: bool, timestamps: bool, checkpoints: tuple[int, ...]
) -> None:
    for protected in (None, 6):
        check(Log(checkpoints, form, extras, timestamps, protected))


@pytest.mark.parametrize("checkpoints", [(3,), (3, 5), (5, 7), (2, 4)], ids=str)
def test_the_boundary_may_be_anywhere(checkpoints: tuple[int, ...]) -> None:
    for protected in PROTECTED:
        check(Log(checkpoints, "v2 parquet", True, False, protected))


@pytest.mark.parametrize("checkpoints", [(5,), (1, 5), (3, 5)], ids=str)
@pytest.mark.parametrize("unknown", [range(2, 4), range(3, 5), range(1, 7)], ids=str)
def test_versions_of_unknown_protocols_go_with_all_or_not_at_all(
    unknown: range, checkpoints: tuple[int, ...]
) -> None:
    for protected in (2, 5, 6):
        check(Log(checkpoints, protected=protected, unknown=unknown))


def check(log: Log) -> None:
    """Clean up, and look at everything."""
    with made(log) as table:
        before = table.files()
        times = times_of(table.delta())
        plan = planned(table.delta())
        assert (plan.cutoff.commit, plan.checkpoint) == (CUTOFF, log.start)
        result = execute_metadata_cleanup(table.storage, plan)
        after = table.files()
        start = 0 if log.start is None else log.start
        expected = before.keys()
        if log.start is not None:
            expected = left(before, start, protected=log.is_protected)
        assert after.keys() == expected
        gone = before.keys() - after.keys()
        assert plan.num_files == len(gone)
        assert plan.size_in_bytes == sum(len(before[path]) for path in gone)
        assert {path for group in plan.deletes for path in group.paths} == gone
        assert (result.num_deleted, result.num_spared) == (len(gone), 0)
        # All else is what it was, but for the hint.
        assert all(
            content == before[path] for path, content in after.items() if "_last" not in path
        )
        looked_at = {start - 1, start, LAST, *log.checkpoints} - {-1}
        check_versions(table.delta, log, plan, versions=sorted(looked_at))
        assert times_of(table.delta()) == times
        assert not planned(table.delta()).needed


def times_of(delta: DeltaTable) -> list[int]:
    """The times of the versions from the cut-off on."""
    timeline = delta.snapshot().timeline
    return [timeline.timestamp_ms(version) for version in range(CUTOFF, LAST + 1)]
