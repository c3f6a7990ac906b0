"""What a watcher finds new in a table."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.storage.location import open_storage
from airflow_delta.hooks.commit_mark import commit_mark
from airflow_delta.hooks.waits import new_versions
from airflow_delta.hooks.waits.new_versions import Filters, Mark, VersionPoll, VersionWatcher
from tests.airflow.managed_tables import commit, hand_over
from tests.airflow.watched_tables import Variables, WatchedTable, Watching, no_pauses
from tests.faulty_storage import FaultyStorage
from tests.log_builder import add, remove, write_table
from tests.object_stores import new_place


@pytest.fixture
def table(tmp_path: Path) -> WatchedTable:
    """A table of three versions."""
    made = WatchedTable(tmp_path / "sales")
    for operation in ("CREATE TABLE", "WRITE", "WRITE"):
        made.commit(operation)
    return made


@pytest.fixture(autouse=True)
def airflow_of_watchers(monkeypatch: pytest.MonkeyPatch) -> None:
    Variables().install(monkeypatch)
    no_pauses(monkeypatch)


def begun(table: WatchedTable, **filters: Any) -> Watching:
    """A watcher that has stored where it begins."""
    watching = Watching(table, **filters)
    assert watching.look() is None
    return watching


def test_all_versions_that_are_new_are_one_event(table: WatchedTable) -> None:
    watching = begun(table)
    assert watching.look() is None
    for operation in ("WRITE", "DELETE", "MERGE"):
        table.commit(operation)
    found = watching.look()
    assert found is not None
    assert found.pop("timestamp").startswith("20")
    assert found == {
        "table_uri": f"file://{table.root}",
        "table_id": "1",
        "after_version": 2,
        "version": 5,
        "operation": "MERGE",
        "task_run": None,
        "table_change": None,
    }
    assert watching.look() is None
    table.commit()
    assert watching.range() == (5, 6)


def test_a_look_at_a_table_with_nothing_new_is_one_request(table: WatchedTable) -> None:
    poll, opened = VersionPoll(), table.open()
    storage = FaultyStorage(opened.storage)
    opened.__dict__["storage"] = storage
    assert poll.look(opened) is not None
    for _ in range(5):
        storage.calls.clear()
        newest = poll.look(opened)
        assert newest is not None
        assert newest.version == 2
        assert [call.operation for call in storage.calls] == ["head"]


def test_a_table_that_is_opened_again_is_read_with_its_new_credentials(table: WatchedTable) -> None:
    poll = VersionPoll()
    for opened in (table.open(), table.open()):
        newest = poll.look(opened)
        assert newest is not None
        assert newest.storage is opened.storage


def test_a_table_that_appears_later_is_reported_as_a_whole(tmp_path: Path) -> None:
    table = WatchedTable(tmp_path / "later")
    watching = begun(table)
    (stored,) = watching.states._by_name["sales"].values.values()
    assert Mark.from_json(json.loads(stored)) == Mark(-1, -1)
    assert watching.look() is None
    table.commit("CREATE TABLE")
    table.commit()
    assert watching.range() == (-1, 1)


def test_only_some_operations_are_waited_for_and_no_version_is_left_out(
    table: WatchedTable,
) -> None:
    watching = begun(table, operations=("MERGE",))
    table.commit("OPTIMIZE")
    assert watching.look() is None
    table.commit("WRITE")
    assert watching.look() is None
    table.commit("MERGE")
    table.commit("OPTIMIZE")
    assert watching.range() == (2, 6)


def test_versions_add_up_over_several_looks(table: WatchedTable) -> None:
    watching = begun(table, min_new_versions=3, operations=("WRITE",))
    for operation, found in (
        ("WRITE", None),
        ("OPTIMIZE", None),
        ("WRITE", None),
        ("WRITE", (2, 6)),
        ("WRITE", None),
    ):
        table.commit(operation)
        assert watching.range() == found


def test_commits_that_change_no_row_can_be_left_out(table: WatchedTable) -> None:
    watching = begun(table, data_change_only=True)
    table.commit("OPTIMIZE", remove("file 1", dataChange=False), add("all", dataChange=False))
    table.commit("SET TBLPROPERTIES", {"txn": {"appId": '"dataChange":true', "version": 1}})
    assert watching.look() is None
    table.commit("DELETE", remove("file 2"))
    assert watching.range() == (2, 5)


def test_commits_that_nobody_can_read_any_more_count(
    table: WatchedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_delta.hooks.waits.new_versions._CONFIRM_EVERY", 1)
    watching = begun(table, operations=("MERGE",))
    table.commit()
    table.commit()
    table.open().checkpoint()
    for version in range(4):
        (table.root / "_delta_log" / f"{version:020}.json").unlink()
    assert watching.range() == (2, 4)


@pytest.mark.parametrize(
    ("operation", "change"),
    [
        ("RESTORE", "restored"),
        ("CREATE OR REPLACE TABLE AS SELECT", "replaced"),
        ("WRITE", None),
    ],
)
def test_an_operation_that_changes_the_table_as_a_whole_is_reported(
    table: WatchedTable, operation: str, change: str | None
) -> None:
    watching = begun(table)
    table.commit(operation)
    table.commit()
    found = watching.look()
    assert found is not None
    assert (found["after_version"], found["version"]) == (2, 4)
    assert found["table_change"] == change


def test_a_table_that_is_replaced_gets_another_id_in_the_same_log(table: WatchedTable) -> None:
    watching = begun(table)
    table.commit("WRITE", table_id="2")
    found = watching.look()
    assert found is not None
    assert (found["after_version"], found["table_id"]) == (2, "2")
    assert found["table_change"] == "replaced"


@pytest.mark.parametrize("new_versions", [1, 3, 5])
def test_a_table_that_is_created_again_is_reported_from_its_start(
    table: WatchedTable, new_versions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_delta.hooks.waits.new_versions._CONFIRM_EVERY", 1)
    watching = begun(table, operations=("MERGE",))
    table.delete_after(-1)
    for _ in range(new_versions):
        table.commit("WRITE", table_id="2" if table.version < 0 else None)
    found = watching.look()
    assert found is not None
    assert (found["after_version"], found["version"]) == (-1, table.version)
    assert (found["table_change"], found["table_id"]) == ("recreated", "2")
    assert watching.look() is None


@pytest.mark.parametrize("table_id", ["1", "2"])
@pytest.mark.parametrize("seen", ["missing", "later", "by another triggerer"])
def test_a_table_that_is_created_again_with_as_many_versions_is_reported(
    table: WatchedTable, seen: str, table_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_delta.hooks.waits.new_versions._CONFIRM_EVERY", 1)
    watching = begun(table)
    log = table.root / "_delta_log"
    age = (log / f"{2:020}.json").stat().st_mtime
    table.delete_after(-1)
    if seen == "missing":
        assert watching.look() is None
    for version in range(3):
        table.commit(table_id=None if version else table_id)
        os.utime(log / f"{version:020}.json", (age + 1, age + 1))
    if seen == "by another triggerer":
        watching.restart()
    found = watching.look()
    assert found is not None
    assert (found["after_version"], found["version"], found["table_id"]) == (-1, 2, table_id)
    assert found["table_change"] == ("rolled_back" if table_id == "1" else "recreated")
    assert watching.look() is None
    watching.restart()
    assert watching.look() is None


def test_an_unchanged_table_is_read_once_by_another_triggerer(table: WatchedTable) -> None:
    watching = begun(table)
    watching.restart()
    storage = FaultyStorage(watching.opened.storage)
    watching.opened.__dict__["storage"] = storage
    newest = watching.poll()
    storage.calls.clear()
    for _ in range(3):
        assert asyncio.run(watching.state.take(newest)) is None
    assert [call.operation for call in storage.calls] == ["read"]


@pytest.mark.parametrize("kind", ["local", "s3"])
def test_a_poll_that_confirms_opens_an_unchanged_table_only_once(
    table: WatchedTable, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_delta.hooks.waits.new_versions._CONFIRM_EVERY", 1)
    uri, options = new_place(kind, tmp_path / "place")
    storage = open_storage(uri, options)
    for version in range(3):
        path = f"_delta_log/{version:020}.json"
        storage.replace(path, (table.root / path).read_bytes())
    poll, opened = VersionPoll(), DeltaTable(uri, storage_options=options)
    counted = FaultyStorage(opened.storage)
    opened.__dict__["storage"] = counted
    newest = poll.look(opened)
    counted.calls.clear()
    for _ in range(3):
        assert poll.look(opened) is newest
    assert [call.operation for call in counted.calls] == ["head"] * 6


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (1_500, 1_500, True),
        (1_500, 1_501, False),
        # One of them has only seconds.
        (1_500, 1_000, True),
        (1_000, 1_999, True),
        (2_000, 1_999, False),
        (2_000, 1_000, False),
    ],
)
def test_times_of_a_file_are_compared_as_exactly_as_both_are(
    one: int, other: int, same: bool
) -> None:
    assert new_versions._is_same_time(one, other) is same
    assert new_versions._is_same_time(other, one) is same


@pytest.mark.parametrize("commits", [0, 1, 2])
def test_a_table_that_is_put_back_is_reported_from_its_start(
    table: WatchedTable, commits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_delta.hooks.waits.new_versions._CONFIRM_EVERY", 1)
    watching = begun(table)
    table.delete_after(0)
    for _ in range(commits + (commits == 2)):
        table.commit()
    found = watching.look()
    assert found is not None
    assert (found["after_version"], found["version"]) == (-1, table.version)
    assert found["table_change"] == "rolled_back"


def test_a_table_that_vanishes_is_waited_for(
    table: WatchedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_delta.hooks.waits.new_versions._CONFIRM_EVERY", 1)
    watching = begun(table)
    table.delete_after(-1)
    assert watching.look() is None
    table.commit("CREATE TABLE", table_id="2")
    found = watching.look()
    assert found is not None
    assert (found["table_change"], found["after_version"]) == ("recreated", -1)


def test_very_many_versions_are_reported_unread(
    table: WatchedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_delta.hooks.waits.new_versions._MOST_COMMITS", 2)
    watching = begun(table, operations=("MERGE",))
    for _ in range(3):
        table.commit()
    found = watching.look()
    assert found is not None
    assert (found["after_version"], found["version"], found["operation"]) == (2, 5, "WRITE")


@pytest.mark.parametrize("content", ["", '{"commitInfo": {"operation"'])
def test_a_damaged_commit_below_a_checkpoint_stops_no_watcher(
    table: WatchedTable, caplog: pytest.LogCaptureFixture, content: str
) -> None:
    watching = begun(table, operations=("MERGE",))
    for operation in ("DELETE", "WRITE", "UPDATE"):
        table.commit(operation)
    table.open().checkpoint()
    (table.root / "_delta_log" / f"{3:020}.json").write_text(content)
    table.commit("OPTIMIZE")
    found = watching.look()
    assert found is not None, "an unknown commit may have passed the filters"
    assert (found["after_version"], found["version"], found["operation"]) == (2, 6, "OPTIMIZE")
    assert f"{3:020}.json" in caplog.text
    table.commit("MERGE")
    assert watching.range() == (6, 7)


def test_a_damaged_action_below_a_checkpoint_may_change_data(table: WatchedTable) -> None:
    watching = begun(table, data_change_only=True)
    table.commit("OPTIMIZE", remove("file 1", dataChange=False))
    table.open().checkpoint()
    with (table.root / "_delta_log" / f"{3:020}.json").open("a") as log:
        log.write('{"add": {"dataChange": true\n')
    table.commit("OPTIMIZE", remove("file 2", dataChange=False))
    assert watching.range() == (2, 4)


@pytest.mark.parametrize("backfilled", [False, True])
def test_the_versions_of_a_managed_table_are_those_that_its_owner_ratifies(
    tmp_path: Path, *, backfilled: bool
) -> None:
    orders = write_table(tmp_path / "orders", [add("a")])
    owner = hand_over(orders, tmp_path / "owner.db")
    table = DeltaTable(orders, commit_owners={"sql": owner})
    poll, watcher = VersionPoll(), VersionWatcher(str(orders), Filters(("SET TBLPROPERTIES",)))
    first = poll.look(table)
    mark = watcher.begin(first)
    version = commit(orders, owner, 2)
    if backfilled:
        table.backfill()
    else:
        assert table.commit_status().lag == 2
    newest = poll.look(table)
    assert newest is not None
    mark, payload = watcher.examine(newest, mark)
    assert payload is not None
    assert (payload["after_version"], payload["version"]) == (version - 2, version)
    assert payload["table_change"] is None
    assert mark.commit is not None
    # The poll still asks the owner, and finds nothing new.
    assert poll.look(table) is newest


def test_a_mark_of_another_release_can_be_read() -> None:
    mark = Mark(3, 4, 1, "1", "txnId 4")
    assert Mark.from_json({**mark.to_json(), "later": 1}) == mark
    assert Mark.from_json({"version": 3, "examined": 4}) == Mark(3, 4)
    assert Mark.from_json(None) is None
    other = mark.for_other_filters()
    assert other == Mark(3, 3, 0, "1", "txnId 4", commit_version=4)
    assert other.for_other_filters() == other


ODD_RUNS = [
    {"airflow": {"dag_id": "d\ud800", "run_id": "r", "task_id": "t"}},
    {"airflow": {"dag_id": "d", "run_id": "r", "task_id": "t" * 1_001}},
    {"airflow": {"dag_id": "d", "run_id": "r", "task_id": "t", "try_number": 10**30}},
    {"airflow": {"dag_id": "d", "run_id": "r", "task_id": "t", "map_index": 2**31}},
]
ODD_FIELDS = [
    *ODD_RUNS,
    *({"userMetadata": json.dumps(run)} for run in ODD_RUNS),
    {"operation": "W" * 100_000},
    {"operation": "W\udfff"},
]


@pytest.mark.parametrize("fields", ODD_FIELDS, ids=range(len(ODD_FIELDS)))
def test_what_any_writer_may_write_reaches_airflow_in_a_form_that_it_can_store(
    table: WatchedTable, fields: dict[str, Any]
) -> None:
    watching = begun(table)
    table.commit(provenance=fields)
    found = watching.look()
    assert found is not None
    assert found["version"] == 3
    assert found["task_run"] is None
    # As the triggerer's process does, which dies if it can't.
    assert len(msgspec.msgpack.encode(found)) < 2_000
    assert watching.look() is None
    table.commit()
    assert watching.range() == (3, 4)


def test_marks_of_commits_are_short_ascii_texts() -> None:
    ids = ("t\ud800", "t\ud801", "t" * 100_000, "t" * 100_001, {"a": ["ü" * 1_000]})
    marks = [commit_mark({"txnId": txn_id}) for txn_id in ids]
    assert len(set(marks)) == len(ids)
    assert all(mark is not None and mark.isascii() and len(mark) <= 200 for mark in marks)
    assert commit_mark({"txnId": "4"}) == "txnId 4"
