"""Compactions of the log: which ranges, what refuses, and that no reader is misled."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from deltalake import DeltaTable as Peer
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import (
    CorruptLogError,
    DeltaWarning,
    InvalidArgumentError,
    ObjectNotFoundError,
    StorageError,
    TableNotFoundError,
    UnsupportedFeatureError,
    VersionNotFoundError,
)
from airflow_delta.engine.log.files import CompactedCommits
from airflow_delta.engine.maintenance.log_compaction import plan as log_compaction
from airflow_delta.engine.maintenance.log_compaction.plan import (
    FEWEST,
    LogCompactionResult,
    execute_log_compaction,
    plan_log_compaction,
)
from tests.faulty_storage import Crash, Fault, FaultyStorage, How
from tests.laws.histories import histories, protocol
from tests.log_builder import PROTOCOL, add, metadata, remove
from tests.table_builder import (
    Action,
    MemoryTable,
    classic_checkpoint,
    commit_file,
    commits,
    compaction,
    state_of,
    states,
)

LAST = FEWEST + 2
HISTORY: list[list[Action]] = [
    [PROTOCOL, metadata(), add("old"), add("older")],
    [add("f1"), remove("old", deletionTimestamp=1)],
    *[[add(f"f{n}"), remove(f"f{n - 1}", deletionTimestamp=1)] for n in range(2, LAST + 1)],
]
STATES = states(HISTORY)


@pytest.fixture
def table() -> Iterator[MemoryTable]:
    with MemoryTable(commits(HISTORY)) as table:
        yield table


def compact(
    table: MemoryTable, start: int | None = None, end: int | None = None
) -> LogCompactionResult:
    plan = plan_log_compaction(table.storage, start=start, end=end)
    return execute_log_compaction(table.storage, plan)


def name(start: int, end: int) -> str:
    return f"_delta_log/{start:020}.{end:020}.compacted.json"


def files_read(table: MemoryTable, version: int | None = None) -> list[tuple[int, int]]:
    """The ranges of versions that the files hold which a reader opens after the checkpoint."""
    return [
        (file.start, file.end) if isinstance(file, CompactedCommits) else (file.version,) * 2
        for file in table.delta().snapshot(version=version).segment.plan()
    ]


def check(table: MemoryTable, first: int = 0) -> None:
    for version in range(first, LAST + 1):
        assert state_of(table.delta().snapshot(version=version)) == STATES[version].visible()


# Which range.


def test_without_a_range_the_commits_are_compacted_that_readers_read_one_by_one(
    table: MemoryTable,
) -> None:
    table.put(classic_checkpoint(STATES[1], 1))
    result = compact(table)
    assert (result.plan.start, result.plan.end, result.plan.path) == (2, LAST, name(2, LAST))
    # Each commit adds a file and removes the one before: an add and eleven removes are left.
    assert (result.written, result.num_actions) == (True, LAST)
    assert result.size_in_bytes == len(table.storage.read(name(2, LAST)))
    assert files_read(table) == [(2, LAST)]
    check(table, first=1)


def test_each_commit_is_compacted_once(table: MemoryTable) -> None:
    compact(table, start=1, end=2)
    result = compact(table)
    assert (result.plan.start, result.plan.end) == (3, LAST)
    assert files_read(table) == [(0, 0), (1, 2), (3, LAST)]
    again = compact(table)
    assert (again.written, again.plan.needed, again.plan.path) == (False, False, None)
    assert again.plan.reason is not None
    assert again.plan.reason.startswith(f"only 0 commits up to version {LAST}")
    check(table)


def test_few_commits_are_compacted_only_on_request(table: MemoryTable) -> None:
    table.put(classic_checkpoint(STATES[LAST - FEWEST + 1], LAST - FEWEST + 1))
    plan = plan_log_compaction(table.storage)
    assert plan.reason is not None
    assert plan.reason.startswith(f"only {FEWEST - 1} commits")
    planned = plan_log_compaction(table.storage, end=LAST)
    assert (planned.start, planned.end, planned.reason) == (LAST - FEWEST + 2, LAST, None)
    # One commit alone is as good as its compaction.
    assert plan_log_compaction(table.storage, end=LAST - FEWEST + 2).commits == ()


def test_compactions_that_may_bring_back_data_do_not_count(table: MemoryTable) -> None:
    poisoned = next(iter(compaction(STATES[3], 3, expired=False).values()))
    table.put({name(1, LAST): poisoned})
    assert files_read(table) == [(version, version) for version in range(LAST + 1)]
    plan = plan_log_compaction(table.storage)
    assert (plan.start, plan.end, plan.needed) == (0, LAST, True)


def test_an_existing_compaction_of_any_writer_is_kept(table: MemoryTable) -> None:
    table.put({name(1, 3): b"{}\n"})
    result = compact(table, 1, 3)
    assert (result.written, result.plan.reason) == (False, f"{name(1, 3)} exists already")
    assert table.storage.read(name(1, 3)) == b"{}\n"


def test_a_faster_writer_of_the_same_range_wins(table: MemoryTable) -> None:
    plan = plan_log_compaction(table.storage, start=1)
    assert execute_log_compaction(table.storage, plan).written
    first = table.storage.read(name(1, LAST))
    assert not execute_log_compaction(table.storage, plan).written
    assert table.storage.read(name(1, LAST)) == first


def test_planning_writes_nothing(table: MemoryTable) -> None:
    before = table.files()
    assert plan_log_compaction(table.storage).needed
    assert table.files() == before


def test_a_range_behind_the_checkpoint_serves_those_who_travel_in_time(table: MemoryTable) -> None:
    table.put(classic_checkpoint(STATES[6], 6))
    assert compact(table, 2, 5).written
    assert files_read(table, version=5) == [(0, 0), (1, 1), (2, 5)]
    assert compact(table, 4, 8).written
    assert files_read(table) == [(version, version) for version in range(7, LAST + 1)]
    check(table)


def test_much_text_is_compacted_bit_by_bit(
    table: MemoryTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = [len(table.storage.read(commit_file(version))) for version in range(3)]
    monkeypatch.setattr(log_compaction, "MOST_BYTES", sum(sizes))
    plan = plan_log_compaction(table.storage)
    assert (plan.start, plan.end) == (0, 2)
    with pytest.raises(InvalidArgumentError, match=r"at most \d.* are compacted at once"):
        plan_log_compaction(table.storage, start=0, end=3)
    monkeypatch.setattr(log_compaction, "MOST_BYTES", 1)
    with pytest.raises(InvalidArgumentError, match=r"commits 0 to 1 have .* write a checkpoint"):
        plan_log_compaction(table.storage)


# What refuses.


@pytest.mark.parametrize(
    ("start", "end", "error", "message"),
    [
        (1, LAST + 1, VersionNotFoundError, f"covers versions 0 to {LAST}"),
        (None, LAST + 1, VersionNotFoundError, f"covers versions 0 to {LAST}"),
        (LAST, None, VersionNotFoundError, f"the log ends at version {LAST}"),
        (LAST + 9, None, VersionNotFoundError, f"the log ends at version {LAST}"),
        (3, 3, InvalidArgumentError, "compact from version 3 to 3:"),
        (4, 3, InvalidArgumentError, "compact from version 4 to 3:"),
        (-1, 3, InvalidArgumentError, "-1"),
        (True, 3, InvalidArgumentError, "True"),
        (1, "3", InvalidArgumentError, "3"),
    ],
)
def test_a_range_that_is_none(
    table: MemoryTable, start: int, end: int, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        plan_log_compaction(table.storage, start=start, end=end)


def test_a_range_that_cleanup_has_shortened(table: MemoryTable) -> None:
    table.put(classic_checkpoint(STATES[4], 4))
    table.storage.delete([commit_file(version) for version in (0, 1, 2)])
    with pytest.raises(VersionNotFoundError, match="up to version 2; begin the range after") as e:
        plan_log_compaction(table.storage, start=1, end=6)
    assert (e.value.version, e.value.earliest, e.value.latest) == (1, 3, 6)
    # The protocol in force before the range is unknown.
    with pytest.raises(VersionNotFoundError, match="version 3 can't be loaded"):
        compact(table, 3, 6)
    assert compact(table, 5, 6).written
    # The checkpoint has the protocol of its commit.
    assert compact(table, 4, 6).written


def test_a_log_with_a_gap(table: MemoryTable) -> None:
    table.storage.delete([commit_file(5)])
    with pytest.raises(CorruptLogError, match="commit 5 is missing"):
        plan_log_compaction(table.storage)


def test_no_table() -> None:
    with MemoryTable({}) as table, pytest.raises(TableNotFoundError, match="no Delta table"):
        plan_log_compaction(table.storage)


def test_a_commit_that_vanishes_after_planning(table: MemoryTable) -> None:
    plan = plan_log_compaction(table.storage)
    table.storage.delete([commit_file(5)])
    with pytest.raises(ObjectNotFoundError, match="vanished after it was listed"):
        execute_log_compaction(table.storage, plan)
    assert name(0, LAST) not in table.files()


def with_feature(name: str) -> Action:
    known = protocol(set())["protocol"]
    return {"protocol": {**known, "writerFeatures": [*known["writerFeatures"], name]}}


def test_every_protocol_of_the_range_must_be_known(table: MemoryTable) -> None:
    after = LAST + 1
    table.put(
        commits(
            [*HISTORY, [with_feature("featureOfTheFuture")], [add("x")], [PROTOCOL], [add("y")]]
        )
    )
    with pytest.raises(UnsupportedFeatureError, match="featureOfTheFuture"):
        plan_log_compaction(table.storage, end=after + 1)
    before = table.files()
    # Dropped again: what was written under it may still have meant something else than to us.
    for start in (1, after, after + 1, after + 2):
        with pytest.raises(UnsupportedFeatureError, match="featureOfTheFuture"):
            compact(table, start, after + 3)
    assert table.files() == before
    assert compact(table, 1, LAST).written


def test_a_commit_of_no_bytes_behind_a_checkpoint_is_not_compacted(table: MemoryTable) -> None:
    """Whoever opens the table doesn't meet it; a compaction would pass it off as an empty commit."""
    table.put(classic_checkpoint(STATES[3], 3))
    table.put({commit_file(2): b""})
    with pytest.raises(CorruptLogError, match=f"{commit_file(2)} has zero bytes"):
        compact(table, 1, 5)


def test_a_log_that_takes_several_commits_to_become_a_table(table: MemoryTable) -> None:
    history: list[list[Action]] = [
        [PROTOCOL],
        [{"txn": {"appId": "a", "version": 1}}],
        [metadata()],
    ]
    files = commits([*history, [add("x")]])
    with MemoryTable(files) as other:
        assert compact(other, 0, 3).num_actions == 4
        assert state_of(other.delta().snapshot()) == states([*history, [add("x")]])[3].visible()


@pytest.mark.parametrize("planned", [False, True])
def test_the_empty_file_of_a_dead_writer_is_replaced(table: MemoryTable, planned: bool) -> None:
    """Before it is planned, and after."""
    path, plan = name(1, 3), plan_log_compaction(table.storage, start=1, end=3)
    table.put({path: b""})
    if not planned:
        plan = plan_log_compaction(table.storage, start=1, end=3)
    assert execute_log_compaction(table.storage, plan).written
    assert table.storage.read(path)
    assert not compact(table, 1, 3).written


# What readers see.


@settings(max_examples=25)
@given(st.data(), histories())
def test_any_compactions_give_every_version_as_before(
    data: st.DataObject, history: list[list[Action]]
) -> None:
    expected = states(history)
    last = len(history) - 1
    ranges = data.draw(st.lists(st.tuples(st.integers(0, last), st.integers(0, last)), max_size=3))
    with MemoryTable(commits(history)) as table, warnings.catch_warnings():
        warnings.simplefilter("ignore", DeltaWarning)
        if data.draw(st.booleans()):
            table.put(classic_checkpoint(expected[last // 2], last // 2))
        for start, end in ranges:
            if start < end:
                compact(table, start, end)
        for version, state in enumerate(expected):
            assert state_of(table.delta().snapshot(version=version)) == state.visible()


def test_the_scenario_of_the_lost_tombstone() -> None:
    """L5: the removed file lies before the range, the removal was ten days ago."""
    with MemoryTable(
        commits(
            [
                [PROTOCOL, metadata(), add("f")],
                [add("g")],
                [remove("f", deletionTimestamp=1)],
            ]
        )
    ) as lost:
        assert compact(lost, 1, 2).written
        assert files_read(lost) == [(0, 0), (1, 2)]
        assert lost.delta().snapshot().files(columns=["path"])["path"].to_pylist() == ["g"]


def test_the_peer_reads_the_table_as_before(sales_copy: Path) -> None:
    before = Peer(str(sales_copy)).file_uris()
    table = DeltaTable(str(sales_copy))
    plan = plan_log_compaction(table.storage, start=1)
    assert execute_log_compaction(table.storage, plan).written
    peer = Peer(str(sales_copy))
    assert (peer.version(), sorted(peer.file_uris())) == (3, sorted(before))
    assert [info["version"] for info in peer.history()] == [3, 2, 1, 0]
    assert len(table.history()) == 4
    assert sorted(table.snapshot().file_uris()) == sorted(before)


def test_whatever_fails_there_is_a_whole_compaction_or_none() -> None:
    with MemoryTable(commits(HISTORY)) as table:
        storage = FaultyStorage(table.storage)
        execute_log_compaction(storage, plan_log_compaction(storage, start=1))
        calls = len(storage.calls)
        whole = table.storage.read(name(1, LAST))
    for how in How:
        for nth in range(1, calls + 1):
            with MemoryTable(commits(HISTORY)) as table:
                storage = FaultyStorage(table.storage, Fault("*", nth, how))
                with suppress(StorageError, Crash):
                    execute_log_compaction(storage, plan_log_compaction(storage, start=1))
                    assert name(1, LAST) in table.files()
                assert table.files().get(name(1, LAST), whole) == whole
                assert compact(table, start=1).plan.path == name(1, LAST)
                assert files_read(table) == [(0, 0), (1, LAST)]
                assert state_of(table.delta().snapshot()) == STATES[LAST].visible()
