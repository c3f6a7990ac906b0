from __future__ import annotations

import json
import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_delta.engine.errors import CorruptLogError, DeltaError, TableNotFoundError
from airflow_delta.engine.log import newest_segment as by_name
from airflow_delta.engine.log.files import Commit
from airflow_delta.engine.log.last_checkpoint import LastCheckpointHint
from airflow_delta.engine.log.listing import list_log
from airflow_delta.engine.log.newest_segment import load_newest_segment, newest_commits
from airflow_delta.engine.log.segment import load_segment
from tests.engine.log.logs import (
    OTHER_UUID,
    Counting,
    classic,
    commit,
    commits,
    compacted,
    make_log,
    multipart,
    v2,
)

HINT = "_delta_log/_last_checkpoint"


def local(names, *, hint=None, empty=()):
    storage = make_log(names, empty=empty)
    if isinstance(hint, int):
        hint = LastCheckpointHint(hint, 1)
    if hint is not None:
        storage.replace(HINT, hint.to_json().encode())
    return Counting(storage, remote=False)


def calls(storage):
    return [call for call, _ in storage.calls]


def test_with_a_good_hint_nothing_is_listed():
    storage = local([*commits(0, 40), classic(30)], hint=30)
    segment = load_newest_segment(storage)
    assert segment == load_segment(storage)
    assert segment.checkpoint_commit.version == 30
    storage.calls.clear()
    load_newest_segment(storage)
    assert calls(storage) == ["read", *["head"] * (1 + 11 + 1 + 8)]


def test_behind_a_network_it_is_listed():
    storage = local([*commits(0, 40), classic(30)], hint=30)
    far = Counting(storage._storage)
    assert load_newest_segment(far) == load_segment(storage)
    assert [call for call in far.calls if call[0] == "list"] == [("list", f"{30:020}")]


def test_an_older_checkpoint_that_the_hint_means_serves_as_well():
    storage = local([*commits(0, 40), classic(10), classic(30)], hint=10)
    segment = load_newest_segment(storage)
    assert (segment.checkpoint.version, segment.version) == (10, 40)
    assert [file.version for file in segment.commits] == list(range(11, 41))


@pytest.mark.parametrize("hint", [None, 99])
def test_without_a_hint_to_go_by_it_is_listed(hint):
    storage = local([*commits(0, 40), classic(30)], hint=hint)
    assert load_newest_segment(storage) == load_segment(storage)


def test_an_unreadable_hint_is_told_of_once():
    storage = local([*commits(0, 4)])
    storage._storage.replace(HINT, b"{")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert load_newest_segment(storage).version == 4
    assert len(told) == 1


V2_HINT = {"path": v2(30), "sizeInBytes": 2, "nonFileActions": None, "sidecarFiles": None}


@pytest.mark.parametrize("path", [v2(30), f"s3://b/t/_delta_log/{v2(30)}", classic(30)])
def test_a_v2_checkpoint_is_found_by_what_the_hint_says_of_it(path):
    hint = LastCheckpointHint(30, 1, v2_checkpoint={**V2_HINT, "path": path})
    storage = local([*commits(0, 31), path.rpartition("/")[2]], hint=hint)
    assert load_newest_segment(storage) == load_segment(storage)
    assert calls(storage).count("list") == 1  # by load_segment


@pytest.mark.parametrize("path", [v2(29), v2(30, OTHER_UUID), "..", "", None, 7, commit(30)])
def test_a_v2_checkpoint_that_the_hint_does_not_name_is_listed(path):
    hint = LastCheckpointHint(30, 1, v2_checkpoint={**V2_HINT, "path": path})
    storage = local([*commits(0, 31), v2(30)], hint=hint)
    assert load_newest_segment(storage).checkpoint.path.endswith(v2(30))


def test_a_checkpoint_in_parts_is_listed():
    storage = local([*commits(0, 31), *multipart(30, 2)], hint=LastCheckpointHint(30, 1, parts=2))
    assert load_newest_segment(storage) == load_segment(storage)


def test_a_checkpoint_without_content_is_passed_over():
    storage = local([*commits(0, 31), classic(10)], empty=[classic(30)], hint=30)
    assert load_newest_segment(storage).checkpoint.version == 10


@pytest.mark.parametrize("missing", [30, 31, 35, 39])
def test_a_lost_commit_does_not_pass_for_the_end(missing):
    names = [name for name in commits(0, 40) if name != commit(missing)]
    storage = local([*names, classic(30)], hint=30)
    if missing == 30:  # cleanup has taken the checkpoint's own commit
        assert load_newest_segment(storage) == load_segment(storage)
        return
    with pytest.raises(CorruptLogError, match=f"commit {missing} is missing"):
        load_newest_segment(storage)


def test_a_commit_of_zero_bytes_is_an_error():
    storage = local([*commits(0, 33), classic(30)], empty=[commit(34)], hint=30)
    with pytest.raises(CorruptLogError, match="zero bytes"):
        load_newest_segment(storage)


def test_no_log_is_no_table():
    with pytest.raises(TableNotFoundError, match="no Delta table"):
        load_newest_segment(local([]))


def test_far_from_the_hint_a_listing_takes_over(monkeypatch):
    monkeypatch.setattr(by_name, "_MOST", 5)
    for newest, listings in [(34, 0), (35, 1)]:
        storage = local([*commits(0, newest), classic(30)], hint=30)
        assert load_newest_segment(storage).version == newest
        assert calls(storage).count("list") == listings


@settings(max_examples=50, deadline=None)
@given(
    first=st.integers(0, 4),
    newest=st.integers(4, 12),
    checkpoints=st.sets(st.integers(0, 12), max_size=3),
    pointed_to=st.none() | st.integers(0, 14),
)
def test_whatever_the_hint_the_newest_version_is_found(first, newest, checkpoints, pointed_to):
    """Over logs as cleanup leaves them: contiguous, perhaps without their start."""
    names = [classic(version) for version in checkpoints if version <= newest]
    storage = local([*commits(first, newest), *names, compacted(0, 3)], hint=pointed_to)
    try:
        listed = load_segment(storage)
    except DeltaError as error:
        with pytest.raises(type(error), match="log"):
            load_newest_segment(storage)
        return
    found = load_newest_segment(storage)
    assert found.version == listed.version
    start = -1 if found.checkpoint is None else found.checkpoint.version
    assert start in {-1, *checkpoints}
    assert [file.version for file in found.commits] == list(range(start + 1, listed.version + 1))


@settings(max_examples=50, deadline=None)
@given(
    present=st.sets(st.integers(0, 12)),
    oldest=st.integers(0, 12),
    newest=st.integers(0, 12),
    remote=st.booleans(),
)
def test_the_newest_commits_reach_back_to_the_first_that_is_missing(
    present, oldest, newest, remote
):
    storage = Counting(make_log(map(commit, present)), remote=remote)
    wanted = [c for c in list_log(storage).commits if oldest <= c.version <= newest]
    run: list[Commit] = []
    for file in reversed(wanted):
        if run and run[0].version != file.version + 1:
            break
        run.insert(0, file)
    assert list(newest_commits(storage, oldest=oldest, newest=newest)) == run


def test_the_newest_commits_are_asked_for_by_name():
    storage = local(commits(0, 40))
    assert [c.version for c in newest_commits(storage, oldest=38, newest=40)] == [38, 39, 40]
    assert set(calls(storage)) == {"head"}


def test_the_hint_of_spark_is_understood():
    text = json.dumps({"version": 3, "size": -1, "checkpointSchema": {"type": "struct"}})
    storage = local([*commits(0, 5), classic(3)])
    storage._storage.replace(HINT, text.encode())
    assert load_newest_segment(storage).version == 5
    assert "list" not in calls(storage)
