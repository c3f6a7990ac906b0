"""The stream of file actions against the model, and against the state that is held in memory."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_delta.engine.arrow.json import lines as json_lines
from airflow_delta.engine.errors import CorruptLogError, DeltaWarning, ObjectNotFoundError
from airflow_delta.engine.log.segment import load_segment
from airflow_delta.engine.snapshot.action_stream import stream_file_actions
from airflow_delta.engine.snapshot.state import LogState
from tests.log_builder import PROTOCOL, add, metadata, remove
from tests.table_builder import (
    FAR_FUTURE_MS,
    Action,
    Files,
    MemoryTable,
    State,
    classic_checkpoint,
    commit_file,
    commits,
    compaction,
    hint,
    key_of,
    multipart_checkpoint,
    states,
    v2_checkpoint,
)

VECTOR = {"storageType": "u", "pathOrInlineDv": "x" * 20, "sizeInBytes": 3, "cardinality": 1}
OTHER_VECTOR = {**VECTOR, "offset": 1}
DELETED = st.sampled_from([FAR_FUTURE_MS, FAR_FUTURE_MS + 1, None])

FileKeys = set[tuple[str, object]]


def streamed_keys(state: LogState, oldest_tombstone_ms: int) -> FileKeys:
    """The kind and the key of all that is streamed, each once, nothing but protocol columns."""
    found = []
    for kind, table in stream_file_actions(state, oldest_tombstone_ms=oldest_tombstone_ms):
        assert table.num_rows
        assert not {"version", "position"} & {*table.column_names}
        found += [(kind, key_of(row)) for row in table.to_pylist()]
    assert len(set(found)) == len(found)
    return set(found)


def expected_keys(state: State, oldest_tombstone_ms: int) -> FileKeys:
    unexpired = {
        key
        for key, row in state.tombstones.items()
        if row["deletionTimestamp"] is not None and row["deletionTimestamp"] > oldest_tombstone_ms
    }
    return {("add", key) for key in state.files} | {("remove", key) for key in unexpired}


def checked_keys(files: Files, oldest_tombstone_ms: int = FAR_FUTURE_MS - 1) -> FileKeys:
    with MemoryTable(files) as table:
        state = LogState(table.storage, load_segment(table.storage))
        return streamed_keys(state, oldest_tombstone_ms)


FIELDS = st.sampled_from([{}, {"deletionVector": VECTOR}, {"deletionVector": OTHER_VECTOR}])
PATHS = st.sampled_from(["a", "b", "c", "s3://bucket/d"])
FILE_ACTIONS = st.one_of(
    st.builds(lambda path, fields: add(path, **fields), PATHS, FIELDS),
    st.builds(
        lambda path, fields, deleted: remove(path, **fields, deletionTimestamp=deleted),
        PATHS,
        FIELDS,
        DELETED,
    ),
)
ONE_PER_FILE = st.lists(
    FILE_ACTIONS, max_size=6, unique_by=lambda action: key_of(next(iter(action.values())))
)
HISTORIES = st.lists(ONE_PER_FILE, min_size=3, max_size=5).map(
    lambda history: [
        [PROTOCOL, metadata(), *history[0]],
        *([{"commitInfo": {}}, *actions] for actions in history[1:]),
    ]
)
CHECKPOINTS = st.sampled_from(
    [
        lambda _state, _version: {},
        classic_checkpoint,
        lambda state, version: multipart_checkpoint(state, version, parts=2),
        lambda state, version: v2_checkpoint(state, version, form="json", sidecars=2),
        lambda state, version: v2_checkpoint(state, version, form="json", sidecars=0),
        lambda state, version: compaction(state, version, expired=True),
    ]
)


@given(HISTORIES, CHECKPOINTS, st.integers(0, 1), st.integers(1, 2000))
@settings(max_examples=50, deadline=None)
def test_live_files_and_unexpired_removes_are_told_once(
    history: list[list[Action]],
    checkpoint: Callable[[State, int], Files],
    oldest: int,
    slice_bytes: int,
) -> None:
    model = states(history)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_lines, "SLICE_BYTES", slice_bytes)
        patch.setattr(json_lines, "_ALONE_BYTES", slice_bytes)
        found = checked_keys(
            {**commits(history), **checkpoint(model[1], 1)}, FAR_FUTURE_MS - 1 + oldest
        )
    assert found == expected_keys(model[-1], FAR_FUTURE_MS - 1 + oldest)


def test_an_expired_remove_still_overrides() -> None:
    history = [[PROTOCOL, metadata(), add("a"), add("b")], [add("c")], [remove("a"), remove("c")]]
    base = classic_checkpoint(states(history)[1], 1)
    assert checked_keys({**commits(history), **base}, 1) == {("add", ("b", None))}
    assert checked_keys({**commits(history), **base}, 0) == {
        ("add", ("b", None)), ("remove", ("a", None)), ("remove", ("c", None)),
    }  # fmt: skip


def test_a_contradictory_commit_is_warned_of() -> None:
    history = [[PROTOCOL, metadata(), add("a"), remove("a"), add("b")]]
    with pytest.warns(DeltaWarning, match="commit 0 has more than one action for the file 'a'"):
        assert checked_keys(commits(history)) == {("add", ("b", None))}


def test_the_newest_part_of_the_log_comes_first() -> None:
    history = [[PROTOCOL, metadata(), add("a")], [add("b")], [add("c")]]
    base = classic_checkpoint(states(history)[0], 0)
    with MemoryTable({**commits(history), **base}) as table, pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_lines, "SLICE_BYTES", 1)
        state = LogState(table.storage, load_segment(table.storage))
        stream = stream_file_actions(state, oldest_tombstone_ms=0)
        assert [rows["path"].to_pylist() for _, rows in stream] == [["c"], ["b"], ["a"]]


HISTORY = [[PROTOCOL, metadata(), add("a")], [add("b")], [remove("a"), add("c")]]


def test_after_an_error_the_state_can_recover() -> None:
    model = states(HISTORY)
    broken = dict.fromkeys(classic_checkpoint(model[1], 1), b"no parquet")
    with MemoryTable({**commits(HISTORY), **broken, **hint(1)}) as table:
        state = LogState(table.storage, load_segment(table.storage))
        with pytest.raises(CorruptLogError) as caught:
            streamed_keys(state, FAR_FUTURE_MS)
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            state.recover(caught.value)
        assert len(warned) == 1
        assert streamed_keys(state, FAR_FUTURE_MS) == expected_keys(model[-1], FAR_FUTURE_MS)


def test_a_commit_that_is_gone_or_broken_is_told_as_such() -> None:
    with MemoryTable(commits(HISTORY)) as table:
        state = LogState(table.storage, load_segment(table.storage))
        table.put({commit_file(1): b"{broken"})
        with pytest.raises(CorruptLogError, match=f"{commit_file(1)}, line 1"):
            streamed_keys(state, 0)
        table.storage.delete([commit_file(1)])
        with pytest.raises(ObjectNotFoundError, match=commit_file(1)):
            streamed_keys(state, 0)
