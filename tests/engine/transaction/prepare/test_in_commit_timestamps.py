"""Where in-commit timestamps begin: RFC in-commit-timestamps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import TimestampOutOfRangeError
from airflow_delta.engine.model.actions import Protocol
from tests.engine.transaction.prepare.attempts import (
    NOW,
    attempt,
    file,
    first_attempt,
    table,
    with_properties,
    write,
)
from tests.log_builder import add, write_commit

FEATURE = ("inCommitTimestamp",)
SUPPORTED = Protocol(1, 7, None, frozenset(FEATURE))
ON = {"delta.enableInCommitTimestamps": "true"}
VERSION = "delta.inCommitTimestampEnablementVersion"
TIMESTAMP = "delta.inCommitTimestampEnablementTimestamp"


def configuration(prepared: Any) -> dict[str, str]:
    return dict(prepared.context.metadata.configuration)


def info(timestamp_ms: int) -> dict[str, Any]:
    return {"commitInfo": {"inCommitTimestamp": timestamp_ms}}


def turned_on_late(root: Path) -> int:
    """A table that gets in-commit timestamps with version 3, and their first one."""
    table(root, FEATURE)
    for version in (1, 2):
        write_commit(root, version, add(f"f{version}"), modified_ms=NOW + version * 1000)
    on = with_properties(root, delta_enableInCommitTimestamps="true")
    write(root, attempt(root, metadata=on, timestamp_ms=NOW + 10_000))
    return NOW + 10_000


def test_the_commit_that_turns_them_on_says_so(tmp_path: Path) -> None:
    first = turned_on_late(tmp_path)
    stored = DeltaTable(str(tmp_path)).snapshot().metadata.configuration
    assert stored == {**ON, VERSION: "3", TIMESTAMP: str(first)}


def test_history_and_time_travel_follow_the_boundary(tmp_path: Path) -> None:
    first = turned_on_late(tmp_path)
    write(tmp_path, attempt(tmp_path, adds=(file("later"),), timestamp_ms=first + 500))
    delta = DeltaTable(str(tmp_path))
    times = [each.timestamp_ms for each in delta.history()]
    assert len(times) == 5
    # What the reference says: below the boundary file times count, from there on the commits'.
    expected = {NOW: 0, NOW + 1000: 1, NOW + 1999: 1, NOW + 2000: 2, first - 1: 2}
    expected |= {first: 3, first + 499: 3, first + 500: 4}
    assert {moment: delta.version_at(moment) for moment in expected} == expected
    for moment in (NOW - 1, first + 501):
        with pytest.raises(TimestampOutOfRangeError):
            delta.version_at(moment)
    snapshots = [delta.snapshot(version) for version in range(5)]
    assert [snapshot.timestamp_ms for snapshot in snapshots] == [
        NOW,
        NOW + 1000,
        NOW + 2000,
        first,
        first + 500,
    ]


def test_each_attempt_records_its_own_version_and_time(tmp_path: Path) -> None:
    table(tmp_path, FEATURE)
    on = with_properties(tmp_path, delta_enableInCommitTimestamps="true")
    lost = attempt(tmp_path, metadata=on, timestamp_ms=NOW + 5)
    assert configuration(lost) == {**ON, VERSION: "1", TIMESTAMP: str(NOW + 5)}
    write_commit(tmp_path, 1, add("theirs"))
    won = attempt(tmp_path, metadata=on, timestamp_ms=NOW + 9)
    assert configuration(won) == {**ON, VERSION: "2", TIMESTAMP: str(NOW + 9)}


def test_a_table_that_has_them_from_the_start_says_nothing(tmp_path: Path) -> None:
    table(tmp_path / "like", FEATURE, configuration=ON)
    like = DeltaTable(str(tmp_path / "like")).snapshot().metadata
    assert configuration(first_attempt(tmp_path, SUPPORTED, like)) == ON


def test_other_commits_keep_the_boundary(tmp_path: Path) -> None:
    first = turned_on_late(tmp_path)
    boundary = {VERSION: "3", TIMESTAMP: str(first)}
    appended = attempt(tmp_path, adds=(file(),))
    assert appended.actions.metadata is None
    changed = attempt(tmp_path, metadata=with_properties(tmp_path, mine="1"))
    assert configuration(changed) == {**ON, **boundary, "mine": "1"}
    # Staged metadata without it, or with another one, don't matter.
    without = {f"delta_{name.removeprefix('delta.')}": None for name in boundary}
    other = {f"delta_{name.removeprefix('delta.')}": "7" for name in boundary}
    for staged in (without, other):
        kept = attempt(tmp_path, metadata=with_properties(tmp_path, **staged))
        assert configuration(kept) == {**ON, **boundary}


def test_the_commit_that_turns_them_off_drops_the_boundary(tmp_path: Path) -> None:
    turned_on_late(tmp_path)
    off = with_properties(tmp_path, delta_enableInCommitTimestamps="false")
    write(tmp_path, attempt(tmp_path, metadata=off, timestamp_ms=NOW + 20_000))
    snapshot = DeltaTable(str(tmp_path)).snapshot()
    assert snapshot.metadata.configuration == {"delta.enableInCommitTimestamps": "false"}
    # Turned on again, they begin anew.
    on = with_properties(tmp_path, delta_enableInCommitTimestamps="true")
    again = attempt(tmp_path, metadata=on, timestamp_ms=NOW + 30_000)
    assert configuration(again) == {**ON, VERSION: "5", TIMESTAMP: str(NOW + 30_000)}


def test_support_alone_can_turn_them_on(tmp_path: Path) -> None:
    table(tmp_path, ("domainMetadata",), configuration=ON)
    supported = Protocol(3, 7, frozenset(), frozenset({"domainMetadata", "inCommitTimestamp"}))
    prepared = attempt(tmp_path, protocol=supported, timestamp_ms=NOW + 5)
    assert prepared.actions.metadata == prepared.context.metadata
    assert configuration(prepared) == {**ON, VERSION: "1", TIMESTAMP: str(NOW + 5)}


def test_a_boundary_from_the_first_version_on_stays_unsaid(tmp_path: Path) -> None:
    table(tmp_path, FEATURE, info(NOW), configuration=ON)
    staged = with_properties(tmp_path, mine="1")
    assert configuration(attempt(tmp_path, metadata=staged)) == {**ON, "mine": "1"}
