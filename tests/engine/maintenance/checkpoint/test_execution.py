"""Checkpoints over damage, and the hint that is written after them."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_delta.engine.errors import CorruptLogError, DeltaWarning, StorageError
from airflow_delta.engine.log.compacted import pledged
from airflow_delta.engine.log.last_checkpoint import read_last_checkpoint
from airflow_delta.engine.maintenance.checkpoint.execution import (
    execute_checkpoint,
    plan_checkpoint,
)
from airflow_delta.engine.storage.memory import MemoryStorage
from tests.faulty_storage import Fault, FaultyStorage, How
from tests.laws.histories import protocol
from tests.log_builder import PROTOCOL, add, metadata, remove
from tests.table_builder import (
    FAR_FUTURE_MS,
    Action,
    MemoryTable,
    classic_checkpoint,
    commit_file,
    commits,
    compaction,
    hint,
    lines,
    multipart_checkpoint,
    state_of,
    states,
    v2_checkpoint,
)

STATS = json.dumps({"numRecords": 3})
HISTORY: list[list[Action]] = [
    [PROTOCOL, metadata(), add("a", stats=STATS), add("b", stats=STATS)],
    [remove("a", deletionTimestamp=FAR_FUTURE_MS), {"txn": {"appId": "app", "version": 1}}],
    [add("c", stats=STATS)],
]
HINT = "_delta_log/_last_checkpoint"
CHECKPOINT = "_delta_log/00000000000000000002.checkpoint.parquet"
STATES = states(HISTORY)


@pytest.fixture
def table() -> Iterator[MemoryTable]:
    with MemoryTable(commits(HISTORY)) as table:
        yield table


def hinted(table: MemoryTable) -> int | None:
    found = read_last_checkpoint(table.storage)
    return None if found is None else found.version


def damage(table: MemoryTable, kind: str, column: str) -> None:
    """Flip a bit in the values of one column of the checkpoint."""
    content = bytearray(table.storage.read(CHECKPOINT))
    footer = pq.read_metadata(pa.BufferReader(bytes(content)))
    for group in range(footer.num_row_groups):
        for index in range(footer.num_columns):
            chunk = footer.row_group(group).column(index)
            if chunk.path_in_schema == f"{kind}.{column}" and chunk.statistics.num_values:
                start = chunk.dictionary_page_offset or chunk.data_page_offset
                content[start + chunk.total_compressed_size - 1] ^= 1
    assert content != table.storage.read(CHECKPOINT)
    table.storage.replace(CHECKPOINT, bytes(content))


@pytest.mark.parametrize(
    ("kind", "column"),
    [("add", "modificationTime"), ("remove", "deletionTimestamp"), ("remove", "path")],
)
def test_damage_anywhere_in_a_checkpoint_is_repaired(
    table: MemoryTable, kind: str, column: str
) -> None:
    files = classic_checkpoint(STATES[2], 2)
    table.put(files)
    assert not table.delta().checkpoint(dry_run=True).plan.needed
    damage(table, kind, column)
    with pytest.warns(DeltaWarning, match=CHECKPOINT):
        assert table.delta().checkpoint(dry_run=True).plan.needed
    with pytest.warns(DeltaWarning, match=CHECKPOINT):
        assert table.delta().checkpoint().written
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert state_of(table.delta().snapshot()) == STATES[2].visible()
    assert not table.delta().checkpoint().written


def test_a_damaged_checkpoint_that_nothing_can_replace_is_an_error(table: MemoryTable) -> None:
    table.put(classic_checkpoint(STATES[2], 2))
    damage(table, "remove", "path")
    table.storage.delete([commit_file(0), commit_file(1)])
    before = table.files()
    with pytest.warns(DeltaWarning, match=CHECKPOINT), pytest.raises(CorruptLogError):
        table.delta().checkpoint()
    assert table.files() == before


@pytest.mark.parametrize("broken", [b'{"add":{"path":"x","stats":7}}\n', b"{\n"])
@pytest.mark.parametrize("ours", [True, False])
def test_a_damaged_compaction_is_no_obstacle(table: MemoryTable, broken: bytes, ours: bool) -> None:
    """Damage in a column that opening doesn't read shows when the checkpoint is written.

    Of another writer's compaction nothing shows whether it is whole, so that it isn't even opened.
    """
    ((path, content),) = compaction(STATES[1], 1, expired=True).items()
    if ours:
        text = (content + broken).rstrip(b"\n")
        content = pledged(0, 1, [text], lines=text.count(b"\n") + 1)
        table.put({path: content})
        with pytest.warns(DeltaWarning, match=f"{path}, line"):
            assert table.delta().checkpoint().num_files == 2
    else:
        table.put({path: content + broken})
        assert table.delta().checkpoint().num_files == 2
    assert state_of(table.delta().snapshot()) == STATES[2].visible()


@pytest.mark.parametrize(
    ("checkpoint", "parts"),
    [
        (classic_checkpoint(STATES[2], 2), None),
        (multipart_checkpoint(STATES[2], 2, parts=2), 2),
        (v2_checkpoint(STATES[2], 2, form="classic", sidecars=0), None),
    ],
    ids=["classic", "multi-part", "v2"],
)
@pytest.mark.parametrize("before", [{}, hint(0), hint(99)], ids=["absent", "older", "not there"])
def test_a_missing_hint_to_an_existing_checkpoint_is_written(
    table: MemoryTable, checkpoint: dict[str, bytes], parts: int | None, before: dict[str, bytes]
) -> None:
    table.put({**checkpoint, **before})
    assert not table.delta().checkpoint().written
    found = read_last_checkpoint(table.storage)
    assert found is not None
    # protocol, metadata, one transaction, two files, one tombstone; and the metadata of a V2 checkpoint
    assert (found.version, found.parts, found.num_of_add_files) == (2, parts, 2)
    (path, *_) = checkpoint
    rows = pq.read_table(pa.BufferReader(checkpoint[path]), columns=[]).num_rows
    assert found.size == (rows if parts is None else 6)


@pytest.mark.parametrize("version", [2, 3])
def test_a_hint_that_is_as_new_is_left_alone(table: MemoryTable, version: int) -> None:
    extra = commit_file(3)
    table.put({**classic_checkpoint(STATES[2], 2), **hint(version), extra: lines([add("d")])})
    before = table.storage.read(HINT)
    assert not table.delta().checkpoint(version=2).written
    assert table.storage.read(HINT) == before


def test_the_hint_of_a_faster_writer_stays(table: MemoryTable) -> None:
    """Another writer commits and checkpoints while this checkpoint is being written."""

    def be_faster() -> None:
        history = [*HISTORY, [add("d")], [add("e")]]
        files = {**commits(history), **classic_checkpoint(states(history)[4], 4), **hint(4)}
        table.put({path: content for path, content in files.items() if "0000.json" not in path})

    delta = table.delta()
    delta.storage = FaultyStorage(
        table.storage, Fault("writer", suffix=CHECKPOINT, meanwhile=be_faster)
    )
    assert delta.checkpoint().version == 2
    assert hinted(table) == 4


def test_a_hint_beyond_the_log_is_replaced(table: MemoryTable) -> None:
    table.put(hint(99))
    table.delta().checkpoint(version=1)
    assert hinted(table) == 1


def test_the_hint_costs_a_listing_where_there_is_no_newer_one(
    table: MemoryTable,
) -> None:
    table.put(hint(0))
    delta = table.delta()
    delta.storage = storage = FaultyStorage(table.storage)
    plan = delta.checkpoint(dry_run=True)
    assert plan.plan.needed
    looking = storage.count("list") + storage.count("head")
    delta.checkpoint()
    # For a newer checkpoint, which another writer may have made meanwhile.
    assert storage.count("list") + storage.count("head") == 2 * looking + 1


@pytest.mark.parametrize("present", [False, True])
def test_a_hint_that_fails_is_a_warning(table: MemoryTable, present: bool) -> None:
    if present:
        table.put(classic_checkpoint(STATES[2], 2))
    delta = table.delta()
    delta.storage = FaultyStorage(table.storage, Fault("replace", suffix=HINT, how=How.FAIL))
    with pytest.warns(DeltaWarning, match=r"checkpoint of version 2.*_last_checkpoint"):
        result = delta.checkpoint()
    assert result.written is not present
    assert hinted(table) is None
    assert state_of(table.delta().snapshot()) == STATES[2].visible()


def test_a_checkpoint_that_fails_is_an_error(table: MemoryTable) -> None:
    delta = table.delta()
    delta.storage = FaultyStorage(table.storage, Fault("writer", suffix=CHECKPOINT, how=How.FAIL))
    before = table.files()
    with pytest.raises(StorageError):
        delta.checkpoint()
    assert table.files() == before


def test_the_hint_to_a_v2_checkpoint_spares_reading_its_top_level(table: MemoryTable) -> None:
    history = [
        [protocol({"v2Checkpoint"}), *HISTORY[0][1:]],
        *HISTORY[1:],
    ]
    table.put({**commits(history), **classic_checkpoint(states(history)[0], 0)})
    delta = table.delta()
    snapshot = delta.snapshot()
    result = execute_checkpoint(delta.storage, snapshot, plan_checkpoint(snapshot, policy="v2"))
    found = read_last_checkpoint(table.storage)
    assert found is not None
    sidecars = [info.size for info in table.storage.walk("_delta_log/_sidecars")]
    assert (found.version, found.num_of_add_files, found.parts) == (2, 2, None)
    assert found.size_in_bytes == table.storage.head(result.path).size + sum(sidecars)
    # checkpointMetadata, protocol, metadata, one transaction, two sidecars; two files, one tombstone
    assert found.size == 9
    opened = table.delta().snapshot()
    assert opened.segment.checkpoint_actions is not None
    assert state_of(opened) == states(history)[2].visible()


V2_HISTORY = [[protocol({"v2Checkpoint"}), *HISTORY[0][1:]], *HISTORY[1:]]


@pytest.mark.parametrize("wrong", ["sidecars", "no sidecars", "name", "parts"])
def test_a_hint_that_is_wrong_about_a_checkpoint_is_written_anew(
    table: MemoryTable, wrong: str
) -> None:
    """It may point to a damaged checkpoint, whose writer could replace that and not the hint."""
    table.put({**commits(V2_HISTORY), **classic_checkpoint(states(V2_HISTORY)[0], 0)})
    assert table.delta().checkpoint(policy="v2").written
    right = read_last_checkpoint(table.storage)
    assert right is not None
    assert right.v2_checkpoint is not None
    assert not table.delta().checkpoint().written
    assert read_last_checkpoint(table.storage) == right
    if wrong == "parts":
        other = replace(right, parts=2)
    elif wrong == "name":
        name = f"{2:020}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json"
        other = replace(right, v2_checkpoint={**right.v2_checkpoint, "path": name})
    else:
        fewer: list[Any] = right.v2_checkpoint["sidecarFiles"][1:]
        fewer = fewer if wrong == "sidecars" else [{}, [], *fewer]
        other = replace(right, v2_checkpoint={**right.v2_checkpoint, "sidecarFiles": fewer})
    table.storage.replace(HINT, other.to_json().encode())
    assert not table.delta().checkpoint(2).written
    found = read_last_checkpoint(table.storage)
    assert found is not None
    assert (found.version, found.parts, found.v2_checkpoint) == (2, None, None)
    assert state_of(table.delta().snapshot()) == states(V2_HISTORY)[2].visible()


def test_the_checkpoint_of_a_faster_writer_is_not_replaced(table: MemoryTable) -> None:
    """Whoever reads it would have the file changed in the middle."""
    theirs = classic_checkpoint(STATES[2], 2)
    delta = table.delta()
    delta.__dict__["storage"] = FaultyStorage(
        table.storage, Fault("writer", suffix=CHECKPOINT, meanwhile=lambda: table.put(theirs))
    )
    result = delta.checkpoint()
    assert (result.written, result.plan.needed) == (False, False)
    assert result.plan.reason == f"another writer has published {CHECKPOINT} concurrently"
    assert table.storage.read(CHECKPOINT) == theirs[CHECKPOINT]


class Resending(MemoryStorage):
    """A store whose answers are lost, so that its client sends each exclusive put again."""

    def create(self, path: str, data: bytes) -> None:
        super().create(path, data)
        super().create(path, data)

    @contextmanager
    def writer(self, path: str, *, overwrite: bool) -> Iterator[BinaryIO]:
        with super().writer(path, overwrite=overwrite) as file:
            yield file
        if not overwrite:
            self.create(path, b"")


@pytest.mark.parametrize(
    ("before", "policy", "path"),
    [
        ("classic", "classic", CHECKPOINT),  # from the previous one
        ("v2", "v2", r".*\.json"),  # likewise
        (None, "v2", CHECKPOINT),
        (None, "classic", CHECKPOINT),
    ],
)
def test_a_checkpoint_whose_put_is_sent_again_is_ours(before: Any, policy: Any, path: str) -> None:
    """The second put meets the first one's file."""
    with MemoryTable(commits(V2_HISTORY)) as table:
        if before is not None:
            assert table.delta().checkpoint(1, policy=before).written
        delta = table.delta()
        delta.__dict__["storage"] = Resending(table.uri)
        result = delta.checkpoint(policy=policy)
        assert (result.written, result.plan.incremental) == (True, before is not None)
        assert re.fullmatch(path, result.path)
        assert (result.num_files, hinted(table)) == (2, 2)
        rely_on_newest(table)


def rely_on_newest(table: MemoryTable) -> None:
    table.storage.delete([commit_file(version) for version in range(3)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert state_of(table.delta().snapshot()) == states(V2_HISTORY)[2].visible()


def test_the_empty_file_of_a_dead_writer_is_replaced(table: MemoryTable) -> None:
    table.put({CHECKPOINT: b""})
    assert table.delta().checkpoint().written
    assert len(table.storage.read(CHECKPOINT)) > 0


def test_no_hint_is_written_to_a_checkpoint_that_counting_finds_damaged(
    table: MemoryTable,
) -> None:
    """A checkpoint that is only made if needed is not read to its end."""
    table.put(classic_checkpoint(STATES[2], 2))
    damage(table, "add", "path")
    with pytest.warns(DeltaWarning, match=CHECKPOINT):
        assert not table.delta().checkpoint(if_needed=True).written
    assert hinted(table) is None


@pytest.mark.parametrize("present", [True, False])
def test_what_cant_be_opened_is_replaced_before_the_next_is_due(
    table: MemoryTable, present: bool
) -> None:
    """Opening reads the smallest part of it: damage there is known without a further look."""
    table.put({**classic_checkpoint(STATES[0], 0), **classic_checkpoint(STATES[2], 2)})
    if not present:
        table.put({commit_file(3): lines([add("d")])})
    last = 2 if present else 3
    damage(table, "metaData", "id")
    with pytest.warns(DeltaWarning, match=CHECKPOINT):
        result = table.delta().checkpoint(if_needed=True)
    assert (result.written, result.version) == (True, last)
    assert result.plan.reason == f"the checkpoint {CHECKPOINT} is damaged"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = table.delta().checkpoint(if_needed=True)
        history = [*HISTORY, [add("d")]]
        assert state_of(table.delta().snapshot()) == states(history)[last].visible()
    assert (again.written, again.plan.commits_since) == (False, 0)


def test_what_is_damaged_within_is_not_looked_for_before_the_next_is_due(
    table: MemoryTable,
) -> None:
    table.put({**classic_checkpoint(STATES[2], 2), **hint(2)})
    damage(table, "add", "modificationTime")
    assert not table.delta().checkpoint(if_needed=True).written
    with pytest.warns(DeltaWarning, match=CHECKPOINT):
        assert table.delta().checkpoint().written
