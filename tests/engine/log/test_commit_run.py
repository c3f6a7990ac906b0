from __future__ import annotations

from array import array

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_delta.engine.log.commit_run import CommitRun, scan_log
from airflow_delta.engine.log.files import Commit, commit_path
from airflow_delta.engine.log.listing import list_log, list_names
from airflow_delta.engine.storage.base import FileInfo
from tests.engine.log.logs import classic, commit, crc, make_log, multipart, part, v2

RUN = CommitRun(5, array("q", [10, 20, 30]), array("q", [7, 6, 9]))
COMMITS = [
    Commit(5, commit_path(5), 10, 7),
    Commit(6, commit_path(6), 20, 6),
    Commit(7, commit_path(7), 30, 9),
]


def test_a_run_is_a_sequence_of_its_commits():
    assert list(RUN) == COMMITS
    assert [*reversed(RUN)] == COMMITS[::-1]
    assert (len(RUN), RUN[0], RUN[-1]) == (3, COMMITS[0], COMMITS[-1])
    assert COMMITS[1] in RUN
    assert not CommitRun(0, array("q"), array("q"))


@pytest.mark.parametrize("place", [3, -4])
def test_a_run_ends_where_it_ends(place):
    with pytest.raises(IndexError, match="range"):
        _ = RUN[place]


@given(start=st.none() | st.integers(-5, 5), stop=st.none() | st.integers(-5, 5))
@settings(max_examples=50, deadline=None)
def test_a_part_of_a_run_is_the_run_of_the_part(start, stop):
    assert list(RUN[start:stop]) == COMMITS[start:stop]


def test_a_run_has_no_slice_with_holes():
    with pytest.raises(ValueError, match="step"):
        _ = RUN[::2]


@settings(max_examples=50, deadline=None)
@given(
    present=st.sets(st.integers(0, 9)),
    others=st.sets(
        st.sampled_from([name for v in range(9) for name in (classic(v), v2(v), part(v, 1, 2))])
    ),
)
def test_a_scan_tells_the_last_commits_without_a_gap(present, others):
    storage = make_log([*map(commit, present), *others, *multipart(4, 2), crc(3), "notes.txt"])
    scanned = scan_log(list_names(storage))
    listed = list_log(storage)

    run = set(present)
    while run and set(range(min(run), max(run) + 1)) != run:
        run.remove(min(run))
    assert list(scanned.commits) == [c for c in listed.commits if c.version in run]
    assert list(scanned.checkpoints) == sorted({c.version for c in listed.checkpoints})


def test_a_checkpoint_without_content_is_none():
    storage = make_log([commit(0)], empty=[classic(0)])
    assert scan_log(list_names(storage)).checkpoints == ()


def test_a_scan_goes_on_with_commits_that_are_known():
    older = [FileInfo(commit_path(4), 1, 2)]
    assert list(scan_log([*older, *COMMITS]).commits) == [Commit(4, commit_path(4), 1, 2), *COMMITS]
