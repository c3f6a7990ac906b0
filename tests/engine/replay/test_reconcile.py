"""Reconciliation of file actions against a dictionary that replays them one by one."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_delta.engine.arrow.json.reader import parse_commits
from airflow_delta.engine.errors import DeltaWarning
from airflow_delta.engine.replay.reconcile import ReconciledCommits, reconcile_commits
from tests.log_builder import add, remove

VECTOR = {"storageType": "u", "pathOrInlineDv": "x" * 20, "sizeInBytes": 3, "cardinality": 1}


def tail(*commits: list[dict]) -> ReconciledCommits:
    texts = [
        (version, "".join(json.dumps(a) + "\n" for a in [{}, *actions]).encode())
        for version, actions in enumerate(commits)
    ]
    return reconcile_commits(parse_commits(texts, table="t").files, table="t")


def paths(table: pa.Table) -> list[str]:
    return table["path"].to_pylist()


def test_a_removed_file_is_a_tombstone() -> None:
    state = tail([add("a"), add("b")], [remove("a")])
    assert (paths(state.adds), paths(state.removes)) == (["b"], ["a"])


def test_a_file_added_again_is_live() -> None:
    state = tail([add("a")], [remove("a")], [add("a", size=5)])
    assert (paths(state.adds), paths(state.removes)) == (["a"], [])
    assert state.adds["size"].to_pylist() == [5]


def test_a_new_deletion_vector_makes_another_file() -> None:
    state = tail([add("a")], [remove("a"), add("a", deletionVector={**VECTOR, "offset": 1})])
    assert state.adds["deletionVector"].to_pylist()[0]["offset"] == 1
    assert state.removes["deletionVector"].to_pylist() == [None]


def test_deletion_vectors_differ_by_their_offset() -> None:
    first, second = {**VECTOR, "offset": 1}, {**VECTOR, "offset": 2}
    state = tail(
        [add("a", deletionVector=first)],
        [remove("a", deletionVector=first), add("a", deletionVector=second)],
    )
    assert [v["offset"] for v in state.adds["deletionVector"].to_pylist()] == [2]
    assert [v["offset"] for v in state.removes["deletionVector"].to_pylist()] == [1]


def test_an_absolute_path_is_one_file_however_it_is_written() -> None:
    state = tail(
        [add("file:/data/a"), add("/data/b")], [remove("/data/a"), remove("file:///data/b")]
    )
    assert paths(state.adds) == []


def test_a_contradictory_commit_is_reported_and_its_last_line_taken() -> None:
    with pytest.warns(DeltaWarning, match=r"commit 1 has more than one action for the file 'a'"):
        state = tail([add("a")], [remove("a"), add("a")])
    assert paths(state.adds) == ["a"]


def test_the_rows_of_a_checkpoint_that_no_commit_mentions_survive() -> None:
    state = tail([remove("a"), add("c")])
    base = parse_commits(
        [(0, "".join(json.dumps(add(p)) + "\n" for p in "abc").encode())], table="t"
    ).files.adds
    assert paths(state.survivors(base)) == ["b"]


VECTORS = st.sampled_from([None, {**VECTOR, "offset": 1}, {**VECTOR, "offset": 2}, VECTOR])
ACTIONS = st.tuples(st.sampled_from(["add", "remove"]), st.sampled_from("abc"), VECTORS)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(ACTIONS, max_size=4, unique_by=lambda a: (a[1], str(a[2]))), max_size=6))
def test_reconciliation_agrees_with_a_dictionary(history: list[list[tuple]]) -> None:
    model: dict[tuple[str, str], str] = {}
    commits = []
    for actions in history:
        commits.append([])
        for kind, path, vector in actions:
            model[path, str(vector)] = kind
            fields = {"deletionVector": vector} if vector else {}
            commits[-1].append(add(path, **fields) if kind == "add" else remove(path, **fields))
    state = tail(*commits)

    def keys(table: pa.Table) -> set[tuple[str, str]]:
        return {
            (row["path"], str(without_nulls(row["deletionVector"]))) for row in table.to_pylist()
        }

    def without_nulls(vector: dict | None) -> dict | None:
        if vector is None:
            return None
        return {k: vector[k] for k in [*VECTOR, "offset"] if vector.get(k) is not None}

    assert keys(state.adds) == {key for key, kind in model.items() if kind == "add"}
    assert keys(state.removes) == {key for key, kind in model.items() if kind == "remove"}
