"""An owner is told that a table has moved, and it was only copied: in each kind of store."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import pytest

from airflow_delta.engine.commit.owner import ManagedTable
from airflow_delta.engine.commit.store.memory import MemoryCommitStore
from airflow_delta.engine.commit.store.owner import StoreBackedOwner
from airflow_delta.engine.errors import CommitOwnerError, InvalidArgumentError, StorageError
from airflow_delta.engine.log.files import commit_path
from airflow_delta.engine.storage.base import Storage
from airflow_delta.engine.storage.location import open_storage
from tests.object_stores import KINDS, new_place
from tests.owned_tables import commit_text, hand_over, managed


@dataclass
class Place:
    """Where tables are in one kind of store."""

    uri: str
    options: dict[str, str]

    def at(self, path: str) -> Storage:
        return open_storage(f"{self.uri}/{path}", self.options)


@dataclass
class Owned:
    """A table that was handed over with version 0, and committed to."""

    table: ManagedTable
    options: dict[str, str] = field(default_factory=dict)
    owner: StoreBackedOwner = field(default_factory=lambda: StoreBackedOwner(MemoryCommitStore()))

    @classmethod
    def made(cls, storage: Storage, options: dict[str, str], *, backfill: str = "1") -> Owned:
        owned = cls(managed(storage, backfill=backfill), options)
        hand_over(owned.owner, owned.table)
        for version in (1, 2):
            owned.commit(version)
        return owned

    def commit(self, version: int) -> None:
        name = f"version {version}"
        made = self.owner.commit(self.table, version, commit_text(name), txn_id=name)
        assert made.commit is not None

    def copied(self, target: Storage, *, leave: Iterable[str] = ()) -> Owned:
        """The table's copy; the original stays."""
        source = self.table.storage
        for info in [*source.walk("_delta_log")]:
            if info.path not in leave:
                target.create(info.path, source.read(info.path))
        return replace(self, table=replace(self.table, storage=target))

    def relocate(self) -> str:
        opened = partial(open_storage, storage_options=self.options)
        return self.owner.relocate(self.table, opened=opened)


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place(*new_place(request.param, tmp_path))


def delete(storage: Storage, paths: Iterable[str] | None = None) -> None:
    storage.delete([info.path for info in storage.walk("")] if paths is None else paths)


@pytest.mark.parametrize("backfill", ["1", "on-request"])
def test_a_copy_does_not_get_the_books_of_the_original(place: Place, backfill: str) -> None:
    original = Owned.made(place.at("lake/orders"), place.options, backfill=backfill)
    copy = original.copied(place.at("backup/2026/orders"))
    with pytest.raises(CommitOwnerError, match=r"is still at .*is a copy") as caught:
        copy.relocate()
    assert caught.value.expected == original.table.location
    assert caught.value.found == copy.table.location
    original.commit(3)


def test_a_table_whose_old_place_is_empty_has_moved(place: Place) -> None:
    original = Owned.made(place.at("lake/orders"), place.options)
    moved = original.copied(place.at("orders"))
    delete(original.table.storage)
    assert moved.relocate() == original.table.location
    moved.commit(3)


def test_a_log_that_was_cleaned_up_tells_by_its_newest_commit(place: Place) -> None:
    original = Owned.made(place.at("lake/orders"), place.options)
    delete(original.table.storage, [commit_path(0), commit_path(1)])
    copy = original.copied(place.at("orders"))
    with pytest.raises(CommitOwnerError, match="is a copy"):
        copy.relocate()


def test_another_table_at_the_old_place_is_in_nobodys_way(place: Place) -> None:
    original = Owned.made(place.at("orders"), place.options)
    moved = original.copied(place.at("moved"))
    delete(original.table.storage)
    Owned.made(original.table.storage, place.options)
    assert moved.relocate() == original.table.location
    moved.commit(3)


def test_a_copy_in_another_bucket_is_one() -> None:
    original = Owned.made(open_storage("memory://relocation-a/orders"), {})
    copy = original.copied(open_storage("memory://relocation-b/orders"))
    with pytest.raises(CommitOwnerError, match="is a copy"):
        copy.relocate()


def test_a_link_from_the_old_place_to_the_new_one(tmp_path: Path) -> None:
    original = Owned.made(open_storage(str(tmp_path / "orders")), {})
    before = original.table.location
    (tmp_path / "orders").rename(tmp_path / "moved")
    (tmp_path / "orders").symlink_to(tmp_path / "moved")
    moved = replace(
        original, table=replace(original.table, storage=open_storage(str(tmp_path / "moved")))
    )
    assert moved.relocate() == before


def test_another_store_is_not_looked_at(tmp_path: Path) -> None:
    original = Owned.made(open_storage("memory://relocation-c/orders"), {})
    moved = original.copied(open_storage(str(tmp_path)))
    opened: list[str] = []

    def never(uri: str) -> Storage:
        opened.append(uri)
        return original.table.storage

    assert moved.owner.relocate(moved.table, opened=never) == original.table.location
    assert opened == []


@pytest.mark.parametrize("error", [StorageError("away"), InvalidArgumentError("no location")])
def test_an_old_place_that_cannot_be_opened_is_taken_for_gone(
    tmp_path: Path, error: Exception
) -> None:
    original = Owned.made(open_storage(str(tmp_path / "a")), {})
    moved = original.copied(open_storage(str(tmp_path / "b")))

    def refused(uri: str) -> Storage:
        raise error

    assert moved.owner.relocate(moved.table, opened=refused) == original.table.location
