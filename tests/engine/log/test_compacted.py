from __future__ import annotations

import json
import zlib
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_delta.engine.arrow.json.exact import FILE_KINDS, NON_FILE_KINDS
from airflow_delta.engine.errors import CorruptLogError
from airflow_delta.engine.log.compacted import (
    check_pledge,
    plan_commits,
    pledged,
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


class RemoteStorage(MemoryStorage):
    capabilities = Capabilities(put_if_absent=True, start_after=True, remote=True)


OLD = b'{"airflowDeltaCompaction":{"start":%d,"end":%d,"keepsRemoved":true}}\n'


@pytest.mark.parametrize("kind", [MemoryStorage, RemoteStorage])
def test_a_compaction_is_trusted_by_its_name_or_its_first_line(kind):
    """A remove that a foreign writer dropped from 1.2 cancels an add in version 0, which would come
    back; nothing lies before 0.3."""
    storage = kind("memory://pledges/t")
    contents = {
        (1, 2): pledged(1, 2, [b"{}"], lines=1),
        (1, 3): pledged(1, 3, [], lines=0),
        (2, 3): b"{}\n" + pledged(2, 3, [], lines=0),
        (2, 4): pledged(2, 3, [], lines=0),  # renamed: it pledges for another range
        (3, 4): pledged(3, 4, [], lines=0)[:-2] + b"\n",
        (3, 5): b'{"add":{"path":"' + b"x" * 1000,
        (3, 6): OLD % (3, 6),  # it doesn't tell how much follows
        (3, 7): OLD[:-3] % (3, 7) + b',"lines":%s,"crc32":0}}\n' % (b"9" * 20),
        (4, 5): pledged(4, 5, [], lines=0).replace(b"true", b"false"),
        (4, 6): pledged(4, 6, [], lines=0).replace(b"\n", b"\r\n"),
    }
    found = compactions((0, 3), *contents, (5, 6))  # the last one is gone by now
    for (start, end), content in contents.items():
        storage.replace(f"{start}.{end}", content)
    trusted = trusted_compactions(storage, found)
    assert [file.path for file in trusted] == ["0.3", "1.2", "1.3", "4.6"]


LINES = b'{"add":{"path":"a"}}\n{"remove":{"path":"b"}}\n{"txn":{}}'


@pytest.mark.parametrize("parts", [LINES.split(b"\n"), [LINES], [memoryview(LINES)]], ids=len)
def test_a_pledge_counts_the_lines_after_it_and_has_their_checksum(parts):
    first, rest = pledged(3, 7, parts, lines=3).split(b"\n", 1)
    assert rest == LINES + b"\n"
    ((_, value),) = json.loads(first).items()
    checksum = zlib.crc32(LINES + b"\n")
    assert value == {"start": 3, "end": 7, "keepsRemoved": True, "lines": 3, "crc32": checksum}


@pytest.mark.parametrize("start", [0, 3])
def test_each_loss_in_a_pledged_compaction_is_found(start):
    (file,) = compactions((start, 7))
    whole = pledged(start, 7, [LINES], lines=3)
    check_pledge(file, whole, table="t")
    lines = whole.splitlines(keepends=True)
    damaged = [
        *(b"".join(lines[:count]) for count in range(1, len(lines))),
        *(b"".join(line for line in lines if line != lost) for lost in lines[1:]),
        whole.replace(b"remove", b"Remove"),
        whole.replace(b"\n", b"\r\n"),
        whole + b"{}\n",
        whole[:-1],
        whole[len(b'{"airflowDeltaCompaction":') :] if start else lines[0][:-3],
        OLD % (start, 7) + LINES,
        pledged(start, 6, [LINES], lines=3),
        *([LINES] if start else []),
    ]
    for content in damaged:
        with pytest.raises(CorruptLogError, match=rf"{start}\.7 isn't whole") as caught:
            check_pledge(file, content, table="t")
        assert (caught.value.version, caught.value.path) == (7, f"{start}.7")


def test_another_writers_compaction_has_nothing_to_compare_with():
    (file,) = compactions((0, 7))
    check_pledge(file, LINES, table="t")


def test_a_pledge_is_no_action_that_anybody_knows():
    """PROTOCOL.md, "Protocol Evolution": clients must ignore what they don't recognize."""
    ((kind, value),) = json.loads(pledged(3, 7, [], lines=0)).items()
    assert kind not in {*FILE_KINDS, *NON_FILE_KINDS, "sidecar", "checkpointMetadata"}
    assert value["keepsRemoved"] is True
    longest = pledged(MAX_VERSION - 1, MAX_VERSION, [], lines=MAX_VERSION)
    assert len(longest) < 250, "so that the head of the file certainly holds it"
