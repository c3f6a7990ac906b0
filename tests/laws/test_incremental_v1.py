"""The law of incremental classic checkpoints: they hold what full ones hold, generation after generation.

Random histories are checkpointed along the way, each checkpoint made from the one before. Its actions must
be those of a full checkpoint of the version, and those that `replay` finds with dictionaries; and readers
must see that state when nothing but the checkpoint is left. Row groups hold a few rows here, so that they
are copied, filtered, emptied and merged all the time.
"""

from __future__ import annotations

import io
from collections import Counter
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from airflow_delta.engine.checkpoint import action_rows, classic_reuse
from airflow_delta.engine.checkpoint.incremental_v1 import (
    has_files_inline,
    write_incremental_classic,
)
from airflow_delta.engine.checkpoint.read import open_checkpoint
from airflow_delta.engine.checkpoint.write import (
    CheckpointContent,
    CheckpointWritten,
    NonFileContent,
    write_classic_checkpoint,
)
from airflow_delta.engine.log.files import ClassicCheckpoint, checkpoint_path
from airflow_delta.engine.snapshot.action_stream import stream_file_actions
from airflow_delta.engine.snapshot.segment_commits import SegmentCommits
from airflow_delta.engine.snapshot.snapshot import Snapshot
from tests.deep import deep_but_for
from tests.laws.histories import histories
from tests.laws.test_incremental_v2 import CLOCK, Life, Rows, by_key, expected, timed
from tests.table_builder import (
    Action,
    Files,
    MemoryTable,
    State,
    classic_checkpoint,
    commit_file,
    commits,
    lines,
    multipart_checkpoint,
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


@pytest.fixture(autouse=True)
def small_row_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(action_rows, "_GROUP_ROWS", 4)


@pytest.fixture
def outcomes(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often which fate befell a row group."""
    counted: Counter[str] = Counter()
    judge = classic_reuse.Judge.judge

    def counting(self: Any, ours: Any, *, merge: bool) -> Any:
        judged = judge(self, ours, merge=merge)
        if judged.rows is not None:
            counted["merged"] += 1
        elif judged.encoded is None:
            counted["emptied"] += 1
        else:
            counted["copied" if judged.encoded.file is ours.stored else "filtered"] += 1
        return judged

    monkeypatch.setattr(classic_reuse.Judge, "judge", counting)
    return counted


def small_of(snapshot: Snapshot) -> NonFileContent:
    return NonFileContent(
        protocol=snapshot.protocol,
        metadata=snapshot.metadata,
        transactions=tuple(snapshot.transactions.values()),
        domains=tuple(snapshot.domains.values()),
    )


def full(table: MemoryTable, version: int, oldest_ms: int) -> CheckpointWritten:
    """Write a checkpoint of all that the log tells."""
    snapshot = table.delta().snapshot(version=version)
    small = small_of(snapshot)
    content = CheckpointContent(
        small.protocol,
        small.metadata,
        small.transactions,
        small.domains,
        files=stream_file_actions(snapshot.state, oldest_tombstone_ms=oldest_ms),
    )
    return write_classic_checkpoint(
        table.storage, content, version=version, table=snapshot.table, replaces=True
    )


def incremental(table: MemoryTable, version: int, oldest_ms: int) -> CheckpointWritten:
    """Write one from the previous one."""
    snapshot = table.delta().snapshot(version=version)
    segment = snapshot.segment
    assert segment.checkpoint is not None
    reader = open_checkpoint(table.storage, segment.checkpoint, table=table.uri)
    assert has_files_inline(segment.checkpoint, reader)
    return write_incremental_classic(
        table.storage,
        small_of(snapshot),
        segment.checkpoint,
        SegmentCommits(table.storage, segment.plan(), table=segment.table).files(None),
        oldest_tombstone_ms=oldest_ms,
        version=version,
        table=snapshot.table,
        replaces=True,
    )


def stored(table: MemoryTable, version: int) -> tuple[Rows, Rows]:
    """The adds and the removes that the checkpoint of a version holds."""
    info = table.storage.head(checkpoint_path(version))
    checkpoint = ClassicCheckpoint(version, info.path, info.size, info.modified_ms)
    reader = open_checkpoint(table.storage, checkpoint, table=table.uri)
    return by_key(reader.adds()), by_key(reader.removes())


def footer_of(table: MemoryTable, version: int) -> Any:
    return pq.read_metadata(io.BytesIO(table.storage.read(checkpoint_path(version))))


def check_written(
    table: MemoryTable,
    written: CheckpointWritten,
    history: list[list[Action]],
    oldest_ms: int,
) -> None:
    """It has the actions of the version, a kind to a row group, and tells the right numbers."""
    version = written.version
    adds, removes = stored(table, version)
    assert (adds, removes) == expected(history, version, oldest_ms)
    assert written.num_adds == len(adds)
    assert written.adds_size_sum == sum(add["size"] for add in adds.values())
    footer = footer_of(table, version)
    assert written.num_actions == footer.num_rows
    assert written.size_in_bytes == table.storage.head(written.path).size
    places = {footer.schema.column(i).path: i for i in range(footer.num_columns)}
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        nulls = [
            group.column(places[leaf]).statistics.null_count
            for leaf in ("metaData.id", "add.path", "remove.path")
        ]
        assert len([n for n in nulls if n < group.num_rows]) == 1
        if number:
            assert 0 in nulls


def only_checkpoint(table: MemoryTable, version: int) -> Files:
    kept = {checkpoint_path(version), commit_file(version)}
    return {path: content for path, content in table.files().items() if path in kept}


def check_readers(table: MemoryTable, version: int, history: list[list[Action]]) -> None:
    """What readers see when nothing but the checkpoint is left."""
    with MemoryTable(only_checkpoint(table, version)) as left:
        seen = state_of(left.delta().snapshot())
    wanted = states(history)[version].visible()
    assert (seen.transactions, seen.domains) == (wanted.transactions, wanted.domains)
    assert (seen.protocol, seen.metadata) == (wanted.protocol, wanted.metadata)
    assert seen.files.keys() == wanted.files.keys()


@MANY
@given(st.data(), histories())
def test_each_generation_equals_a_full_checkpoint(
    data: st.DataObject, history: list[list[Action]]
) -> None:
    history = timed(data, history)
    last = len(history) - 1
    versions = sorted(data.draw(st.sets(st.integers(0, last), min_size=2)))
    files = commits(history)
    with MemoryTable({}) as table:
        previous = 0
        for version in versions:
            # As in life: the log ends where it is checkpointed.
            table.put({commit_file(v): files[commit_file(v)] for v in range(previous, version + 1)})
            previous = version + 1
            oldest_ms = CLOCK + 100 * version
            write = full if version == versions[0] else incremental
            check_written(table, write(table, version, oldest_ms), history, oldest_ms)
            with MemoryTable(commits(history[: version + 1])) as other:
                full(other, version, oldest_ms)
                assert stored(table, version) == stored(other, version)
                assert footer_of(table, version).schema == footer_of(other, version).schema
            check_readers(table, version, history)


@pytest.mark.parametrize("seed", deep_but_for(range(3), 1))
def test_a_long_life(monkeypatch: pytest.MonkeyPatch, outcomes: Counter[str], seed: int) -> None:
    """Tombstones live for five commits. Merging keeps the number of row groups in bounds."""
    monkeypatch.setattr(action_rows, "_GROUP_ROWS", 16)
    life, now = Life(seed), 100
    with MemoryTable({commit_file(0): lines(life.history[0])}) as table:
        full(table, 0, now)
        for version in range(1, 25):
            now += 10
            table.put({commit_file(version): lines(life.commit(now))})
            if version % (1 + seed % 3):
                continue
            written = incremental(table, version, now - 50)
            check_written(table, written, life.history, now - 50)
            # But for one of each kind, they are half full at least; one has what isn't files.
            files = sum(map(len, stored(table, version)))
            assert footer_of(table, version).num_row_groups <= files / 8 + 3
    assert min(outcomes[fate] for fate in ("copied", "filtered", "merged")) >= 3


def foreign(form: str, state: State, version: int) -> Files:
    """A checkpoint of another writer that has its file actions in Parquet files of its own."""
    if form == "parts":
        return multipart_checkpoint(state, version, parts=3)
    if form == "v1":
        return classic_checkpoint(state, version)
    return v2_checkpoint(state, version, form=form, sidecars=0)


@MANY
@given(st.data(), histories(features={"v2Checkpoint"}))
def test_a_checkpoint_of_another_writer_is_a_base_too(
    data: st.DataObject, history: list[list[Action]]
) -> None:
    first = data.draw(st.integers(0, len(history) - 2))
    form = data.draw(st.sampled_from(["v1", "parts", "parquet", "classic"]))
    later = {commit_file(v): lines(history[v]) for v in range(first, len(history))}
    versions = data.draw(st.sets(st.integers(first + 1, len(history) - 1), min_size=1))
    with MemoryTable({commit_file(first): later[commit_file(first)]}) as table:
        table.put(foreign(form, states(history)[first], first))
        previous = first
        for version in sorted(versions):
            table.put({commit_file(v): later[commit_file(v)] for v in range(previous, version + 1)})
            previous = version
            check_written(table, incremental(table, version, CLOCK), history, CLOCK)
            check_readers(table, version, history)
