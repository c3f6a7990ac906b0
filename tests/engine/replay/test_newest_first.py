"""The replay from the newest end against the replay in memory, and against a dictionary."""

from __future__ import annotations

import json
import warnings

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_delta.engine.arrow.action_schema import FileActions
from airflow_delta.engine.arrow.json import lines as json_lines
from airflow_delta.engine.arrow.json.reader import parse_commits, stream_commits
from airflow_delta.engine.errors import DeltaWarning
from airflow_delta.engine.replay.newest_first import NewestFirst
from airflow_delta.engine.replay.reconcile import reconcile_commits
from tests.log_builder import add, remove
from tests.table_builder import lines, replay

Action = dict

VECTOR = {"storageType": "u", "pathOrInlineDv": "x" * 20, "sizeInBytes": 3, "cardinality": 1}
TABLE = "s3://bucket/table"


def contents(history: list[list[Action]]) -> list[tuple[int, bytes]]:
    return [(version, lines([{}, *actions])) for version, actions in enumerate(history)]


def survivors(history: list[list[Action]], *, slice_bytes: int = 1 << 20) -> FileActions:
    """What survives of a history that is read in slices of some size, in log order."""
    newest_first = NewestFirst(table=TABLE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_lines, "SLICE_BYTES", slice_bytes)
        patch.setattr(json_lines, "_ALONE_BYTES", slice_bytes)
        batches = stream_commits(
            reversed(contents(history)), lambda p: newest_first.batch(p.files), table=TABLE
        )
        parts = list(map(newest_first.survivors, batches))[::-1]
    return FileActions(
        pa.concat_tables(part.adds for part in parts),
        pa.concat_tables(part.removes for part in parts),
    )


def rows(table: pa.Table) -> list[Action]:
    """Without the positions of actions, which only the replay in memory returns."""
    return [
        {name: value for name, value in row.items() if name not in ("version", "position")}
        for row in table.to_pylist()
    ]


FIELDS = st.sampled_from(
    [
        {},
        {"deletionVector": VECTOR},
        {"deletionVector": {**VECTOR, "offset": 1}},
        {"tags": {"k": "v"}, "stats": "{}"},
    ]
)
PATHS = st.sampled_from(["a", "b", "c%20d", "s3://bucket/other/a", "S3://bucket/other/a", "/x/a"])
ACTIONS = st.builds(
    lambda make, path, fields: make(path, **fields), st.sampled_from([add, remove]), PATHS, FIELDS
)
HISTORIES = st.lists(st.lists(ACTIONS, max_size=5), min_size=1, max_size=6)


@given(HISTORIES, st.integers(1, 2000))
@settings(max_examples=50, deadline=None)
def test_the_same_as_in_memory_wherever_the_log_is_cut(
    history: list[list[Action]], slice_bytes: int
) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = survivors(history, slice_bytes=slice_bytes)
    with warnings.catch_warnings(record=True) as expected_warnings:
        warnings.simplefilter("always")
        expected = reconcile_commits(
            parse_commits(contents(history), table=TABLE).files, table=TABLE
        )
    assert rows(found.adds) == rows(expected.adds)
    assert rows(found.removes) == rows(expected.removes)
    assert len(caught) == len(expected_warnings)


@given(HISTORIES, st.integers(1, 2000))
@settings(max_examples=50, deadline=None)
@pytest.mark.filterwarnings("ignore::airflow_delta.engine.errors.DeltaWarning")
def test_the_same_as_a_dictionary(history: list[list[Action]], slice_bytes: int) -> None:
    # The dictionary distinguishes files by the text of their paths, so each has one spelling.
    plain = json.loads(json.dumps(history).replace("S3:", "s3:"))
    found, model = survivors(plain, slice_bytes=slice_bytes), replay(plain)
    for table, expected in ((found.adds, model.files), (found.removes, model.tombstones)):
        assert sorted(table["path"].to_pylist()) == sorted(path for path, _ in expected)


def test_a_commit_that_contradicts_itself_across_batches_is_warned_of() -> None:
    history = [[add("a")], [remove("a"), add("b"), add("c"), add("a", size=9)], [add("d")]]
    with pytest.warns(DeltaWarning, match="commit 1 has more than one action for the file 'a'"):
        found = survivors(history, slice_bytes=1)
    assert [(r["path"], r["size"]) for r in rows(found.adds)] == [
        ("b", 1), ("c", 1), ("a", 9), ("d", 1),
    ]  # fmt: skip
    assert found.removes.num_rows == 0


@pytest.mark.filterwarnings("error")
def test_a_file_that_commits_mention_again_is_no_contradiction() -> None:
    history = [[add("a"), add("b")], [remove("a"), remove("b")], [add("b"), add("a")]]
    assert survivors(history, slice_bytes=1).adds["path"].to_pylist() == ["b", "a"]


@pytest.mark.parametrize("slice_bytes", [1, 300, 1 << 20])
@pytest.mark.filterwarnings("error")
def test_a_commit_over_many_batches_that_undoes_itself_nowhere(slice_bytes: int) -> None:
    names = [f"f{number}" for number in range(20)]
    history = [
        [add(name) for name in names],
        [remove(name) for name in names[::2]] + [add(f"new-{name}") for name in names],
        [remove(name) for name in names[1::2]] + [add(name, size=2) for name in names[::2]],
    ]
    found = survivors(history, slice_bytes=slice_bytes)
    assert sorted(found.removes["path"].to_pylist()) == sorted(names[1::2])
    assert found.adds.num_rows == 30


@pytest.mark.parametrize("position", range(0, 12, 5))
@pytest.mark.parametrize("slice_bytes", [1, 300, 700])
def test_a_file_that_newer_commits_mention_is_warned_of_too(
    position: int, slice_bytes: int
) -> None:
    names = [f"f{number}" for number in range(12)]
    twice = names[position]
    history = [
        [add(name) for name in names],
        [*(remove(name) for name in names), add(twice, size=5)],
        [add(name, size=2) for name in names],
    ]
    with pytest.warns(DeltaWarning, match=f"commit 1 has more than one .* file '{twice}'"):
        found = survivors(history, slice_bytes=slice_bytes)
    assert {row["size"] for row in rows(found.adds)} == {2}


def test_base_rows_that_a_commit_mentions_are_overridden() -> None:
    replay_ = NewestFirst(table=TABLE)
    base = parse_commits(
        contents([[add("a"), add("b", deletionVector=VECTOR), add("b"), add("S3://bucket/c")]]),
        table=TABLE,
    ).files.adds
    assert replay_.survivors_of_base(base) is base
    tail = parse_commits(contents([[remove("b"), add("s3://bucket/c")]]), table=TABLE).files
    replay_.survivors(replay_.batch(tail))
    kept = replay_.survivors_of_base(base)
    assert [(r["path"], r["deletionVector"] is None) for r in kept.to_pylist()] == [
        ("a", True), ("b", False),
    ]  # fmt: skip
    assert replay_.survivors_of_base(base.slice(0, 0)).num_rows == 0


def test_columns_of_nulls_keep_their_length() -> None:
    found = survivors([[add("a"), add("b"), add("c", stats="{}")], [remove("b")]])
    found.adds.validate(full=True)
    assert [row["stats"] for row in rows(found.adds)] == [None, "{}"]
    assert found.adds["tags"].null_count == 2
