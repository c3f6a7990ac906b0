"""Log compactions of other writers that aren't reconciled: never used, the commits are read instead."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

from airflow_delta.engine.arrow.json.reader import parse_commits
from airflow_delta.engine.errors import CorruptLogError, DeltaWarning
from airflow_delta.engine.log.compacted import pledged
from airflow_delta.engine.log.segment import load_segment
from airflow_delta.engine.replay.newest_first import NewestFirst
from airflow_delta.engine.snapshot.opening import open_snapshot
from airflow_delta.engine.snapshot.snapshot import Snapshot
from tests.faulty_storage import FaultyStorage
from tests.log_builder import PROTOCOL, add, metadata, remove
from tests.table_builder import (
    FAR_FUTURE_MS,
    Action,
    MemoryTable,
    commit_file,
    commits,
    compaction,
    lines,
    state_of,
    states,
)

VECTOR = {"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "offset": 4}
VECTOR |= {"sizeInBytes": 40, "cardinality": 6}
TXN = {"txn": {"appId": "app", "version": 3}}
DOMAIN = {"domainMetadata": {"domain": "d", "configuration": "new", "removed": False}}

HISTORY: list[list[Action]] = [
    [PROTOCOL, metadata(), add("a"), add("b"), add("c")],
    [remove("a", deletionTimestamp=FAR_FUTURE_MS), {"txn": {"appId": "app", "version": 2}}],
    [add("d"), TXN, DOMAIN, add("c", deletionVector=VECTOR)],
    [add("e")],
]
END = 2
NAME = f"_delta_log/{0:020}.{END:020}.compacted.json"
RIGHT = compaction(states(HISTORY)[END], END, expired=True)[NAME]

TWICE: dict[str, list[Action]] = {
    "an add": [add("b")],
    "an add with other fields": [add("b", size=77)],
    "an add and its remove": [add("a")],
    "a remove and its add": [remove("b", deletionTimestamp=FAR_FUTURE_MS)],
    "a remove": [remove("a", deletionTimestamp=1)],
    "a file with its vector": [add("c", deletionVector=VECTOR)],
    "an application": [{"txn": {"appId": "app", "version": 2}}],
    "a domain": [{"domainMetadata": {"domain": "d", "configuration": "old", "removed": False}}],
    "a removed domain": [{"domainMetadata": {"domain": "d", "configuration": "", "removed": True}}],
    "the protocol": [PROTOCOL],
    "the metadata": [metadata(configuration={"x": "y"})],
}
ORDERS = ["first", "last"]


def table_with(actions: list[Action], order: str) -> MemoryTable:
    more = lines(actions)
    content = more + RIGHT if order == "first" else RIGHT + more
    return MemoryTable({**commits(HISTORY), NAME: content})


def test_a_compaction_as_it_should_be_is_read() -> None:
    """Its two files of one path are two logical files: they have different deletion vectors."""
    with MemoryTable({**commits(HISTORY), NAME: RIGHT}) as table:
        storage = FaultyStorage(table.storage)
        snapshot = Snapshot(storage, load_segment(storage))
        assert state_of(snapshot) == states(HISTORY)[-1].visible()
        read = ",".join(call.path for call in storage.calls if call.operation == "read_many")
        assert NAME in read
        assert commit_file(1) not in read


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("twice", TWICE)
def test_one_that_says_something_twice_is_never_used(twice: str, order: str) -> None:
    warning = r"compacted\.json can't be used .*more than one"
    with table_with(TWICE[twice], order) as table, pytest.warns(DeltaWarning, match=warning):
        assert state_of(table.delta().snapshot()) == states(HISTORY)[-1].visible()


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("twice", TWICE)
def test_the_check_reports_it(twice: str, order: str) -> None:
    with table_with(TWICE[twice], order) as table:
        report = table.delta().check(depth="log")
        found = [each for each in report.findings if each.code == "compaction-unreconciled"]
        assert [each.severity for each in found] == ["error"]
        assert "more than one" in found[0].message


@pytest.mark.parametrize("twice", TWICE)
def test_no_checkpoint_is_made_of_it(twice: str) -> None:
    with table_with(TWICE[twice], "last") as table:
        assert table.delta().checkpoint().written
        table.storage.delete([NAME, *(commit_file(version) for version in range(END + 1))])
        assert state_of(table.delta().snapshot()) == states(HISTORY)[-1].visible()


@pytest.mark.parametrize("order", ORDERS)
def test_where_its_commits_are_gone_the_table_is_refused(order: str) -> None:
    with table_with([add("b")], order) as table:
        table.storage.delete([commit_file(1)])
        with pytest.raises(CorruptLogError, match="commit 1 is missing") as raised:
            table.delta().snapshot()
        assert raised.value.version == 1


@pytest.mark.parametrize("twice", ["an add", "a remove and its add", "an application"])
def test_a_pledge_that_somebody_has_forged_helps_nothing(twice: str) -> None:
    text = (RIGHT + lines(TWICE[twice])).rstrip(b"\n")
    content = pledged(0, END, [text], lines=text.count(b"\n") + 1)
    with MemoryTable({**commits(HISTORY), NAME: content}) as table:
        with pytest.warns(DeltaWarning, match="more than one"):
            assert state_of(table.delta().snapshot()) == states(HISTORY)[-1].visible()
        with pytest.warns(DeltaWarning, match="more than one"):
            assert table.delta().checkpoint().written
        table.storage.delete([NAME, *(commit_file(version) for version in range(END + 1))])
        assert state_of(table.delta().snapshot()) == states(HISTORY)[-1].visible()


def test_a_line_that_is_missing_harms_nothing_that_can_not_be_taken_back(tmp_path: Path) -> None:
    """It was cut off at the end of a line, and says nothing twice. Readers can't know; vacuum needn't."""
    cut = b"".join(line for line in RIGHT.splitlines(keepends=True) if b'"path":"d"' not in line)
    assert cut != RIGHT
    with MemoryTable({**commits(HISTORY), NAME: cut}) as table:
        for path in ("b", "c", "d", "e"):
            table.put({path: b"x"})
            table.storage.set_modified(path, 1)
        found = open_snapshot(table.storage, verified=True)
        assert state_of(found) == states(HISTORY)[-1].visible()
        result = table.delta().vacuum(dry_run=True)
        assert "d" not in set(result.plan.files["path"].to_pylist())
        assert table.delta().checkpoint().written
        table.storage.delete([NAME, *(commit_file(version) for version in range(END + 1))])
        assert state_of(table.delta().snapshot()) == states(HISTORY)[-1].visible()


# In several batches, as large ones come


def replayed(batches: list[tuple[int, list[Action]]], compactions: dict[int, str]) -> None:
    replay = NewestFirst(table="t", compactions=compactions)
    for version, actions in batches:
        parsed = parse_commits([(version, lines(actions))], table="t")
        replay.survivors(replay.batch(parsed.files))


def test_a_file_that_comes_again_in_another_batch_is_found() -> None:
    batches: list[tuple[int, list[Any]]] = [(9, [add("z")]), (7, [add("a")]), (7, [add("a")])]
    with pytest.raises(CorruptLogError, match="more than one action for the file 'a'") as raised:
        replayed(batches, {7: NAME})
    assert (raised.value.version, raised.value.path) == (7, NAME)
    with pytest.warns(DeltaWarning, match="commit 7 has more than one"):
        replayed(batches, {})


def test_a_commit_that_contradicts_itself_hides_no_compaction_that_does() -> None:
    """Of commits the first case is warned of; compactions are looked at to the end."""
    batches: list[tuple[int, list[Any]]] = [
        (9, [add("z"), remove("z")]),
        (7, [add("a")]),
        (7, [add("b"), remove("a")]),
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeltaWarning)
        with pytest.raises(CorruptLogError, match="for the file 'a'"):
            replayed(batches, {7: NAME})
