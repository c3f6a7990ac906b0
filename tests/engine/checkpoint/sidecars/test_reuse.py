"""What is read of a sidecar to tell whether it still holds: nothing, its paths, or its keys."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_delta.engine.arrow.action_schema import POSITION, VERSION, FileActions
from airflow_delta.engine.checkpoint.sidecars.layout import SidecarLayout, clustered, sidecar_layout
from airflow_delta.engine.checkpoint.sidecars.reuse import Inspector, JudgedSidecar, SortedKeys
from airflow_delta.engine.checkpoint.sidecars.tags import facts_of_tags
from airflow_delta.engine.checkpoint.sidecars.write import new_sidecars
from airflow_delta.engine.model.actions import Sidecar
from airflow_delta.engine.replay.reconcile import ReconciledCommits, reconcile_commits
from tests.engine.checkpoint.contents import (
    METADATA,
    PROTOCOL_V2,
    add_row,
    add_table,
    memory,
    remove_row,
    remove_table,
)
from tests.faulty_storage import FaultyStorage

LAYOUT: SidecarLayout = sidecar_layout(PROTOCOL_V2, METADATA, table="t")
VECTOR = {
    "storageType": "u",
    "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^",
    "offset": 4,
    "sizeInBytes": 40,
    "cardinality": 6,
}
ADDS = add_table([add_row(n, path=path) for n, path in enumerate("bdf")])
REMOVES = remove_table(
    [remove_row(n, path=p, deletionTimestamp=100 + n) for n, p in enumerate("bdf")]
)


def tail(*paths: str, **fields: Any) -> ReconciledCommits:
    """Commits that mention some files."""
    rows = add_table([add_row(9, path=path, **fields) for path in paths])
    rows = rows.append_column(VERSION, pa.array([1] * len(paths), pa.int64()))
    rows = rows.append_column(POSITION, pa.array(range(len(paths)), pa.int64()))
    return reconcile_commits(FileActions(rows, remove_in_commits()), table="t")


def remove_in_commits() -> pa.Table:
    empty = pa.array([], pa.int64())
    return remove_table([]).append_column(VERSION, empty).append_column(POSITION, empty)


class Judged:
    """A sidecar of some rows, judged, with what was read for it."""

    def __init__(
        self,
        kind: str,
        rows: pa.Table,
        commits: ReconciledCommits,
        *,
        oldest_ms: int = 0,
        tags: bool = True,
        stats_form: str = LAYOUT.stats_form,
    ) -> None:
        storage = FaultyStorage(memory())
        with new_sidecars(storage, LAYOUT, version=7, table="t") as files:
            (written,) = files.write(clustered([(kind, rows)]))
        self.action: Sidecar = written.action if tags else replace(written.action, tags=None)
        storage.calls.clear()
        self.inspector = Inspector(
            storage,
            commits,
            oldest_tombstone_ms=oldest_ms,
            stats_form=stats_form,
            checkpoint="the checkpoint",
        )
        self.verdict: JudgedSidecar = self.inspector.judge(self.action)
        self.reads = storage.count("open")

    @property
    def lost(self) -> tuple[int, int]:
        return self.verdict.lost_adds, self.verdict.lost_removes


@pytest.mark.parametrize("commits", [tail(), tail("a"), tail("g", "h"), tail("a", "f2")])
def test_keys_out_of_range_cost_nothing(commits: ReconciledCommits) -> None:
    for kind, rows in (("add", ADDS), ("remove", REMOVES)):
        judged = Judged(kind, rows, commits)
        assert (judged.verdict.holds, judged.reads) == (True, 0)


def test_a_new_path_within_the_range_costs_the_paths() -> None:
    judged = Judged("add", ADDS, tail("c", "e"))
    assert judged.verdict.holds
    assert judged.reads > 0


@pytest.mark.parametrize("path", ["b", "d", "f"])
def test_a_path_that_is_there_is_found_at_the_ends_too(path: str) -> None:
    assert Judged("add", ADDS, tail("a", path, "z")).lost == (1, 0)
    assert Judged("remove", REMOVES, tail("a", path, "z")).lost == (0, 1)


def test_another_deletion_vector_is_another_file() -> None:
    commits = tail("f", deletionVector=VECTOR)
    assert Judged("add", ADDS, commits).verdict.holds
    with_vector = add_table([add_row(1, path="f", deletionVector=VECTOR), add_row(2, path="a")])
    assert Judged("add", with_vector, commits).lost == (1, 0)
    assert Judged("add", with_vector, tail("f")).verdict.holds


@pytest.mark.parametrize(
    ("inside", "mentioned"),
    [
        ("file:/x%c3%a9", "file:///x%C3%A9"),
        ("/x%c3%a9", "/x%C3%A9"),
        ("l%c3%a9", "l%C3%A9"),
        ("./b", "b"),
        ("n//b", "n/b"),
    ],
)
def test_other_spellings_of_a_path_are_found(inside: str, mentioned: str) -> None:
    """Their texts may lie in no range of the sidecar's, so it must be read."""
    adds = add_table([add_row(1, path=inside), add_row(2, path="m")])
    judged = Judged("add", adds, tail(mentioned))
    assert judged.lost == (1, 0)
    facts = facts_of_tags(judged.action.tags)
    assert facts is not None
    assert facts.min_path is None


@pytest.mark.parametrize(
    ("oldest_ms", "lost", "read"),
    [(99, 0, False), (100, 1, True), (101, 2, True), (102, 3, False), (103, 3, False)],
)
def test_removes_expire_at_their_time(oldest_ms: int, lost: int, read: bool) -> None:
    """Where all have or none has, the tags tell; their order in time is that of sidecars."""
    judged = Judged("remove", REMOVES, tail(), oldest_ms=oldest_ms)
    assert judged.lost == (0, lost)
    assert (judged.reads > 0) == read
    kept = [
        row for table in judged.inspector.rows(judged.action, "remove") for row in table["path"]
    ]
    assert [str(path) for path in kept] == list("bdf")[lost:]


def test_a_remove_without_a_time_has_expired() -> None:
    removes = remove_table([remove_row(1, deletionTimestamp=None), remove_row(2)])
    assert Judged("remove", removes, tail()).lost == (0, 1)


def test_a_remove_that_is_both_expired_and_mentioned_counts_once() -> None:
    assert Judged("remove", REMOVES, tail("b"), oldest_ms=100).lost == (0, 1)


@pytest.mark.parametrize(("kind", "rows"), [("add", ADDS), ("remove", REMOVES)])
def test_a_sidecar_without_tags_is_read_and_tagged(kind: str, rows: pa.Table) -> None:
    ours = Judged(kind, rows, tail("d", "x"))
    other = Judged(kind, rows, tail("d", "x"), tags=False)
    assert other.lost == ours.lost
    assert other.verdict.facts == ours.verdict.facts
    assert other.verdict.action.tags == ours.action.tags


def test_adds_that_store_statistics_otherwise_do_not_fit() -> None:
    for tags in (True, False):
        judged = Judged("add", ADDS, tail(), stats_form="struct", tags=tags)
        assert not judged.verdict.holds
        assert judged.lost == (0, 0)
        assert Judged("remove", REMOVES, tail(), stats_form="struct", tags=tags).verdict.holds


@given(
    st.sets(st.text(max_size=3)),
    st.text(max_size=3),
    st.text(max_size=3),
)
def test_keys_between_are_those_whose_paths_are(paths: set[str], a: str, b: str) -> None:
    """Python orders texts by code points, and the range by their bytes in UTF-8: the same."""
    paths = {path.replace("\0", "") for path in paths}
    a, b = a.replace("\0", ""), b.replace("\0", "")
    keys = [key for path in sorted(paths) for key in (path, f"{path}\0u1@2")]
    found = SortedKeys(pa.array(keys[::-1], pa.string())).between(min(a, b), max(a, b))
    inside = {
        p for p in paths if min(a.encode(), b.encode()) <= p.encode() <= max(a.encode(), b.encode())
    }
    assert sorted(found.to_pylist()) == [
        key for key in sorted(keys) if key.split("\0")[0] in inside
    ]
