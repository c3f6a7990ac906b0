"""Reading commits in runs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_delta.engine.errors import ObjectNotFoundError
from airflow_delta.engine.log.segment import load_segment
from airflow_delta.engine.snapshot import commit_texts as module
from airflow_delta.engine.snapshot.commit_texts import commit_texts, unusual_paths
from airflow_delta.engine.storage.base import Capabilities
from airflow_delta.engine.storage.memory import MemoryStorage
from tests.log_builder import PROTOCOL, add, metadata
from tests.table_builder import MemoryTable, commit_file, commits, compaction, states

HISTORY = [[PROTOCOL, metadata()], [add("a")], [add("b")], [add("c")], [add("d")]]


class Runs(MemoryStorage):
    """A store that remembers what was read together."""

    def __init__(self, root: str, *, remote: bool = True) -> None:
        super().__init__(root)
        self.runs: list[list[str]] = []
        self.remote = remote

    @property
    def capabilities(self) -> Capabilities:
        return replace(super().capabilities, remote=self.remote)

    def read_many(self, paths: list[str]) -> list[bytes | None]:
        self.runs.append(list(paths))
        return super().read_many(paths)


@pytest.mark.parametrize(
    ("limit", "value", "lengths"),
    [("_RUN_FILES", 2, [2, 2, 1]), ("_RUN_BYTES", 1, [1] * 5), ("_RUN_BYTES", 1 << 20, [5])],
)
def test_runs_are_bounded_and_in_the_order_asked_for(
    monkeypatch: pytest.MonkeyPatch, limit: str, value: int, lengths: list[int]
) -> None:
    monkeypatch.setattr(module, limit, value)
    files = commits(HISTORY)
    with MemoryTable(files) as table:
        storage = Runs(table.uri)
        plan = reversed(load_segment(storage).plan())
        texts = list(commit_texts(storage, plan, table=table.uri))
    assert texts == [(version, files[commit_file(version)]) for version in (4, 3, 2, 1, 0)]
    assert [len(run) for run in storage.runs] == lengths


def test_a_run_is_read_when_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_RUN_FILES", 1)
    with MemoryTable(commits(HISTORY)) as table:
        storage = Runs(table.uri)
        texts = commit_texts(storage, load_segment(storage).plan(), table=table.uri)
        next(texts)
    assert storage.runs == [[commit_file(0)]]


def test_a_local_log_is_read_one_by_one() -> None:
    with MemoryTable(commits(HISTORY)) as table:
        storage = Runs(table.uri, remote=False)
        list(commit_texts(storage, load_segment(storage).plan(), table=table.uri))
    assert [len(run) for run in storage.runs] == [1] * 5


def test_a_commit_that_vanished_is_named() -> None:
    with MemoryTable(commits(HISTORY)) as table:
        segment = load_segment(table.storage)
        table.storage.delete([commit_file(3)])
        with pytest.raises(ObjectNotFoundError, match=f"{commit_file(3)} vanished"):
            list(commit_texts(table.storage, segment.plan(), table=table.uri))


def test_a_compaction_is_read_as_its_last_version() -> None:
    packed = compaction(states(HISTORY)[2], 2, expired=True)
    with MemoryTable({**commits(HISTORY), **packed}) as table:
        plan = load_segment(table.storage).plan()
        texts = commit_texts(table.storage, plan, table=table.uri)
        assert [version for version, _ in texts] == [2, 3, 4]
    assert unusual_paths(plan) == {2: next(iter(packed))}
