"""Files that are brought back while a vacuum runs stay; if one is lost, one side reports it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.commit.registry import CommitOwners
from airflow_delta.engine.errors import (
    CommitConflictError,
    MetadataChangedError,
    ObjectNotFoundError,
    UnsupportedFeatureError,
)
from airflow_delta.engine.maintenance.vacuum import execution as vacuum_execution
from airflow_delta.engine.maintenance.vacuum.execution import execute_vacuum
from airflow_delta.engine.maintenance.vacuum.last_vacuum import read_last_vacuum
from airflow_delta.engine.maintenance.vacuum.plan import VacuumPlan, plan_vacuum
from airflow_delta.engine.storage.local import LocalStorage
from tests.faulty_storage import Fault, FaultyStorage
from tests.log_builder import PROTOCOL, add, commit_path, metadata, remove, write_commit
from tests.scripted_owner import ScriptedOwner, tracked
from tests.vacuum_world import DAY_MS, NOW_MS

OLD_MS = NOW_MS - 30 * DAY_MS
NAMES = ["a", "b", "c", "d"]


@pytest.fixture(autouse=True)
def one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vacuum_execution, "_BATCH", 1)


def put(root: Path, *paths: str) -> None:
    for path in paths:
        (root / path).write_bytes(b"x")
        os.utime(root / path, ns=(OLD_MS * 1_000_000, OLD_MS * 1_000_000))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Version 0 has four files, which version 1 has removed long ago, in favour of ``z``."""
    write_commit(tmp_path, 0, PROTOCOL, metadata(), *map(add, NAMES), modified_ms=OLD_MS)
    removes = [remove(name, deletionTimestamp=OLD_MS) for name in NAMES]
    write_commit(tmp_path, 1, *removes, add("z"), modified_ms=OLD_MS + 1)
    put(tmp_path, *NAMES, "z")
    return tmp_path


def planned(root: Path, **options: Any) -> VacuumPlan:
    return plan_vacuum(LocalStorage(str(root)), CommitOwners(), now_ms=NOW_MS, **options)


def left(root: Path) -> list[str]:
    return sorted(file.name for file in root.iterdir() if file.is_file())


@pytest.mark.parametrize("mode", ["full", "lite"])
def test_what_is_restored_after_the_plan_stays(root: Path, mode: Any) -> None:
    plan = planned(root, mode=mode)
    assert plan.files.num_rows == 4
    DeltaTable(str(root)).restore(0)
    result = execute_vacuum(LocalStorage(str(root)), plan)
    assert (result.num_deleted, result.bytes_deleted) == (0, 0)
    assert left(root) == [*NAMES, "z"]


def readded(root: Path, version: int, *names: str) -> Callable[[], object]:
    return lambda: write_commit(root, version, *map(add, names))


def order(plan: VacuumPlan) -> list[str]:
    found: list[str] = plan.files["path"].to_pylist()
    return found


def test_what_is_restored_between_deletions_stays(root: Path) -> None:
    """Each look sees what is new since the one before."""
    plan = planned(root)
    names = order(plan)
    storage = FaultyStorage(
        LocalStorage(str(root)),
        Fault("delete", nth=1, meanwhile=readded(root, 2, names[2], "new")),
        Fault("delete", nth=2, meanwhile=readded(root, 3, names[3].upper())),
    )
    result = execute_vacuum(storage, plan)
    assert result.num_deleted == 2
    assert left(root) == sorted([*names[2:], "z"])


@pytest.mark.parametrize("nth", [1, 4])
def test_files_restored_while_they_are_deleted_are_reported(root: Path, nth: int) -> None:
    plan = planned(root)
    lost = order(plan)[nth - 1]
    fault = Fault("delete", nth=nth, meanwhile=readded(root, 2, lost))
    storage = FaultyStorage(LocalStorage(str(root)), fault)
    with pytest.raises(ObjectNotFoundError, match="a commit has brought back 1 files") as error:
        execute_vacuum(storage, plan)
    assert (error.value.paths, error.value.path, error.value.version) == ((lost,), lost, 2)
    assert left(root) == ["z"]
    assert read_last_vacuum(storage) is None


def test_a_concurrent_checkpoint_does_no_harm(root: Path) -> None:
    plan = planned(root)
    readded(root, 2, "a", "c")()
    assert DeltaTable(str(root)).checkpoint(2).written
    commit_path(root, 0).unlink()
    commit_path(root, 1).unlink()
    assert execute_vacuum(LocalStorage(str(root)), plan).num_deleted == 2
    assert left(root) == ["a", "c", "z"]


def test_commits_that_bring_nothing_back_cost_nothing(root: Path) -> None:
    plan = planned(root)
    write_commit(root, 2, add("y"))
    write_commit(root, 3, {"txn": {"appId": "x", "version": 1}})
    assert execute_vacuum(LocalStorage(str(root)), plan).num_deleted == 4


def test_a_log_that_is_as_it_was_is_looked_at_with_two_requests(root: Path) -> None:
    plan = planned(root)
    storage = FaultyStorage(LocalStorage(str(root)))
    execute_vacuum(storage, plan)
    steps = [call.operation for call in storage.calls]
    first, *others = [index for index, step in enumerate(steps) if step == "delete"]
    assert steps[first : others[-1] + 1] == ["delete", "head", "head"] * 3 + ["delete"]


def test_nothing_to_delete_costs_nothing(root: Path) -> None:
    for name in NAMES:
        (root / name).unlink()
    storage = FaultyStorage(LocalStorage(str(root)))
    execute_vacuum(storage, planned(root))
    assert [call.operation for call in storage.calls] == ["replace"]


def test_a_feature_added_concurrently_stops_the_vacuum(root: Path) -> None:
    plan = planned(root)
    novelty = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["novelty"]}

    def upgrade() -> None:
        write_commit(root, 2, {"protocol": novelty})

    storage = FaultyStorage(LocalStorage(str(root)), Fault("delete", nth=2, meanwhile=upgrade))
    with pytest.raises(UnsupportedFeatureError, match="novelty"):
        execute_vacuum(storage, plan)
    assert len(left(root)) == 3


def replace(root: Path, *, versions: Iterable[int]) -> None:
    for version in (0, 1):
        commit_path(root, version).unlink()
    for version in versions:
        first = [PROTOCOL, {"metaData": {**metadata()["metaData"], "id": "another"}}]
        write_commit(root, version, *(first if version == 0 else []), add(f"new{version}"))


def test_a_table_that_was_replaced_is_not_touched(root: Path) -> None:
    plan = planned(root)
    replace(root, versions=[0])
    with pytest.raises(CommitConflictError, match=r"version 1, .* no longer exists"):
        execute_vacuum(LocalStorage(str(root)), plan)
    assert left(root) == [*NAMES, "z"]


def test_a_concurrently_replaced_table_is_left_alone(root: Path) -> None:
    plan = planned(root)
    fault = Fault("delete", nth=2, meanwhile=lambda: replace(root, versions=range(4)))
    with pytest.raises(MetadataChangedError):
        execute_vacuum(FaultyStorage(LocalStorage(str(root)), fault), plan)
    assert len(left(root)) == 3


def test_commits_that_only_the_owner_knows_are_read(tmp_path: Path) -> None:
    """A restore that isn't backfilled is in no log."""
    owner = {
        "delta.managedCommit.commitOwner": "owner-db",
        "delta.managedCommit.commitOwnerConf": '{"tableId": "t"}',
        "delta.enableInCommitTimestamps": "true",
    }
    features = ["inCommitTimestamp", "managedCommit"]
    protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": features}
    first = [{"protocol": protocol}, metadata(configuration=owner), add("a"), add("b")]
    removes = [remove(name, deletionTimestamp=OLD_MS) for name in "ab"]
    for version, actions in enumerate((first, removes, [add("b")])):
        info = {"commitInfo": {"inCommitTimestamp": OLD_MS + version, "txnId": str(version)}}
        written = write_commit(tmp_path, version, info, *actions)
    name = f"{2:020}.3a0d65cd-4056-49b8-937b-95f9e3ee90e2.json"
    (tmp_path / "_delta_log" / "_commits").mkdir()
    written.rename(tmp_path / "_delta_log" / "_commits" / name)
    put(tmp_path, "a", "b")
    storage = LocalStorage(str(tmp_path))
    before = CommitOwners({"owner-db": ScriptedOwner([], 1)})
    plan = plan_vacuum(storage, before, now_ms=NOW_MS)
    assert sorted(order(plan)) == ["a", "b"]
    after = CommitOwners({"owner-db": ScriptedOwner([tracked(tmp_path, name)], 2)})
    assert execute_vacuum(storage, plan, after).num_deleted == 1
    assert left(tmp_path) == ["b"]


def test_a_restore_reports_files_that_a_concurrent_vacuum_deleted(root: Path) -> None:
    """The vacuum's last look was before the commit."""
    table = DeltaTable(str(root))
    before = table.restore(0, dry_run=True).plan
    assert before is not None
    fault = Fault("create", meanwhile=lambda: (root / "c").unlink())
    table.storage = FaultyStorage(LocalStorage(str(root)), fault)
    once = ("repair", 7)
    with pytest.raises(ObjectNotFoundError, match=r"version 2 is committed, but") as error:
        table.restore(0, once=once)
    assert (error.value.paths, error.value.version) == (("c",), 2)
    assert DeltaTable(str(root)).latest_version() == 2
    # A second try doesn't hide it, until the file is back or isn't needed any more.
    again = DeltaTable(str(root))
    with pytest.raises(ObjectNotFoundError, match=r"version 2 is committed.*such as 1"):
        again.restore(0, once=once)
    assert again.restore(0, once=once, ignore_missing_files=True).version == 2
    again.restore(1)
    assert again.restore(0, once=once).version == 2
    assert again.latest_version() == 3
