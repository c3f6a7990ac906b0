"""What is left out of a log that can't be read as it stands, and what is said of it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import CorruptLogError, DeltaWarning
from airflow_delta.engine.log.files import CompactedCommits
from airflow_delta.engine.log.segment import load_segment
from airflow_delta.engine.snapshot.segment_commits import parse_commit_files
from tests.faulty_storage import Fault, FaultyStorage
from tests.log_builder import PROTOCOL, add, metadata, remove, write_commit, write_table
from tests.table_builder import (
    FAR_FUTURE_MS,
    Action,
    Files,
    MemoryTable,
    classic_checkpoint,
    commit_file,
    commits,
    compaction,
    lines,
    state_of,
    states,
    v2_checkpoint,
)

HISTORY: list[list[Action]] = [
    [PROTOCOL, metadata(), add("a"), add("b")],
    [add("c"), {"txn": {"appId": "app", "version": 1}}],
    [remove("b", deletionTimestamp=FAR_FUTURE_MS), add("d")],
    [add("e"), metadata(configuration={"k": "v"})],
    [add("f"), remove("a", deletionTimestamp=FAR_FUTURE_MS)],
    [add("g")],
]
LAST = len(HISTORY) - 1
STATES = [state.visible() for state in states(HISTORY)]
CHECKPOINT = classic_checkpoint(STATES[1], 1)


def name(start: int, end: int) -> str:
    return f"_delta_log/{start:020}.{end:020}.compacted.json"


def compacted(*ranges: tuple[int, int]) -> Files:
    """Our own compactions of the history."""
    with MemoryTable(commits(HISTORY)) as table:
        for start, end in ranges:
            assert table.delta().compact_log(start, end).written
        return {name(*found): table.storage.read(name(*found)) for found in ranges}


@contextmanager
def warns_about(*expected: str) -> Iterator[None]:
    """The files that warnings are about, in their order."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always", DeltaWarning)
        yield
    assert len(found) == len(expected), [str(warning.message) for warning in found]
    for warning, path in zip(found, expected, strict=True):
        assert f"{path} " in str(warning.message).split(" can't be used")[0] + " "


def ranges_read(table: MemoryTable) -> list[tuple[int, int]]:
    plan = table.delta().snapshot().segment.plan()
    return [(c.start, c.end) for c in plan if isinstance(c, CompactedCommits)]


# Compactions.


@pytest.mark.parametrize("start", [0, 2])
def test_a_compaction_that_lost_lines_at_its_end_is_found_out(start: int) -> None:
    """As a full disk or a broken copy leaves it: whole lines, each as it was written."""
    files = {**commits(HISTORY), **compacted((start, 4))}
    path = name(start, 4)
    whole = files[path].splitlines(keepends=True)
    assert len(whole) > 4
    for count in range(1, len(whole)):
        cut = {**files, path: b"".join(whole[:count])}
        with MemoryTable(cut) as table, warns_about(path):
            assert state_of(table.delta().snapshot()) == STATES[LAST]
    with MemoryTable(files) as table, warns_about():
        assert state_of(table.delta().snapshot()) == STATES[LAST]
        assert ranges_read(table) == [(start, 4)]


def test_no_checkpoint_is_made_of_a_compaction_that_lost_lines() -> None:
    cut = {path: content[: content[:-1].rindex(b"\n") + 1] for path, content in COMPACTED.items()}
    with MemoryTable({**commits(HISTORY), **CHECKPOINT, **cut}) as table:
        segment = load_segment(table.storage)
        # What tasks of Spark read.
        with pytest.raises(CorruptLogError, match=name(2, 4)):
            parse_commit_files(table.storage, segment.plan(), columns=(), table=table.uri)
        with warns_about(name(2, 4)):
            assert table.delta().checkpoint().written
        table.storage.delete(commits(HISTORY))
        with warns_about():
            assert state_of(table.delta().snapshot()) == STATES[LAST]


COMPACTED = compacted((2, 4))


def test_a_compaction_of_an_earlier_release_is_not_read() -> None:
    first, rest = COMPACTED[name(2, 4)].split(b"\n", 1)
    old = first[: first.index(b',"lines"')] + b"}}\n" + rest
    with MemoryTable({**commits(HISTORY), name(2, 4): old}) as table, warns_about():
        assert ranges_read(table) == []
        assert state_of(table.delta().snapshot()) == STATES[LAST]


def test_only_the_compaction_that_is_damaged_is_left_out() -> None:
    files = {**commits(HISTORY), **compacted((0, 1), (2, 3), (4, 5))}
    files[name(2, 3)] = files[name(2, 3)][:-1]
    with MemoryTable(files) as table:
        with warns_about(name(2, 3)):
            snapshot = table.delta().snapshot()
        assert [c.path for c in snapshot.segment.compactions] == [name(0, 1), name(4, 5)]
        with warns_about():
            assert state_of(snapshot) == STATES[LAST]


@pytest.mark.parametrize("kind", ["protocol", "metaData"])
def test_a_compaction_without_protocol_or_metadata_gives_way_to_the_commits(kind: str) -> None:
    files = compaction(STATES[1], 1, expired=True)
    ((path, content),) = files.items()
    lacking = [line for line in content.splitlines() if kind.encode() not in line]
    files = {**commits(HISTORY[:3]), path: b"\n".join(lacking)}
    with MemoryTable(files) as table, warns_about(path):
        assert state_of(table.delta().snapshot()) == STATES[2]


def test_a_compaction_that_told_something_else_of_the_table_is_an_error() -> None:
    """The metadata has been read before the broken line is found."""
    old = lines([PROTOCOL, metadata(), {"add": {"path": 1}}])
    with MemoryTable({**commits(HISTORY), name(0, 3): old}) as table:
        snapshot = table.delta()._open()
        assert snapshot.metadata.configuration == {}
        with (
            pytest.warns(DeltaWarning, match=name(0, 3)),
            pytest.raises(CorruptLogError, match=rf"{name(0, 3)}, line 3"),
        ):
            snapshot.files()


# Checkpoints.


def test_a_damaged_checkpoint_beside_whole_compactions_is_blamed_alone() -> None:
    (path,) = CHECKPOINT
    with MemoryTable({**commits(HISTORY), **COMPACTED, path: b"PAR1 nonsense PAR1"}) as table:
        with warns_about(path):
            snapshot = table.delta().snapshot()
        assert [c.path for c in snapshot.segment.compactions] == [name(2, 4)]
        with warns_about():
            assert state_of(snapshot) == STATES[LAST]


def test_a_damaged_checkpoint_and_a_damaged_compaction_are_each_blamed_once() -> None:
    (path,) = CHECKPOINT
    damaged = {path: b"PAR1 nonsense PAR1", name(2, 4): COMPACTED[name(2, 4)] + b"{}\n"}
    with MemoryTable({**commits(HISTORY), **damaged}) as table, warns_about(path, name(2, 4)):
        assert state_of(table.delta().snapshot()) == STATES[LAST]


def test_a_broken_commit_is_blamed_alone() -> None:
    broken = {commit_file(LAST): b'{"add":{"path":1}}\n'}
    with (
        MemoryTable({**commits(HISTORY), **COMPACTED, **CHECKPOINT, **broken}) as table,
        warns_about(),
        pytest.raises(CorruptLogError, match=commit_file(LAST)),
    ):
        table.delta().snapshot()


V2 = v2_checkpoint(STATES[1], 1, form="json", sidecars=2)


def take_over(table: MemoryTable) -> None:
    """A newer checkpoint, and a cleanup that takes the older one with its sidecars."""
    table.put(classic_checkpoint(STATES[4], 4))
    table.storage.delete([*V2, *(commit_file(version) for version in range(4))])


def lose(table: MemoryTable) -> None:
    table.storage.delete([path for path in V2 if "_sidecars" in path])


@pytest.mark.parametrize(
    ("meanwhile", "blamed"),
    [(take_over, []), (lose, [path for path in V2 if "_sidecars" not in path])],
)
def test_a_sidecar_that_is_gone_is_damage_only_where_no_newer_checkpoint_took_over(
    meanwhile: Callable[[MemoryTable], None], blamed: list[str]
) -> None:
    with MemoryTable({**commits(HISTORY), **V2}) as table:
        delta = table.delta()
        # The first call for the file after the top level has been read.
        fault = Fault("open", 1, suffix=".parquet", meanwhile=lambda: meanwhile(table))
        delta.__dict__["storage"] = storage = FaultyStorage(table.storage, fault)
        with warns_about(*blamed):
            assert state_of(delta.snapshot()) == STATES[LAST]
        assert storage.met


@pytest.mark.parametrize("already_open", [False, True])
def test_a_broken_action_names_the_table_and_a_remedy(tmp_path: Path, already_open: bool) -> None:
    table = DeltaTable(str(write_table(tmp_path, [add("a")])))
    if already_open:
        table.snapshot()
    write_commit(tmp_path, 1, {"txn": {"appId": "app"}})
    with pytest.raises(CorruptLogError, match=r"1: txn.version: .* put the file back") as caught:
        table.snapshot().transactions  # noqa: B018
    assert caught.value.table == str(tmp_path)
