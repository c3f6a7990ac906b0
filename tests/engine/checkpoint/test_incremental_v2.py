"""What an incremental checkpoint costs, and what it does with bases that aren't as they should be.

That it holds the right rows is a law: see ``tests/laws/test_incremental_v2.py``.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_delta.engine.checkpoint import incremental_v2
from airflow_delta.engine.checkpoint.incremental_v2 import choose_merged_sidecars
from airflow_delta.engine.checkpoint.read import open_checkpoint
from airflow_delta.engine.checkpoint.sidecars import layout as sidecar_layout
from airflow_delta.engine.errors import (
    DeltaWarning,
    InvalidTableError,
    StorageError,
    TableStateError,
)
from airflow_delta.engine.log.last_checkpoint import read_last_checkpoint
from airflow_delta.engine.log.listing import list_log
from airflow_delta.engine.maintenance.checkpoint import base as checkpoint_base
from airflow_delta.engine.maintenance.checkpoint.execution import (
    CheckpointResult,
    execute_checkpoint,
    plan_checkpoint,
)
from tests.faulty_storage import Fault, FaultyStorage, How
from tests.laws.histories import protocol
from tests.log_builder import add, metadata, remove
from tests.table_builder import (
    FAR_FUTURE_MS,
    Action,
    MemoryTable,
    checksum,
    commit_file,
    lines,
    state_of,
    states,
    v2_checkpoint,
)

PARTS = "abcdefgh"
PER_PART = 10


def file(part: str, number: int) -> Action:
    path = f"part={part}/{number:03}"
    return add(
        path, partitionValues={"part": part}, stats=f'{{"numRecords":{number}}}', size=number
    )


def gone(part: str, number: int, time: int = FAR_FUTURE_MS) -> Action:
    return remove(f"part={part}/{number:03}", deletionTimestamp=time)


CREATION: list[Action] = [
    protocol({"v2Checkpoint"}),
    metadata(partition_columns=["part"], configuration={"delta.checkpointPolicy": "v2"}),
    *(file(part, number) for number in range(PER_PART) for part in PARTS),
]


@pytest.fixture(autouse=True)
def small_sidecars(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sidecar for each partition, of ten rows; those of less than five are small."""
    monkeypatch.setattr(sidecar_layout, "SIDECAR_ROWS", PER_PART)
    monkeypatch.setattr(incremental_v2, "SIDECAR_ROWS", PER_PART)
    monkeypatch.setattr(incremental_v2, "_SMALL_ROWS", PER_PART // 2)


class Table:
    """A table with a checkpoint of its first version in eight sidecars."""

    def __init__(self, table: MemoryTable) -> None:
        self.table = table
        self.history: list[list[Action]] = []
        self.commit(CREATION)
        assert self.checkpoint().sidecars_written == len(PARTS)

    def commit(self, actions: list[Action]) -> None:
        self.table.put({commit_file(len(self.history)): lines(actions)})
        self.history.append(actions)

    def checkpoint(self) -> CheckpointResult:
        """Write a checkpoint, and see that it is right."""
        delta = self.table.delta()
        storage = delta.__dict__["storage"] = FaultyStorage(self.table.storage)
        snapshot = delta.snapshot()
        plan = plan_checkpoint(snapshot)
        before = {info.path: info.size for info in self.table.storage.walk("")}
        result = execute_checkpoint(storage, snapshot, plan)
        opened = {call.path for call in storage.calls if call.operation == "open"}
        self.opened = {path for path in opened & before.keys() if "_sidecars" in path}
        assert state_of(self.table.delta().snapshot()) == states(self.history)[-1].visible()
        new = {p: self.table.storage.head(p).size for p in self.table.files() if p not in before}
        assert result.bytes_written == sum(
            size for path, size in new.items() if "checkpoint." in path
        )
        return result

    def counts(self) -> tuple[int | None, int | None]:
        result = self.checkpoint()
        return result.sidecars_written, result.sidecars_reused


@pytest.fixture
def table() -> Iterator[Table]:
    with MemoryTable({}) as memory:
        yield Table(memory)


def test_an_append_to_new_partitions_opens_no_sidecar(table: Table) -> None:
    table.commit([file("x", 1), file("y", 1)])
    assert table.counts() == (1, 8)
    assert table.opened == set()


def test_an_append_to_a_partition_opens_only_that_of_the_partition(table: Table) -> None:
    table.commit([add("part=c/0045", partitionValues={"part": "c"})])
    assert table.counts() == (1, 8)
    assert len(table.opened) == 1


def test_a_commit_without_files_writes_only_the_top_level(table: Table) -> None:
    table.commit([{"txn": {"appId": "app", "version": 1}}])
    assert table.counts() == (0, 8)
    assert table.opened == set()


def test_deleting_a_partition_touches_its_sidecar_alone(table: Table) -> None:
    table.commit([gone("c", number) for number in range(PER_PART)])
    assert table.counts() == (1, 7)  # the tombstones
    assert len(table.opened) == 1


def test_a_removed_file_costs_its_sidecar(table: Table) -> None:
    table.commit([gone("c", 4)])
    assert table.counts() == (2, 7)
    assert len(table.opened) == 1


def test_what_is_left_of_a_sidecar_joins_the_new_files(table: Table) -> None:
    table.commit([*(gone("c", n) for n in range(PER_PART - 1)), file("x", 1)])
    assert table.counts() == (2, 7)


def test_tombstones_expire_by_the_sidecar(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    def at(now: int) -> None:
        monkeypatch.setattr(
            "airflow_delta.engine.maintenance.checkpoint.execution._find_oldest_tombstone_ms",
            lambda _: now,
        )

    at(0)
    for version, part in enumerate("ab", start=1):
        table.commit([gone(part, number, FAR_FUTURE_MS + version) for number in range(PER_PART)])
        assert table.counts()[0] == 1
    at(FAR_FUTURE_MS + 1)
    table.commit([{"txn": {"appId": "app", "version": 1}}])
    delta = table.table.delta()
    snapshot = delta.snapshot()
    result = execute_checkpoint(delta.storage, snapshot, plan_checkpoint(snapshot))
    # Six partitions and the second sidecar of tombstones; the first is left out, nothing is written.
    assert (result.sidecars_written, result.sidecars_reused) == (0, 7)
    assert table.table.delta().snapshot().tombstones(include_expired=True).num_rows == PER_PART


def test_a_change_of_the_form_of_statistics_writes_all_adds_anew(table: Table) -> None:
    properties = {"delta.checkpointPolicy": "v2", "delta.checkpoint.writeStatsAsStruct": "true"}
    table.commit([gone("a", 1)])
    assert table.counts() == (2, 7)
    table.commit([metadata(partition_columns=["part"], configuration=properties)])
    assert table.counts() == (8, 1)  # the tombstone doesn't have statistics
    table.commit([file("x", 1)])
    assert table.counts() == (1, 9)


def test_small_sidecars_are_merged(table: Table) -> None:
    before = 0
    for number in range(30):
        table.commit([file("x", number)])
        written, reused = table.counts()
        assert written is not None
        assert reused is not None
        assert written + reused <= 8 + number / 5 + 9
        before += written
    assert before <= 40


@pytest.mark.parametrize("sidecar", ["missing", "shorter"])
def test_a_sidecar_that_is_not_as_named_is_not_named_again(table: Table, sidecar: str) -> None:
    """Even where it needn't be opened. The commits are still there, so nothing is lost."""
    path = next(p for p in table.table.files() if "_sidecars" in p)
    if sidecar == "missing":
        table.table.storage.delete([path])
    else:
        table.table.put({path: table.table.storage.read(path)[:-1]})
    table.commit([file("x", 1)])
    with pytest.warns(DeltaWarning, match=r"can't be used .*_sidecars/"):
        assert table.counts() == (9, 0)


def kept_sidecar(table: MemoryTable) -> str:
    """One that the next checkpoint names again without opening it."""
    return min(path for path in table.files() if "_sidecars" in path)


def clean_up(table: Table, version: int) -> None:
    """What another writer may do who has a checkpoint of a later version."""
    named = f"{version:020}.checkpoint"
    memory = table.table
    (top,) = (p for p in memory.files() if named in p and "_sidecars" not in p)
    memory.storage.delete([top, kept_sidecar(memory)])


def interrupted(
    table: Table, meanwhile: Callable[[], object]
) -> tuple[Callable[[], CheckpointResult], FaultyStorage]:
    """A checkpoint from the previous one; and something that happens after it is published.

    Its sidecars are listed twice: before and after.
    """
    delta = table.table.delta()
    fault = Fault("list", nth=2, suffix="_sidecars", meanwhile=meanwhile)
    delta.__dict__["storage"] = storage = FaultyStorage(table.table.storage, fault)
    return delta.checkpoint, storage


def test_sidecars_that_vanish_while_they_are_named_again(table: Table) -> None:
    """The new checkpoint is taken back, and written in full."""
    table.commit([file("x", 1)])
    table.checkpoint()
    table.commit([file("x", 2)])
    run, storage = interrupted(table, lambda: clean_up(table, 1))
    with pytest.warns(DeltaWarning, match=r"can't be used .*_sidecars/.* is missing"):
        result = run()
    assert storage.met
    assert (result.written, result.sidecars_reused) == (True, 0)
    new = [found for found in list_log(table.table.storage).checkpoints if found.version == 2]
    assert [found.path for found in new] == [result.path]
    hint = read_last_checkpoint(table.table.storage)
    assert hint is not None
    assert hint.version == 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert state_of(table.table.delta().snapshot()) == states(table.history)[2].visible()


def test_a_checkpoint_that_can_not_be_taken_back_is_an_error(table: Table) -> None:
    """Told as what it is; the next run finds it damaged and replaces it."""
    table.commit([file("x", 1)])
    table.checkpoint()
    table.commit([file("x", 2)])
    delta = table.table.delta()
    vanish = Fault("list", nth=2, suffix="_sidecars", meanwhile=lambda: clean_up(table, 1))
    stay = Fault("delete", how=How.FAIL)
    delta.__dict__["storage"] = FaultyStorage(table.table.storage, vanish, stay)
    with pytest.raises(StorageError, match=r"sidecar .*_sidecars/.* and can't be taken back") as e:
        delta.checkpoint()
    assert (e.value.version, table.table.storage.head(e.value.path).size > 0) == (2, True)
    with pytest.warns(DeltaWarning, match="can't be used"):
        result = table.table.delta().checkpoint()
    assert (result.written, result.path) == (True, e.value.path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert state_of(table.table.delta().snapshot()) == states(table.history)[2].visible()


def test_a_checkpoint_that_nothing_can_make_whole_is_taken_back(table: Table) -> None:
    """The version itself was cleaned up: there is a later one by then."""
    table.commit([file("x", 1)])
    table.checkpoint()
    table.commit([file("x", 2)])
    last = [*table.history, [file("x", 3)]]

    def move_on() -> None:
        clean_up(table, 1)
        table.table.storage.delete([commit_file(version) for version in range(3)])
        table.table.put(v2_checkpoint(states(last)[3], 3, form="json", sidecars=2))
        table.table.put({commit_file(3): lines(last[3])})

    run, storage = interrupted(table, move_on)
    with pytest.raises(TableStateError):
        run()
    assert storage.met
    listed = list_log(table.table.storage).checkpoints
    assert {found.version for found in listed} == {0, 3}
    assert state_of(table.table.delta().snapshot()) == states(last)[3].visible()


def test_a_store_that_loses_a_new_sidecar_leaves_the_previous_checkpoint_in_use(
    table: Table,
) -> None:
    """Without the commits before it there is nothing else to begin with."""
    table.commit([file("x", 1)])
    table.table.storage.delete([commit_file(0)])
    delta = table.table.delta()

    def damage() -> None:
        new = max(path for path in table.table.files() if "_sidecars" in path)
        table.table.put({new: table.table.storage.read(new)[:-1]})

    fault = Fault("head", suffix=".parquet", meanwhile=damage)
    delta.__dict__["storage"] = storage = FaultyStorage(table.table.storage, fault)
    snapshot = delta.snapshot()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(StorageError, match=r"the store lost .* bytes, expected"):
            execute_checkpoint(storage, snapshot, plan_checkpoint(snapshot))
    assert not snapshot.state.excluded
    assert table.checkpoint().sidecars_reused == len(PARTS)


def test_sidecars_of_another_writer_get_their_bare_names(table: Table) -> None:
    state = states([CREATION])[0]
    base = v2_checkpoint(state, 0, form="json", sidecars=3)
    name = next(path for path in base if path.endswith(".json"))
    base[name] = base[name].replace(b'{"path":"', b'{"path":"s3://b/t/_delta_log/_sidecars/')
    assert base[name].count(b"s3://") == 3
    table.table.storage.delete([p for p in table.table.files() if "checkpoint" in p])
    table.table.put(base)
    table.commit([file("x", 1)])
    result = table.checkpoint()
    assert result.sidecars_reused == 3
    (found,) = (c for c in list_log(table.table.storage).checkpoints if c.version == 1)
    named = open_checkpoint(table.table.storage, found, table="t").sidecars
    assert not [sidecar.path for sidecar in named if "/" in sidecar.path]


def test_the_previous_top_level_is_read_once_to_plan_and_once_to_write(table: Table) -> None:
    """Where the hint doesn't repeat it; opening the table reads it too."""
    table.commit([file("x", 1)])
    table.checkpoint()
    table.table.storage.delete(["_delta_log/_last_checkpoint"])
    table.commit([file("x", 2)])
    delta = table.table.delta()
    delta.__dict__["storage"] = storage = FaultyStorage(table.table.storage)
    snapshot = delta.snapshot()
    top = snapshot.segment.checkpoint
    assert top is not None
    assert storage.count("read", top.path) == 1
    plan = plan_checkpoint(snapshot)
    assert plan.incremental
    assert storage.count("read", top.path) == 2
    execute_checkpoint(storage, snapshot, plan)
    assert storage.count("read", top.path) == 3


def test_many_commits_are_streamed(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """They needn't fit into memory, which all actions of a checkpoint from the previous one must."""
    table.commit([file("x", 1)])
    size = table.table.storage.head(commit_file(1)).size
    monkeypatch.setattr(checkpoint_base, "_COMMITS_BYTES", size)
    snapshot = table.table.delta().snapshot()
    plan = plan_checkpoint(snapshot)
    assert plan.incremental
    monkeypatch.setattr(checkpoint_base, "_COMMITS_BYTES", size - 1)
    assert not plan_checkpoint(snapshot).incremental
    # Recovery may have made the tail longer than it was planned with.
    result = execute_checkpoint(snapshot.storage, snapshot, plan)
    assert (result.sidecars_written, result.sidecars_reused) == (9, 0)


def test_file_actions_in_the_top_level_are_not_lost(table: Table) -> None:
    """Forbidden, but found: some actions in sidecars and some in the top level."""
    state = states([CREATION])[0]
    with_sidecars = v2_checkpoint(state, 0, form="json", sidecars=2)
    name = next(path for path in with_sidecars if path.endswith(".json"))
    with_sidecars[name] += lines([file("z", 1)])
    table.table.storage.delete([p for p in table.table.files() if "checkpoint" in p])
    table.history[0] = [*CREATION, file("z", 1)]
    table.table.put(with_sidecars)
    table.commit([file("x", 1)])
    result = table.checkpoint()
    assert (result.plan.incremental, result.sidecars_reused) == (False, 0)


def test_a_version_checksum_that_disagrees_is_an_error(table: Table) -> None:
    table.commit([file("x", 1)])
    table.table.put(checksum(states(table.history)[0], 1))
    files = table.table.files()
    with pytest.raises(InvalidTableError, match=r"would hold 81 live files, and .* has 80"):
        table.checkpoint()
    assert table.table.files() == files


def test_a_version_checksum_that_agrees_is_none(table: Table) -> None:
    table.commit([file("x", 1), gone("a", 0)])
    table.table.put(checksum(states(table.history)[1], 1))
    assert table.checkpoint().written


@pytest.mark.parametrize(
    ("new", "small", "expected"),
    [
        (1, [1] * 7, []),
        (1, [1] * 8, range(8)),
        (1, [9] * 20, []),  # larger ones wait for larger ones
        (9, [9] * 7 + [1], range(8)),  # smaller ones go along
        (1, [1] * 8 + [9] * 8, range(16)),  # what is merged may be enough to merge again
        (1, [1] * 8 + [9] * 7, range(8)),
        (0, [1] * 20, []),
        (30_000, [1] * 20, []),  # what is large needn't be merged
    ],
)
def test_which_sidecars_are_merged(
    monkeypatch: pytest.MonkeyPatch, new: int, small: list[int], expected: Sequence[int]
) -> None:
    monkeypatch.setattr(incremental_v2, "_SMALL_ROWS", 25_000)
    assert choose_merged_sidecars(new, small) == list(expected)


@given(st.lists(st.integers(1, 4), min_size=300, max_size=400))
def test_merging_costs_little_and_keeps_few(news: list[int]) -> None:
    """A row is written once for each step of eight that its sidecar grows, and few sidecars stay."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(incremental_v2, "_SMALL_ROWS", 512)
        small: list[int] = []
        written = 0
        for new in news:
            merged = choose_merged_sidecars(new, small)
            rows = new + sum(small[place] for place in merged)
            small = [n for place, n in enumerate(small) if place not in merged] + [rows]
            written += rows
            assert len([n for n in small if n < 512]) <= 8 * 3 + 1
        assert written <= 5 * sum(news)
