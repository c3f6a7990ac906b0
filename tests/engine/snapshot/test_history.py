"""Versions and times: file times, in-commit timestamps, and time travel between them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import (
    CorruptLogError,
    InvalidArgumentError,
    InvalidTableError,
    TimestampOutOfRangeError,
)
from airflow_delta.engine.log.newest_segment import load_newest_segment
from airflow_delta.engine.log.segment import load_segment
from airflow_delta.engine.snapshot import history as history_module
from airflow_delta.engine.snapshot.snapshot import Snapshot
from airflow_delta.engine.storage.base import FileInfo
from airflow_delta.engine.storage.local import LocalStorage
from tests.log_builder import PROTOCOL, add, commit_path, metadata, write_commit, write_table

ICT_PROTOCOL = {
    "protocol": {
        "minReaderVersion": 1,
        "minWriterVersion": 7,
        "writerFeatures": ["inCommitTimestamp"],
    }
}
ICT_ON = {"delta.enableInCommitTimestamps": "true"}


def file_timed_table(root: Path, seconds: list[int]) -> DeltaTable:
    for version, second in enumerate(seconds):
        first = [PROTOCOL, metadata()] if version == 0 else []
        write_commit(root, version, *first, add(f"f{version}"), modified_ms=second * 1000)
    return DeltaTable(str(root))


def test_file_times_are_made_to_ascend(tmp_path: Path) -> None:
    table = file_timed_table(tmp_path, [0, 100, 50, 60])
    times = [info.timestamp_ms for info in reversed(table.history())]
    assert times == [0, 100_000, 100_001, 100_002]


@pytest.mark.parametrize(
    ("timestamp", "version"),
    [(0, 0), (99_999, 0), (100_000, 1), (100_001, 2), (100_002, 3)],
)
def test_the_newest_version_not_after_a_time_is_found(
    tmp_path: Path, timestamp: int, version: int
) -> None:
    table = file_timed_table(tmp_path, [0, 100, 50, 60])
    assert table.version_at(timestamp) == version
    assert table.snapshot(timestamp=timestamp).version == version


@pytest.mark.parametrize("timestamp", [999, 3_001])
def test_a_time_outside_the_history_names_the_range(tmp_path: Path, timestamp: int) -> None:
    table = file_timed_table(tmp_path, [1, 2, 3])
    with pytest.raises(
        TimestampOutOfRangeError, match=r"00:00:01.000Z \(version 0\) .*00:00:03.000Z \(version 2\)"
    ) as caught:
        table.version_at(timestamp)
    assert (caught.value.earliest_ms, caught.value.latest_ms) == (1000, 3000)


@pytest.mark.parametrize(
    "timestamp",
    ["1970-01-01T00:00:02Z", "1970-01-01T01:00:02+01:00", "1970-01-01T00:00:02.000+00:00", 2000],
)
def test_a_time_can_be_written_in_several_ways(tmp_path: Path, timestamp: str | int) -> None:
    assert file_timed_table(tmp_path, [1, 2, 3]).version_at(timestamp) == 1


@pytest.mark.parametrize("timestamp", ["yesterday", "1970-01-01T00:00:02", "1970-01-01", True, 2.5])
def test_a_time_that_is_none_is_refused(tmp_path: Path, timestamp: object) -> None:
    table = file_timed_table(tmp_path, [1, 2, 3])
    with pytest.raises(InvalidArgumentError, match=r"timestamp|point in time"):
        table.version_at(timestamp)


def in_commit_table(
    root: Path, file_ms: list[int], in_commit: dict[int, int], enablement: dict[str, str]
) -> DeltaTable:
    """Commits with file times; from the first key of ``in_commit`` on also in-commit timestamps."""
    start = min(in_commit)
    for version, modified in enumerate(file_ms):
        actions = [add(f"f{version}")]
        if version == 0:
            actions = [ICT_PROTOCOL, metadata(configuration=ICT_ON if start == 0 else {}), *actions]
        elif version == start:
            actions = [metadata(configuration={**ICT_ON, **enablement}), *actions]
        info: dict = {"operation": "WRITE", "timestamp": 7}
        if version in in_commit:
            info = {"inCommitTimestamp": in_commit[version], **info}
        write_commit(root, version, {"commitInfo": info}, *actions, modified_ms=modified)
    return DeltaTable(str(root))


ENABLED_AT_2 = {
    "delta.inCommitTimestampEnablementVersion": "2",
    "delta.inCommitTimestampEnablementTimestamp": "5000",
}


def test_in_commit_timestamps_count_from_their_enablement(tmp_path: Path) -> None:
    # Copied later: file times say nothing of the versions from 2 on.
    table = in_commit_table(
        tmp_path, [1000, 2000, 90_000, 91_000], {2: 5000, 3: 6000}, ENABLED_AT_2
    )
    assert [info.timestamp_ms for info in table.history()] == [6000, 5000, 2000, 1000]
    found = {ms: table.version_at(ms) for ms in (1000, 2000, 4999, 5000, 5999, 6000)}
    assert found == {1000: 0, 2000: 1, 4999: 1, 5000: 2, 5999: 2, 6000: 3}
    with pytest.raises(TimestampOutOfRangeError, match=r"time 1970-01-01T00:00:06\.001Z:"):
        table.version_at(6001)


def test_in_commit_timestamps_from_the_first_version_need_no_enablement(tmp_path: Path) -> None:
    table = in_commit_table(tmp_path, [9, 9, 9], {0: 100, 1: 200, 2: 300}, {})
    assert [table.version_at(ms) for ms in (100, 199, 200, 300)] == [0, 0, 1, 2]


def test_one_enablement_property_without_the_other_is_invalid(tmp_path: Path) -> None:
    half = {"delta.inCommitTimestampEnablementVersion": "2"}
    table = in_commit_table(tmp_path, [1, 2, 3], {2: 5000}, half)
    with pytest.raises(InvalidTableError, match="inCommitTimestampEnablementTimestamp"):
        table.version_at(5000)


def test_a_commit_without_its_in_commit_timestamp_is_invalid(tmp_path: Path) -> None:
    table = in_commit_table(tmp_path, [1, 2, 3], {2: 5000}, ENABLED_AT_2)
    write_commit(tmp_path, 3, {"commitInfo": {"operation": "WRITE"}}, add("x"))
    with pytest.raises(InvalidTableError, match="commit 3 has no inCommitTimestamp"):
        _ = table.snapshot().timestamp


def test_history_is_newest_first_and_can_be_limited(tmp_path: Path) -> None:
    table = file_timed_table(tmp_path, [1, 2, 3])
    assert [info.version for info in table.history()] == [2, 1, 0]
    assert [info.version for info in table.history(2)] == [2, 1]
    assert table.history(0) == []


def test_commits_before_a_time_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = file_timed_table(tmp_path, [1, 5, 2, 9])
    read: list[int] = []
    infos = history_module.read_commit_infos

    def reading(storage: Any, versions: Any, **named: Any) -> Any:
        read.extend(versions)
        return infos(storage, versions, **named)

    monkeypatch.setattr(history_module, "read_commit_infos", reading)
    timeline = table.snapshot().timeline
    # The time of version 2 is one millisecond after that of version 1.
    for since, versions in ((0, [3, 2, 1, 0]), (5001, [3, 2]), (9000, [3]), (9001, [])):
        read.clear()
        assert [info.version for info in timeline.history(since_ms=since)] == versions == read
        found = timeline.history(2, since_ms=since)
        assert [info.version for info in found] == versions[:2]


@pytest.mark.parametrize("limit", [-1, True, False, "3", 1.5, 3.0])
def test_a_limit_that_is_no_number_of_commits(tmp_path: Path, limit: Any) -> None:
    table = file_timed_table(tmp_path, [1, 2, 3])
    with pytest.raises(InvalidArgumentError, match=rf"expected an int from 0 on.*{limit!r}"):
        table.history(limit)


class CountingStorage(LocalStorage):
    """Counts the files that it lists."""

    def list(self, directory: str, *, start_after: str = "") -> Iterator[FileInfo]:
        for info in super().list(directory, start_after=start_after):
            LISTED.append(info.path)
            yield info


LISTED: list[str] = []


def ascending(times: list[int], start: int) -> list[int]:
    """The rule, each time from all before it: an older file pushes its successors by a ms each."""
    return [max(times[j] + (i - j) for j in range(start, i + 1)) for i in range(start, len(times))]


@settings(max_examples=30, deadline=None)
@given(
    seconds=st.lists(st.integers(0, 30), min_size=1, max_size=12),
    limit=st.integers(1, 14),
    settling=st.integers(0, 5),
    checkpoint=st.none() | st.integers(0, 11),
)
def test_file_times_of_a_limited_history_ascend_over_its_window(
    seconds: list[int], limit: int, settling: int, checkpoint: int | None
) -> None:
    with TemporaryDirectory() as root, patch.object(history_module, "_SETTLING", settling):
        table = file_timed_table(Path(root), seconds)
        if checkpoint is not None and checkpoint < len(seconds):
            table.checkpoint(checkpoint)
        times = [second * 1000 for second in seconds]
        exact = ascending(times, 0)
        oldest = max(0, len(times) - limit)
        reported = ascending(times, max(0, oldest - settling))[oldest - len(times) :]
        assert [(info.version, info.timestamp_ms) for info in reversed(table.history(limit))] == [
            *enumerate(reported, start=oldest)
        ]
        # Whole histories and lookups know nothing of windows.
        assert [info.timestamp_ms for info in reversed(table.history())] == exact
        for timestamp in {*exact, *(time + 1 for time in exact[:-1])}:
            found = max(v for v, time in enumerate(exact) if time <= timestamp)
            assert table.version_at(timestamp) == found
            assert table.snapshot(timestamp=timestamp).timestamp_ms == exact[found]


def test_a_limited_history_settles_over_a_hundred_commits(tmp_path: Path) -> None:
    # The file of version 3 is an hour ahead of the others.
    table = file_timed_table(tmp_path, [3600 if v == 3 else v for v in range(110)])
    late = [3_600_000 + v - 3 for v in range(3, 110)]
    assert [info.timestamp_ms for info in reversed(table.history(7))] == late[-7:]
    assert [info.timestamp_ms for info in reversed(table.history(6))] == [
        1000 * v for v in range(104, 110)
    ]
    assert table.snapshot().timestamp_ms == late[-1]


def test_a_limited_history_is_exact_where_the_segment_has_all_commits(tmp_path: Path) -> None:
    table = file_timed_table(tmp_path, list(range(12)))
    storage = CountingStorage(str(tmp_path))
    snapshot = Snapshot(storage, load_segment(storage))
    LISTED.clear()
    with patch.object(history_module, "_SETTLING", 2):
        assert snapshot.timeline.history(3) == table.history(3) == table.history()[:3]
    assert LISTED == []


@pytest.mark.parametrize("remote", [False, True])
def test_a_limited_history_looks_at_its_window_only(tmp_path: Path, remote: bool) -> None:
    file_timed_table(tmp_path, list(range(50))).checkpoint(45)
    storage = CountingStorage(str(tmp_path))
    capabilities = replace(storage.capabilities, remote=remote)
    with (
        patch.object(history_module, "_SETTLING", 5),
        patch.object(CountingStorage, "capabilities", capabilities),
    ):
        LISTED.clear()
        snapshot = Snapshot(storage, load_newest_segment(storage))
        reported = [(info.version, info.timestamp_ms) for info in snapshot.timeline.history(10)]
    assert reported == [(v, 1000 * v) for v in range(49, 39, -1)]
    assert not [path for path in LISTED if path < commit_path_name(35)]
    assert bool(LISTED) == remote


def test_a_state_at_a_time_is_found_by_one_look_at_the_log(tmp_path: Path) -> None:
    table = file_timed_table(tmp_path, list(range(12)))
    table.checkpoint(4)
    table.checkpoint(8)
    storage = CountingStorage(str(tmp_path))
    table.__dict__["storage"] = storage
    expected = {}
    for version in (3, 4, 6, 8, 10, 11):
        LISTED.clear()
        snapshot = table.snapshot(timestamp=1000 * version)
        assert (snapshot.version, snapshot.num_files) == (version, version + 1)
        expected[version] = len(LISTED)
    # The newest segment lists 8 to 11 and the timeline the rest. Only a version from before that is
    # listed for, from its checkpoint (which has a checksum beside it) on to the first name too late.
    whole = expected[11]
    assert expected == {3: whole + 5, 4: whole + 4, 6: whole + 6, 8: whole, 10: whole, 11: whole}


def test_a_limited_history_by_in_commit_timestamps_lists_no_older_commits(tmp_path: Path) -> None:
    in_commit_table(tmp_path, [9] * 9, {v: 100 * v for v in range(9)}, {}).checkpoint(7)
    storage = CountingStorage(str(tmp_path))
    for limit in range(1, 11):
        snapshot = Snapshot(storage, load_segment(storage))
        LISTED.clear()
        found = [(info.version, info.timestamp_ms) for info in snapshot.timeline.history(limit)]
        assert found == [(v, 100 * v) for v in range(8, -1, -1)][:limit]
        assert not [path for path in LISTED if path < commit_path_name(9 - limit)]


def commit_path_name(version: int) -> str:
    return f"_delta_log/{max(version, 0):020}"


def test_a_snapshot_knows_its_commits_without_listing_them_again(tmp_path: Path) -> None:
    write_table(tmp_path, [add("a")], [add("b")], [add("c")])
    storage = CountingStorage(str(tmp_path))
    snapshot = Snapshot(storage, load_segment(storage))
    LISTED.clear()
    assert snapshot.timeline.version_at(snapshot.timestamp_ms) == 2
    assert LISTED == []


def test_history_tolerates_content_from_the_future(tmp_path: Path) -> None:
    write_table(tmp_path, [add("a")])
    write_commit(
        tmp_path,
        1,
        {"commitInfo": {"operation": "X", "operationParameters": 7, "novel": {"a": [1]}}},
        {"novelAction": {"x": 1}},
    )
    newest = DeltaTable(str(tmp_path)).history()[0]
    assert newest.operation == "X"
    assert newest.raw["novel"] == {"a": [1]}


def test_a_gap_in_the_history_is_an_error_that_names_it(tmp_path: Path) -> None:
    write_table(tmp_path, [add("a")], [add("b")], [add("c")], [add("d")])
    table = DeltaTable(str(tmp_path))
    table.checkpoint(version=1)
    commit_path(tmp_path, 2).unlink()
    for limit in (None, 1, 9):
        with pytest.raises(CorruptLogError, match="commit 2 is missing"):
            table.history(limit)


def test_commits_older_than_a_checkpoint_may_be_gone(tmp_path: Path) -> None:
    write_table(tmp_path, [add("a")], [add("b")], [add("c")], [add("d")])
    table = DeltaTable(str(tmp_path))
    table.checkpoint(version=2)
    commit_path(tmp_path, 0).unlink()
    commit_path(tmp_path, 1).unlink()
    for limit in (None, 2, 3, 4, 9):
        assert [info.version for info in table.history(limit)] == [3, 2]
    earliest = table.snapshot(version=2).timestamp_ms
    assert table.version_at(earliest) == 2
    with pytest.raises(TimestampOutOfRangeError, match="version 2"):
        table.version_at(earliest - 1)
