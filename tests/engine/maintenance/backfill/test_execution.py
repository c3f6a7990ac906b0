"""How far a table is backfilled, and having its owner backfill it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable as Peer

from airflow_delta.engine import AddFile, DeltaTable
from airflow_delta.engine.commit.owner import CommitOwner, ManagedTable, Standing
from airflow_delta.engine.errors import (
    CommitOwnerUnavailableError,
    CorruptLogError,
    InvalidArgumentError,
    NotBackfilledError,
    StorageError,
    VersionNotFoundError,
)
from airflow_delta.engine.log.files import commit_path
from airflow_delta.engine.model.schema import LONG, StructField, StructType
from tests.faulty_storage import Fault, FaultyStorage, How
from tests.watched_owner import WatchedOwner

SCHEMA = StructType((StructField("id", LONG),))
DOWN = CommitOwnerUnavailableError("the database is out of reach", owner="owner-db")


class Boasting:
    """An owner that says of everything that it is backfilled."""

    def __init__(self, inner: CommitOwner) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def backfill_to_version(self, table: ManagedTable, version: int | None = None) -> int:
        return self._inner.status(table).latest_version if version is None else version


@pytest.fixture
def owner() -> WatchedOwner:
    return WatchedOwner()


@pytest.fixture
def table(tmp_path: Path, owner: WatchedOwner) -> DeltaTable:
    """Versions 0 to 5; only version 0 is backfilled."""
    properties = {
        "delta.managedCommit.commitOwner": "owner-db",
        "delta.managedCommit.commitOwnerConf": json.dumps({"backfill": "on-request"}),
    }
    table = DeltaTable.create(
        str(tmp_path), SCHEMA, properties=properties, commit_owners={"owner-db": owner}
    )
    for n in range(5):
        append(table, f"f{n}")
    return table


def append(table: DeltaTable, path: str) -> int:
    transaction = table.transaction("WRITE")
    transaction.add_file(AddFile(path, {}, 1, 1, data_change=True))
    return transaction.commit().version


def logged(table: DeltaTable) -> list[int]:
    """The versions that anybody sees in the log."""
    root = Path(table.uri) / "_delta_log"
    return sorted(int(path.stem) for path in root.glob("*.json") if path.stem.isdigit())


def test_the_status_of_a_managed_table(tmp_path: Path, table: DeltaTable) -> None:
    status = table.commit_status()
    assert (status.table, status.owner, status.standing) == (
        str(tmp_path),
        "owner-db",
        Standing.ACTIVE,
    )
    assert (status.ratified_version, status.backfilled_version, status.lag) == (5, 0, 5)
    table.backfill(3)
    assert (table.commit_status().backfilled_version, table.commit_status().lag) == (3, 2)


def test_the_status_of_a_table_of_the_file_system(tmp_path: Path) -> None:
    table = DeltaTable.create(str(tmp_path), SCHEMA)
    append(table, "f0")
    status = table.commit_status()
    assert (status.owner, status.standing) == (None, None)
    assert (status.ratified_version, status.backfilled_version, status.lag) == (1, 1, 0)


def test_the_log_decides_what_is_backfilled_and_not_the_owners_record(
    table: DeltaTable, owner: WatchedOwner
) -> None:
    """Somebody backfills while the owner answers; an owner that never ratified says -1."""

    def backfill(status: object) -> object:
        table.backfill(2)
        return status

    owner.after["status"] = backfill
    assert table.commit_status().backfilled_version == 2


def test_without_the_owner_there_is_no_status(table: DeltaTable, owner: WatchedOwner) -> None:
    with pytest.raises(CommitOwnerUnavailableError, match="'owner-db' isn't known here"):
        DeltaTable(table.uri).commit_status()
    owner.fail(DOWN)
    for ask in (table.commit_status, table.backfill):
        with pytest.raises(CommitOwnerUnavailableError, match="out of reach"):
            ask()


@pytest.mark.parametrize("version", [None, 5, 3, 1])
def test_commits_are_backfilled_up_to_a_version(table: DeltaTable, version: int | None) -> None:
    last = 5 if version is None else version
    plan = table.backfill(version, dry_run=True).plan
    assert [commit.version for commit in plan.commits] == [*range(1, last + 1)]
    assert logged(table) == [0]
    result = table.backfill(version)
    assert logged(table) == [*range(last + 1)]
    for commit in plan.commits:
        copy = table.storage.read(commit_path(commit.version))
        assert copy == table.storage.read(commit.path)
    assert (result.owner, result.ratified_version) == ("owner-db", 5)
    assert (result.backfilled_version, result.num_backfilled) == (last, last)
    assert result.lag == 5 - last
    assert Peer(table.uri).version() == last


def test_what_is_backfilled_is_left_alone(table: DeltaTable) -> None:
    table.backfill(3)
    again = table.backfill(2)
    assert (again.backfilled_version, again.num_backfilled, again.lag) == (3, 0, 2)
    assert not again.plan.needed
    rest = table.backfill()
    assert [commit.version for commit in rest.plan.commits] == [4, 5]
    assert (rest.backfilled_version, rest.num_backfilled, rest.lag) == (5, 2, 0)
    append(table, "f5")
    assert table.backfill().num_backfilled == 1


def test_what_is_not_ratified_can_not_be_backfilled(table: DeltaTable) -> None:
    with pytest.raises(VersionNotFoundError, match=r"'owner-db' has ratified is 5") as caught:
        table.backfill(6)
    assert (caught.value.version, caught.value.latest) == (6, 5)
    with pytest.raises(InvalidArgumentError, match="versions begin at 0"):
        table.backfill(-1)
    assert logged(table) == [0]


def test_a_table_of_the_file_system_has_nothing_to_backfill(tmp_path: Path) -> None:
    table = DeltaTable.create(str(tmp_path), SCHEMA)
    with pytest.raises(InvalidArgumentError, match="the table has no commit owner"):
        table.backfill()


def test_a_backfill_that_breaks_off_is_gone_on_with(
    tmp_path: Path, table: DeltaTable, owner: WatchedOwner
) -> None:
    broken = DeltaTable(str(tmp_path), commit_owners={"owner-db": owner})
    fault = Fault("create", 0, How.FAIL, suffix=commit_path(3))
    broken.__dict__["storage"] = FaultyStorage(table.storage, fault)
    with pytest.raises(StorageError, match="the connection broke"):
        broken.backfill()
    assert logged(table) == [0, 1, 2]
    assert table.backfill().num_backfilled == 3


def test_a_backfill_claims_nothing_that_the_log_does_not_have(
    table: DeltaTable, owner: WatchedOwner
) -> None:
    """Neither of our owner, whose table was set back to an older state, nor of anybody's."""
    table.backfill(4)
    for version in (3, 4):
        (Path(table.uri) / commit_path(version)).unlink()
    for wanted in (None, 3, 5):
        with pytest.raises(CorruptLogError, match="the newest version in the log is 2") as caught:
            table.backfill(wanted)
        assert (caught.value.version, caught.value.found, caught.value.latest) == (4, 2, 5)
    owner.inner = Boasting(owner.inner)  # type: ignore[assignment]
    with pytest.raises(CorruptLogError, match=r"reports .* up to 5 as .* log is 2") as caught:
        table.backfill()
    assert (caught.value.version, caught.value.found) == (5, 2)
    assert logged(table) == [0, 1, 2]


def test_a_commit_that_went_past_the_owner_stops_a_backfill(table: DeltaTable) -> None:
    table.storage.create(commit_path(1), b'{"commitInfo":{}}\n')
    with pytest.raises(CorruptLogError, match=r"1\.json isn't the commit that the owner"):
        table.backfill()
    assert logged(table) == [0, 1]


def test_a_checkpoint_is_of_what_is_backfilled_and_can_have_it_backfilled(
    table: DeltaTable,
) -> None:
    for version in (3, 5):
        with pytest.raises(NotBackfilledError, match=r"backfill_first=True"):
            table.checkpoint(version)
    assert table.checkpoint(dry_run=True).version == 0
    assert table.checkpoint(backfill_first=True, dry_run=True).version == 0
    assert logged(table) == [0]
    assert table.checkpoint(3, backfill_first=True).version == 3
    assert logged(table) == [0, 1, 2, 3]
    result = table.checkpoint(backfill_first=True)
    assert (result.version, result.written, result.num_files) == (5, True, 5)
    assert logged(table) == [*range(6)]
    table.storage.delete([commit_path(version) for version in range(5)])
    assert Peer(table.uri).version() == 5


def test_a_compaction_is_of_what_is_backfilled_and_can_have_it_backfilled(
    table: DeltaTable,
) -> None:
    with pytest.raises(NotBackfilledError, match=r"up to version 4 yet.*backfill_first=True"):
        table.compact_log(1, 4)
    with pytest.raises(NotBackfilledError, match="backfill_first"):
        table.compact_log(1, 4, backfill_first=True, dry_run=True)
    result = table.compact_log(1, 4, backfill_first=True)
    assert (result.written, result.plan.start, result.plan.end) == (True, 1, 4)
    assert logged(table) == [*range(5)]
    assert table.compact_log(2, backfill_first=True).plan.end == 5


def test_a_version_that_is_not_ratified_is_refused_as_such(table: DeltaTable) -> None:
    with pytest.raises(VersionNotFoundError, match="has ratified is 5"):
        table.checkpoint(6, backfill_first=True)


def test_a_table_of_the_file_system_needs_no_backfill_before_a_checkpoint(tmp_path: Path) -> None:
    table = DeltaTable.create(str(tmp_path), SCHEMA)
    append(table, "f0")
    assert table.checkpoint(backfill_first=True).version == 1
