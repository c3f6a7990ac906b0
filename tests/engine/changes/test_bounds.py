"""Ends of ranges: versions, times, and everything outside the log."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import (
    ChangesNotAvailableError,
    InvalidArgumentError,
    TimestampOutOfRangeError,
    VersionNotFoundError,
)
from tests.engine.changes.logs import FEED_ON, PROTOCOL
from tests.log_builder import add, commit_path, metadata, write_commit


def at(milliseconds: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=milliseconds)


@pytest.fixture
def table(tmp_path: Path) -> DeltaTable:
    """Versions 0 to 3, at 1, 2, 3 and 4 seconds after the epoch."""
    for version in range(4):
        first = [PROTOCOL, metadata(configuration=FEED_ON)] if version == 0 else []
        action = add(f"f{version}")
        write_commit(tmp_path, version, *first, action, modified_ms=1000 * (version + 1))
    return DeltaTable(str(tmp_path))


@pytest.mark.parametrize(
    ("start", "end", "versions"),
    [
        (1, 2, (1, 2)),
        (3, None, (3, 3)),
        (at(2000), at(3000), (1, 2)),
        (at(1999), at(2999), (1, 1)),
        (at(2001), at(3999), (2, 2)),
        (at(0), at(4000), (0, 3)),
        (at(4000), None, (3, 3)),
        ("1970-01-01T00:00:02Z", "1970-01-01T01:00:03+01:00", (1, 2)),
        (1, at(3500), (1, 2)),
        (at(1500), 3, (1, 3)),
    ],
)
def test_both_ends_belong_to_the_range(
    table: DeltaTable,
    start: int | datetime | str,
    end: int | datetime | str | None,
    versions: tuple[int, int],
) -> None:
    plan = table.changes(start, end)
    assert (plan.start, plan.end) == versions
    assert sorted(set(plan.files["_commit_version"].to_pylist())) == list(
        range(versions[0], versions[1] + 1)
    )


def test_consecutive_periods_tell_every_commit_once(table: DeltaTable) -> None:
    found = [
        version
        for begin in range(500, 3500, 1000)
        for version in table.changes(at(begin), at(begin + 999))
        .files["_commit_version"]
        .to_pylist()
    ]
    assert found == [0, 1, 2]


@pytest.mark.parametrize(("start", "end"), [(4, None), (0, 4), (4, 9)])
def test_versions_to_come_are_refused(table: DeltaTable, start: int, end: int | None) -> None:
    with pytest.raises(VersionNotFoundError, match="the newest is 3") as caught:
        table.changes(start, end)
    assert (caught.value.earliest, caught.value.latest) == (0, 3)


@pytest.mark.parametrize(("start", "end"), [(2, 1), (at(3000), at(2000)), (3, at(1000))])
def test_a_range_that_ends_before_it_starts_is_refused(
    table: DeltaTable, start: int | datetime, end: int | datetime
) -> None:
    with pytest.raises(InvalidArgumentError, match="after its end"):
        table.changes(start, end)


def test_times_with_no_commit_between_them_are_refused(table: DeltaTable) -> None:
    with pytest.raises(TimestampOutOfRangeError) as caught:
        table.changes(at(2001), at(2999))
    first = "no version was committed from 1970-01-01T00:00:02.001Z to 1970-01-01T00:00:02.999Z: "
    assert caught.value.message.startswith(first)
    assert (caught.value.earliest_ms, caught.value.latest_ms) == (2000, 3000)


@pytest.mark.parametrize(("start", "end"), [(at(4001), None), (0, at(4001)), (0, at(999))])
def test_times_outside_the_log_are_refused(
    table: DeltaTable, start: int | datetime, end: datetime | None
) -> None:
    with pytest.raises(TimestampOutOfRangeError, match=r"T00:00:01.000Z .*T00:00:04.000Z "):
        table.changes(start, end)


@pytest.mark.parametrize("start", [-1, True, 2**64])
def test_what_is_no_version_is_refused(table: DeltaTable, start: int) -> None:
    with pytest.raises(InvalidArgumentError, match="version"):
        table.changes(start)


def test_a_time_without_an_offset_is_refused(table: DeltaTable) -> None:
    with pytest.raises(InvalidArgumentError, match="offset"):
        table.changes("1970-01-01T00:00:02")


@pytest.fixture
def cleaned(table: DeltaTable, tmp_path: Path) -> DeltaTable:
    """The same, with a checkpoint of version 2 and without the commits before it."""
    table.checkpoint(2)
    commit_path(tmp_path, 0).unlink()
    commit_path(tmp_path, 1).unlink()
    return DeltaTable(str(tmp_path))


def test_cleaned_commits_are_refused_with_what_is_left(cleaned: DeltaTable) -> None:
    assert cleaned.changes(2).files["path"].to_pylist() == ["f2", "f3"]
    with pytest.raises(ChangesNotAvailableError, match="from 2 to 3") as caught:
        cleaned.changes(1, 3)
    facts = caught.value
    assert (facts.start, facts.end, facts.earliest, facts.latest) == (1, 3, 2, 3)


def test_a_time_before_the_commits_that_are_left_is_refused(cleaned: DeltaTable) -> None:
    assert cleaned.changes(at(3000)).start == 2
    with pytest.raises(TimestampOutOfRangeError, match="version 2"):
        cleaned.changes(at(2500))


def test_the_version_of_a_checkpoint_needs_its_commit(cleaned: DeltaTable, tmp_path: Path) -> None:
    commit_path(tmp_path, 2).unlink()
    assert cleaned.changes(3).files["path"].to_pylist() == ["f3"]
    with pytest.raises(ChangesNotAvailableError, match="from 3 to 3"):
        cleaned.changes(2)
    commit_path(tmp_path, 3).unlink()
    with pytest.raises(ChangesNotAvailableError, match="no commit file"):
        cleaned.changes(2)
