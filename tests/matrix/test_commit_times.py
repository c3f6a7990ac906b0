"""Versions by time, for file times that go back, and for in-commit timestamps enabled later."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from airflow_delta.engine.errors import InvalidTableError, TimestampOutOfRangeError
from tests.log_builder import PROTOCOL, add, metadata
from tests.table_builder import Action, MemoryTable, commit_file, commits

FILE_TIMES_MS = [0, 100_000, 50_000, 60_000]
ADJUSTED_MS = [0, 100_000, 100_001, 100_002]
FEATURES: Action = {
    "protocol": {
        "minReaderVersion": 1,
        "minWriterVersion": 7,
        "writerFeatures": ["inCommitTimestamp"],
    }
}
ENABLED_AT, ENABLED_MS = 2, 200_000
IN_COMMIT_MS = {2: ENABLED_MS, 3: ENABLED_MS + 500}
VERSION = {"delta.inCommitTimestampEnablementVersion": str(ENABLED_AT)}
TIME = {"delta.inCommitTimestampEnablementTimestamp": str(ENABLED_MS)}


def set_times(table: MemoryTable) -> MemoryTable:
    for version, modified in enumerate(FILE_TIMES_MS):
        table.storage.set_modified(commit_file(version), modified)
    return table


@pytest.fixture
def by_file() -> Iterator[MemoryTable]:
    history = [[PROTOCOL, metadata(), add("f0")], *([add(f"f{v}")] for v in (1, 2, 3))]
    with MemoryTable(commits(history)) as table:
        yield set_times(table)


def by_commit(enablement: dict[str, str]) -> MemoryTable:
    """In-commit timestamps from version 2 on; the file times say nothing of those versions."""
    on = metadata(configuration={"delta.enableInCommitTimestamps": "true", **enablement})
    history: list[list[Action]] = [[FEATURES, metadata()], [add("f1")]]
    for version, time in IN_COMMIT_MS.items():
        info = {"commitInfo": {"inCommitTimestamp": time, "operation": "WRITE"}}
        history.append([info, *([on] if version == ENABLED_AT else []), add(f"f{version}")])
    return set_times(MemoryTable(commits(history)))


def test_file_times_ascend_by_a_millisecond_at_least(by_file: MemoryTable) -> None:
    history = by_file.delta().history()
    assert [info.timestamp_ms for info in reversed(history)] == ADJUSTED_MS
    for version, time in enumerate(ADJUSTED_MS):
        assert by_file.delta().snapshot(version=version).timestamp_ms == time
        assert by_file.delta().version_at(time) == version
    # The time of version 3's file is before that of version 1's.
    assert by_file.delta().version_at(60_000) == 0


@pytest.mark.parametrize(
    ("outside", "text"),
    [
        (-1, "1969-12-31T23:59:59.999Z"),
        (ADJUSTED_MS[-1] + 1, "1970-01-01T00:01:40.003Z"),
        (10**12, "2001-09-09T01:46:40.000Z"),
    ],
)
def test_a_time_outside_is_an_error(by_file: MemoryTable, outside: int, text: str) -> None:
    with pytest.raises(TimestampOutOfRangeError, match=f"belongs to the time {text}:") as caught:
        by_file.delta().version_at(outside)
    assert (caught.value.earliest_ms, caught.value.latest_ms) == (0, ADJUSTED_MS[-1])


@pytest.mark.parametrize(
    ("time", "version"),
    [
        (0, 0),
        (ADJUSTED_MS[1] - 1, 0),
        (ADJUSTED_MS[1], 1),
        (ENABLED_MS - 1, 1),
        (ENABLED_MS, 2),
        (ENABLED_MS + 499, 2),
        (ENABLED_MS + 500, 3),
    ],
)
def test_the_moment_of_enablement_belongs_to_its_version(time: int, version: int) -> None:
    with by_commit(VERSION | TIME) as table:
        assert table.delta().version_at(time) == version
        assert table.delta().snapshot(timestamp=time).version == version


@pytest.mark.parametrize("later", [1, 60_000, 10**12])
def test_the_newest_version_can_be_had_for_any_later_time(by_file: MemoryTable, later: int) -> None:
    """As Delta Spark's ``canReturnLastCommit`` and delta-rs, whose ``load_as_version`` always does so."""
    table, newest = by_file.delta(), len(ADJUSTED_MS) - 1
    outside = ADJUSTED_MS[-1] + later
    assert table.version_at(outside, can_return_latest=True) == newest
    assert table.snapshot(timestamp=outside, can_return_latest=True).version == newest
    # Whatever is earlier stays what it was, and what is before the log an error.
    assert table.version_at(ADJUSTED_MS[1], can_return_latest=True) == 1
    with pytest.raises(TimestampOutOfRangeError):
        table.snapshot(timestamp=-1, can_return_latest=True)


def test_the_future_is_an_error_with_in_commit_timestamps_too() -> None:
    with (
        by_commit(VERSION | TIME) as table,
        pytest.raises(TimestampOutOfRangeError, match=r"1970-01-01T00:03:20\.501Z"),
    ):
        table.delta().version_at(ENABLED_MS + 501)


@pytest.mark.parametrize(("given", "missing"), [(VERSION, TIME), (TIME, VERSION)])
def test_one_enablement_property_without_the_other_is_an_error(
    given: dict[str, str], missing: dict[str, str]
) -> None:
    (name,) = missing
    with by_commit(given) as table:
        for ask in (lambda: table.delta().version_at(ENABLED_MS), lambda: table.delta().history()):
            with pytest.raises(InvalidTableError, match=name.removeprefix("delta.")):
                ask()


def test_where_in_commit_timestamps_are_off_again_file_times_count_for_all_versions() -> None:
    """Who turns them off must drop the properties: the earlier ones can't be searched any more."""
    on, off = (
        metadata(configuration={"delta.enableInCommitTimestamps": value})
        for value in ("true", "false")
    )
    history: list[list[Action]] = [
        [{"commitInfo": {"inCommitTimestamp": 900_000 + version}}, add(f"f{version}")]
        for version in range(4)
    ]
    history[0] += [FEATURES, on]
    history[3] = [off]
    with set_times(MemoryTable(commits(history))) as table:
        told = [info.timestamp_ms for info in reversed(table.delta().history())]
        assert told == ADJUSTED_MS
        assert table.delta().version_at(ADJUSTED_MS[2]) == 2
        # An older version is asked as the table was then.
        assert table.delta().snapshot(version=2).timestamp_ms == 900_002
