"""The law of incremental checkpoints: they hold what a full checkpoint holds, generation after generation.

Random histories are checkpointed along the way, each checkpoint made from the one before. What is in its
sidecars must be what a full checkpoint of the version has in its own, and what `replay` finds with
dictionaries; and readers must see that state when nothing but the checkpoint is left. Sidecars hold
two or three rows here, so that they are shared, rewritten, emptied and merged all the time.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from airflow_delta.engine.checkpoint import incremental_v2
from airflow_delta.engine.checkpoint.read import CheckpointReader, open_checkpoint
from airflow_delta.engine.checkpoint.sidecars import layout as sidecar_layout
from airflow_delta.engine.checkpoint.sidecars.reuse import Inspector
from airflow_delta.engine.checkpoint.v2 import sidecar_file
from airflow_delta.engine.log.listing import list_log
from airflow_delta.engine.maintenance.checkpoint import execution as checkpointing
from airflow_delta.engine.maintenance.checkpoint.execution import (
    CheckpointResult,
    execute_checkpoint,
    plan_checkpoint,
)
from airflow_delta.engine.snapshot.segment_commits import SegmentCommits
from tests.deep import deep_but_for
from tests.laws.histories import histories, protocol
from tests.log_builder import metadata
from tests.table_builder import (
    FAR_FUTURE_MS,
    Action,
    Files,
    Key,
    MemoryTable,
    commit_file,
    commits,
    key_of,
    lines,
    replay,
    state_of,
    states,
    v2_checkpoint,
)

MANY = settings(
    max_examples=8,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
CLOCK = 1000
"""Tombstones have deletion timestamps around it, and it moves on by a hundred per version."""

Rows = dict[Key, dict[str, Any]]


@pytest.fixture(autouse=True)
def small_sidecars(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sidecar_layout, "SIDECAR_ROWS", 3)
    monkeypatch.setattr(incremental_v2, "SIDECAR_ROWS", 3)
    monkeypatch.setattr(incremental_v2, "_SMALL_ROWS", 2)
    monkeypatch.setattr(incremental_v2, "_STEP", 2)


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Set the time before which tombstones have expired."""

    def moved(oldest_ms: int) -> None:
        monkeypatch.setattr(checkpointing, "_find_oldest_tombstone_ms", lambda snapshot: oldest_ms)

    return moved


def checkpointed(
    table: MemoryTable, version: int, *, incremental: bool | None = None
) -> CheckpointResult:
    """Write a V2 checkpoint of a version."""
    delta = table.delta()
    snapshot = delta.snapshot(version=version)
    plan = plan_checkpoint(snapshot, policy="v2")
    if incremental is not None:
        plan = replace(plan, incremental=incremental)
    return execute_checkpoint(delta.storage, snapshot, plan)


def reader_of(table: MemoryTable, version: int) -> CheckpointReader:
    found = [c for c in list_log(table.storage).checkpoints if c.version == version]
    return open_checkpoint(table.storage, found[-1], table=table.uri)


def stored(table: MemoryTable, version: int) -> tuple[Rows, Rows]:
    """The adds and the removes that the checkpoint of a version holds, expired ones too."""
    reader = reader_of(table, version)
    return by_key(reader.adds()), by_key(reader.removes())


def by_key(tables: Iterator[pa.Table]) -> Rows:
    rows = [comparable(row) for table in tables for row in table.to_pylist()]
    found = {key_of(row): row for row in rows}
    assert len(found) == len(rows), "a logical file is in the checkpoint twice"
    return found


def comparable(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row without nulls, dataChange and the layout of statistics."""
    told = {name: value for name, value in row.items() if value is not None}
    del told["dataChange"]
    for name in ("partitionValues", "tags"):
        if name in told:
            told[name] = dict(told[name])
    if "stats" in told:
        told["stats"] = json.loads(told["stats"])
    if "deletionVector" in told:
        told["deletionVector"] = {k: v for k, v in told["deletionVector"].items() if v is not None}
    return told


def expected(history: list[list[Action]], version: int, oldest_ms: int) -> tuple[Rows, Rows]:
    """The same by brute force."""
    state = replay(history[: version + 1])

    def rows(files: Mapping[Key, Action]) -> Rows:
        return {key: comparable({**row, "dataChange": False}) for key, row in files.items()}

    unexpired = {
        key: row
        for key, row in state.tombstones.items()
        if (row["deletionTimestamp"] or 0) > oldest_ms
    }
    return rows(state.files), rows(unexpired)


def check_sidecars(table: MemoryTable, version: int) -> None:
    """Adds and removes never share a sidecar of ours, and what tags tell is so."""
    reader = reader_of(table, version)
    snapshot = table.delta().snapshot(version=version)
    form = sidecar_layout.sidecar_layout(snapshot.protocol, snapshot.metadata, table="t").stats_form
    nothing = SegmentCommits(table.storage, (), table=table.uri).files(None)
    for sidecar in reader.sidecars:
        untagged = replace(sidecar, tags=None)
        file = sidecar_file(sidecar, table=table.uri, checkpoint=reader.path)
        assert table.storage.head(file.path).size == sidecar.size_in_bytes
        inspector = Inspector(
            table.storage, nothing, oldest_tombstone_ms=-1, stats_form="", checkpoint=reader.path
        )
        read = inspector.judge(untagged)
        assert read.facts.to_tags() == sidecar.tags
        assert read.facts.stats_form == (form if read.facts.num_adds else None)
        if file.path.count(".") > 3:  # ours
            assert not (read.facts.num_adds and read.facts.num_removes)


def timed(data: st.DataObject, history: list[list[Action]]) -> list[list[Action]]:
    """A history whose tombstones expire along the way, and whose statistics change their form."""
    forms = st.fixed_dictionaries(
        {
            "delta.checkpoint.writeStatsAsJson": st.sampled_from(["true", "false"]),
            "delta.checkpoint.writeStatsAsStruct": st.sampled_from(["true", "false"]),
        }
    )
    for commit in history:
        for action in commit:
            if "remove" in action:
                times = st.sampled_from(
                    [None, 1, CLOCK + 50, CLOCK + 250, CLOCK + 450, FAR_FUTURE_MS]
                )
                action["remove"]["deletionTimestamp"] = data.draw(times)
            if "metaData" in action:
                form = data.draw(forms)
                if form["delta.checkpoint.writeStatsAsStruct"] == "false":
                    form["delta.checkpoint.writeStatsAsJson"] = "true"  # or they would be lost
                action["metaData"]["configuration"].update(form)
    return history


@MANY
@given(st.data(), histories(features={"v2Checkpoint"}))
def test_each_generation_equals_a_full_checkpoint(
    at: Callable[[int], None], data: st.DataObject, history: list[list[Action]]
) -> None:
    history = timed(data, history)
    versions = sorted(
        data.draw(st.sets(st.integers(0, len(history) - 1), min_size=2, max_size=len(history)))
    )
    files = commits(history)
    with MemoryTable({}) as table:
        previous = 0
        for generation, version in enumerate(versions):
            # As in life: the log ends where it is checkpointed.
            table.put(
                {
                    path: files[path]
                    for v in range(previous, version + 1)
                    if (path := commit_file(v))
                }
            )
            previous = version + 1
            at(CLOCK + 100 * version)
            has_base = generation > 0 and bool(reader_of(table, versions[generation - 1]).sidecars)
            result = checkpointed(table, version)
            assert result.written
            assert result.plan.incremental == has_base
            found = stored(table, version)
            assert found == expected(history, version, CLOCK + 100 * version)
            assert found == stored_by_full_checkpoint(history, version)
            check_sidecars(table, version)
            alone = only_checkpoint(table, version, files)
            with MemoryTable(alone) as left:
                seen = state_of(left.delta().snapshot())
                wanted = states(history)[version].visible()
                assert (seen.transactions, seen.domains) == (wanted.transactions, wanted.domains)
                assert (seen.protocol, seen.metadata) == (wanted.protocol, wanted.metadata)
                assert seen.files.keys() == wanted.files.keys()


def stored_by_full_checkpoint(history: list[list[Action]], version: int) -> tuple[Rows, Rows]:
    with MemoryTable(commits(history[: version + 1])) as table:
        result = checkpointed(table, version, incremental=False)
        assert not result.sidecars_reused
        return stored(table, version)


def only_checkpoint(table: MemoryTable, version: int, files: Files) -> Files:
    """The files of a table without its commits before a checkpoint and without older checkpoints."""
    reader = reader_of(table, version)
    named = {f"_delta_log/_sidecars/{sidecar.path}" for sidecar in reader.sidecars}
    kept = {reader.path, commit_file(version), *named}
    return {path: content for path, content in table.files().items() if path in kept}


class Life:
    """A longer life of a partitioned table, from a seed: what tables go through, and some oddities.

    Args:
        seed: of the random numbers.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._live: dict[str, Action] = {}
        self._gone: list[str] = []
        self._number = 0
        self.history: list[list[Action]] = [
            [protocol({"v2Checkpoint"}), metadata(partition_columns=["part"])]
        ]

    def commit(self, now_ms: int) -> list[Action]:
        """Add a commit to the history."""
        draw, actions = self._random, []
        for _ in range(draw.choice((0, 1, 4, 9))):
            actions.append(self._add(draw.choice("abcdef"), now_ms))
        if self._live and draw.random() < 0.5:
            for path in draw.sample(sorted(self._live), min(len(self._live), draw.choice((1, 3)))):
                actions += self._change(path, now_ms)
        if draw.random() < 0.2:
            part = draw.choice("abcdef")
            for path in [
                p for p, add in self._live.items() if add["partitionValues"]["part"] == part
            ]:
                actions.append(self._remove(path, now_ms))
        actions.append({"txn": {"appId": draw.choice("xyz"), "version": now_ms}})
        # One action for each logical file: the last one.
        files = {key_of(v): {k: v} for a in actions for k, v in a.items() if k != "txn"}
        self.history.append([*files.values(), actions[-1]])
        return self.history[-1]

    def _add(self, part: str, now_ms: int) -> Action:
        self._number += 1
        name = f"{self._random.randrange(16**6):06x}-{self._number}"
        path = f"part={part}/{name}" if self._number % 7 else f"s3://other/{part}/{name}"
        if self._gone and self._random.random() < 0.2:
            path = self._gone.pop()
        self._live[path] = {
            "path": path,
            "partitionValues": {"part": part},
            "size": self._random.randrange(1000),
            "modificationTime": now_ms,
            "dataChange": True,
            "stats": json.dumps({"numRecords": self._number}),
        }
        return {"add": self._live[path]}

    def _remove(self, path: str, now_ms: int) -> Action:
        add = self._live.pop(path)
        self._gone.append(path)
        fields = {"path": path, "deletionTimestamp": now_ms, "dataChange": True}
        if "deletionVector" in add:
            fields["deletionVector"] = add["deletionVector"]
        return {"remove": fields}

    def _change(self, path: str, now_ms: int) -> list[Action]:
        if self._random.random() < 0.5:
            return [self._remove(path, now_ms)]
        add = self._live[path]
        removal = self._remove(path, now_ms)
        self._gone.remove(path)
        vector = {
            "storageType": "u",
            "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^",
            "offset": self._random.randrange(2**20),
            "sizeInBytes": 40,
            "cardinality": 1,
        }
        self._live[path] = {**add, "deletionVector": vector}
        return [removal, {"add": self._live[path]}]


@pytest.mark.parametrize("seed", deep_but_for(range(4), 1))
def test_a_long_life(monkeypatch: pytest.MonkeyPatch, at: Callable[[int], None], seed: int) -> None:
    """Tombstones live for five commits. Merging keeps the number of sidecars in bounds."""
    monkeypatch.setattr(sidecar_layout, "SIDECAR_ROWS", 8)
    monkeypatch.setattr(incremental_v2, "SIDECAR_ROWS", 8)
    monkeypatch.setattr(incremental_v2, "_SMALL_ROWS", 4)
    life, now, reused = Life(seed), 100, 0
    with MemoryTable({commit_file(0): lines(life.history[0])}) as table:
        checkpointed(table, 0)
        for version in range(1, 30):
            now += 10
            table.put({commit_file(version): lines(life.commit(now))})
            if version % (1 + seed % 3):
                continue
            at(now - 50)
            result = checkpointed(table, version)
            reused += result.sidecars_reused or 0
            found = stored(table, version)
            assert found == expected(life.history, version, now - 50)
            assert result.num_files == len(found[0])
            files = len(found[0]) + len(found[1])
            assert len(reader_of(table, version).sidecars) <= files / 4 + 10
            check_sidecars(table, version)
        assert reused > 20


@MANY
@given(st.data(), histories(features={"v2Checkpoint"}))
def test_a_checkpoint_of_another_writer_is_a_base_too(
    at: Callable[[int], None], data: st.DataObject, history: list[list[Action]]
) -> None:
    expected_states = states(history)
    first = data.draw(st.integers(0, len(history) - 2))
    form = data.draw(st.sampled_from(["json", "parquet", "classic"]))
    base = v2_checkpoint(
        expected_states[first], first, form=form, sidecars=data.draw(st.integers(0, 3))
    )
    at(CLOCK)
    later = {commit_file(v): lines(history[v]) for v in range(first, len(history))}
    with MemoryTable({**later, **base}) as table:
        last = len(history) - 1
        for version in sorted(data.draw(st.sets(st.integers(first + 1, last), min_size=1))):
            for other in range(version + 1, len(history)):
                table.storage.delete([commit_file(other)])
            assert checkpointed(table, version).written
            found_adds, found_removes = stored(table, version)
            adds, removes = expected(history, version, CLOCK)
            assert found_adds == adds
            # The other writer had dropped those that were long expired, as it may.
            assert found_removes == removes
            table.put(
                {commit_file(v): later[commit_file(v)] for v in range(version + 1, len(history))}
            )
