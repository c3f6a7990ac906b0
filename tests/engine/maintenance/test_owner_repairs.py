"""Repairs of commit owners: lost records, moved tables, lost commits; by methods of the table."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from airflow_delta.engine import LONG, DeltaTable, StructField, StructType
from airflow_delta.engine.commit.owner import ManagedTable
from airflow_delta.engine.commit.store.memory import MemoryCommitStore
from airflow_delta.engine.commit.store.owner import StoreBackedOwner
from airflow_delta.engine.errors import (
    CommitOwnerError,
    InvalidArgumentError,
    TableNotFoundError,
)

SCHEMA = StructType((StructField("id", LONG),))


class OtherOwner:
    """An owner with only the methods that every owner has."""

    def __init__(self, owner: StoreBackedOwner) -> None:
        for name in ("commit", "get_commits", "backfill_to_version", "propose", "take_over"):
            setattr(self, name, getattr(owner, name))
        self.forget, self.status = owner.forget, owner.status


class OwnerWithoutDryRun(OtherOwner):
    """An owner that can record a loss or a move, but can't do a dry run of it."""

    def __init__(self, owner: StoreBackedOwner) -> None:
        super().__init__(owner)
        self.relocate, self._owner = owner.relocate, owner

    def accept_log(self, table: ManagedTable, version: int, **options: Any) -> int:
        assert options == {}
        return self._owner.accept_log(table, version)


def opened(root: Path, owner: Any) -> DeltaTable:
    return DeltaTable(root, commit_owners={"owner-db": owner})


@pytest.fixture
def owner() -> StoreBackedOwner:
    return StoreBackedOwner(MemoryCommitStore())


@pytest.fixture
def table(tmp_path: Path, owner: StoreBackedOwner) -> DeltaTable:
    """Handed over with version 0; version 1 is backfilled, version 2 isn't."""
    table = DeltaTable.create(
        tmp_path / "t",
        SCHEMA,
        owner="owner-db",
        conf={"backfill": "on-request"},
        commit_owners={"owner-db": owner},
    )
    for number in "12":
        table.alter.set_properties({"number": number})
        if number == "1":
            table.backfill()
    return table


def test_an_owner_that_lost_its_records_agrees_again(table: DeltaTable) -> None:
    table.backfill()
    new_owner = StoreBackedOwner(MemoryCommitStore())
    again = opened(Path(table.uri), new_owner)
    with pytest.raises(CommitOwnerError):
        again.alter.set_properties({"number": "3"})
    again.propose(0)
    assert again.alter.set_properties({"number": "3"}).version == 3
    assert again.commit_status().ratified_version == 3


def test_a_table_that_has_moved(table: DeltaTable, owner: StoreBackedOwner) -> None:
    moved_to = Path(table.uri).rename(Path(table.uri).with_name("moved"))
    moved = opened(moved_to, owner)
    with pytest.raises(CommitOwnerError, match="relocate"):
        moved.alter.set_properties({"number": "3"})
    assert moved.relocate() == table.uri
    assert moved.alter.set_properties({"number": "3"}).version == 3


def test_a_copy_is_not_taken_for_the_table(table: DeltaTable, owner: StoreBackedOwner) -> None:
    copy = shutil.copytree(table.uri, Path(table.uri).with_name("copy"))
    with pytest.raises(CommitOwnerError, match="is still at"):
        opened(copy, owner).relocate()
    assert table.alter.set_properties({"number": "3"}).version == 3


def test_commits_that_are_lost_are_given_up(table: DeltaTable) -> None:
    with pytest.raises(CommitOwnerError, match="nothing is missing"):
        table.accept_log(1)
    for path in (Path(table.uri) / "_delta_log" / "_commits").glob(f"{2:020}.*"):
        path.unlink()
    assert table.accept_log(1, dry_run=True) == 2
    with pytest.raises(CommitOwnerError, match="version 2 isn't what is left"):
        table.accept_log(2, dry_run=True)
    assert table.commit_status().ratified_version == 2
    assert table.accept_log(1) == 2
    assert table.alter.set_properties({"number": "anew"}).version == 2


def test_a_table_of_the_file_system_has_no_owner_to_repair(tmp_path: Path) -> None:
    table = DeltaTable.create(tmp_path / "t", SCHEMA)
    for repair in (lambda: table.propose(0), table.relocate, lambda: table.accept_log(0)):
        with pytest.raises(InvalidArgumentError, match="managed by the file system"):
            repair()
    with pytest.raises(TableNotFoundError):
        DeltaTable(tmp_path / "nothing").relocate()


def test_an_owner_that_cannot_record_a_repair_is_refused(
    table: DeltaTable, owner: StoreBackedOwner
) -> None:
    other = opened(Path(table.uri), OtherOwner(owner))
    for repair in (other.relocate, lambda: other.accept_log(1)):
        with pytest.raises(InvalidArgumentError, match="managed by the commit owner 'owner-db'"):
            repair()


def test_the_dry_run_of_an_owner_that_has_none_is_refused(
    table: DeltaTable, owner: StoreBackedOwner
) -> None:
    for path in (Path(table.uri) / "_delta_log" / "_commits").glob(f"{2:020}.*"):
        path.unlink()
    other = opened(Path(table.uri), OwnerWithoutDryRun(owner))
    with pytest.raises(
        InvalidArgumentError, match=r"'owner-db' has no dry run: .* whether version 1"
    ):
        other.accept_log(1, dry_run=True)
    assert other.commit_status().ratified_version == 2
    assert other.accept_log(1) == 2
    assert other.commit_status().ratified_version == 1


@pytest.mark.parametrize("version", [-1, True, "1", None])
def test_what_is_no_version_is_refused(table: DeltaTable, version: Any) -> None:
    for repair in (table.propose, table.accept_log):
        with pytest.raises(InvalidArgumentError, match="version"):
            repair(version)


# A new table takes its owner's configuration as a conversion does.


def test_a_new_table_takes_the_configuration_of_its_owner(
    tmp_path: Path, owner: StoreBackedOwner
) -> None:
    conf, owners = {"backfill": "5"}, {"owner-db": owner}
    made = DeltaTable.create(
        tmp_path / "made", SCHEMA, owner="owner-db", conf=conf, commit_owners=owners
    )
    converted = DeltaTable.create(tmp_path / "other", SCHEMA, commit_owners=owners)
    converted.convert_to_managed("owner-db", conf)
    by_property = DeltaTable.create(
        tmp_path / "third",
        SCHEMA,
        properties={
            "delta.managedCommit.commitOwner": "owner-db",
            "delta.managedCommit.commitOwnerConf": json.dumps(conf),
        },
        commit_owners=owners,
    )
    confs = []
    for table in (made, converted, by_property):
        snapshot = table.snapshot()
        assert snapshot.properties.commit_owner == "owner-db"
        confs.append({**snapshot.properties.commit_owner_conf, "tableId": "?"})
        assert snapshot.protocol.writer_features == {"managedCommit", "inCommitTimestamp"} | (
            snapshot.protocol.writer_features or frozenset()
        )
    assert confs == [{"backfill": "5", "tableId": "?"}] * 3
    # The owner has it already, with this configuration.
    assert not made.convert_to_managed("owner-db", conf).converted


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"conf": {"backfill": "1"}}, "conf is given without a commit owner"),
        ({"owner": 5}, "owner: expected a text or None"),
        ({"owner": ""}, "has a name"),
        ({"owner": "owner-db", "conf": '{"backfill": "1"}'}, "conf: expected a mapping"),
        ({"owner": "owner-db", "conf": {"backfill": 1}}, r"conf\['backfill'\]: expected a text"),
        ({"owner": "owner-db", "conf": {"password": "x"}}, "named like a secret"),
        ({"owner": "owner-db", "conf": {"tableId": "x"}}, "tableId"),
        (
            {"owner": "owner-db", "properties": {"delta.managedCommit.commitOwner": "owner-db"}},
            "omit the properties",
        ),
    ],
)
def test_owners_that_make_no_sense_for_a_new_table(
    tmp_path: Path, owner: StoreBackedOwner, arguments: dict[str, Any], problem: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=problem) as caught:
        DeltaTable.create(tmp_path / "t", SCHEMA, commit_owners={"owner-db": owner}, **arguments)
    assert str(tmp_path / "t") in str(caught.value)
    assert not (tmp_path / "t").exists()
