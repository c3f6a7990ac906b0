from __future__ import annotations

import json
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_delta.engine.arrow.json_exact import FILE_KINDS, SMALL_KINDS
from airflow_delta.engine.log.compacted import (
    plan_commits,
    pledge,
    pledged_compactions,
    trusted_compactions,
)
from airflow_delta.engine.log.files import MAX_VERSION, Commit, CompactedCommits
from airflow_delta.engine.storage.base import Capabilities
from airflow_delta.engine.storage.memory import MemoryStorage


def commit_range(first: int, last: int) -> list[Commit]:
    return [Commit(version, f"{version}", 1, 0) for version in range(first, last + 1)]


def compactions(*ranges: tuple[int, int]) -> list[CompactedCommits]:
    return [CompactedCommits(start, end, f"{start}.{end}", 1, 0) for start, end in ranges]


@pytest.mark.parametrize(
    ("first", "last", "ranges", "expected"),
    [
        # The plan that Delta Spark makes of these files; taking 2.7 first would need a file more.
        (0, 9, [(2, 4), (2, 7), (5, 9)], "0 1 2.4 5.9"),
        # A checkpoint at 3: those that start at 2 reach over it.
        (4, 9, [(2, 4), (2, 7), (5, 9)], "4 5.9"),
        # A target before the end of the last one.
        (0, 6, [(2, 4), (2, 7), (5, 9)], "0 1 2.4 5 6"),
        (0, 3, [], "0 1 2 3"),
        (0, 3, [(0, 3)], "0.3"),
        (0, 3, [(0, 1), (0, 2), (0, 3)], "0.3"),
        (0, 3, [(1, 1)], "0 1 2 3"),
        (0, 5, [(0, 3), (1, 5)], "0 1.5"),
        # As few files either way: the first one reaches as far as it can.
        (0, 3, [(0, 1), (0, 2), (2, 3), (0, 2)], "0.2 3"),
    ],
)
def test_plan(first, last, ranges, expected):
    plan = plan_commits(commit_range(first, last), compactions(*ranges))
    assert " ".join(file.path for file in plan) == expected


def test_nothing_to_read_needs_no_file():
    assert plan_commits([], compactions((0, 3))) == ()


@settings(max_examples=50)
@given(
    first=st.integers(0, 5),
    length=st.integers(1, 8),
    ranges=st.lists(st.tuples(st.integers(0, 14), st.integers(0, 14)), max_size=8),
)
def test_a_plan_covers_each_version_once_with_the_fewest_files(first, length, ranges):
    last = first + length - 1
    usable = [(start, end) for start, end in ranges if start <= end]
    plan = plan_commits(commit_range(first, last), compactions(*usable))

    covered: list[int] = []
    for file in plan:
        if isinstance(file, CompactedCommits):
            covered += range(file.start, file.end + 1)
        else:
            covered.append(file.version)
    assert covered == list(range(first, last + 1))

    @cache
    def fewest(version: int) -> int:
        if version > last:
            return 0
        jumps = [end + 1 for start, end in usable if start == version and end <= last]
        return 1 + min(fewest(after) for after in [version + 1, *jumps])

    assert len(plan) == fewest(first)


def test_only_compactions_from_the_first_version_on_are_trusted():
    # A remove that a foreign writer dropped from 1.2 cancels an add in version 0, which would come
    # back; nothing lies before 0.2.
    found = compactions((0, 2), (1, 2), (3, 5))
    assert trusted_compactions(found) == tuple(found[:1])


class RemoteStorage(MemoryStorage):
    capabilities = Capabilities(put_if_absent=True, start_after=True, remote=True)


@pytest.mark.parametrize("kind", [MemoryStorage, RemoteStorage])
def test_a_compaction_is_trusted_by_its_first_line(kind):
    storage = kind("memory://pledges/t")
    contents = {
        (1, 2): pledge(1, 2) + b"\n{}\n",
        (1, 3): pledge(1, 3),
        (2, 3): b"{}\n" + pledge(2, 3) + b"\n",
        (2, 4): pledge(2, 3) + b"\n",  # renamed: it pledges for another range
        (3, 4): pledge(3, 4)[:-1] + b"\n",
        (3, 5): b'{"add":{"path":"' + b"x" * 1000,
        (4, 5): pledge(4, 5).replace(b"true", b"false") + b"\n",
        (4, 6): pledge(4, 6) + b"\r\n{}\r\n",
    }
    found = compactions((0, 3), *contents, (5, 6))  # the last one is gone by now
    for (start, end), content in contents.items():
        storage.replace(f"{start}.{end}", content)
    trusted = pledged_compactions(storage, found)
    assert [file.path for file in trusted] == ["0.3", "1.2", "1.3", "4.6"]


def test_a_pledge_is_no_action_that_anybody_knows():
    """PROTOCOL.md, "Protocol Evolution": clients must ignore what they don't recognize."""
    ((kind, value),) = json.loads(pledge(3, 7)).items()
    assert kind not in {*FILE_KINDS, *SMALL_KINDS, "sidecar", "checkpointMetadata"}
    assert value == {"start": 3, "end": 7, "keepsRemoved": True}
    longest = pledge(MAX_VERSION - 1, MAX_VERSION)
    assert len(longest) < 250, "so that the head of the file certainly holds it"
