"""A managed table and its commit store, as one world in which every call is a step that can go wrong.

A commit of a managed table is made of calls to two places. A process dies once, wherever it is: so the
calls to the commit store are steps of the storage that fails (`CommitStoreOnStorage`), and are counted
with its own.

`Truth` is what a world has come to, by brute force: the log, and behind it what the commit store has.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar, cast

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.commit.owner import CommitOwner, ManagedTable, Standing
from airflow_delta.engine.commit.store.commit_store import CommitStore, TableEntry
from airflow_delta.engine.commit.store.memory import MemoryCommitStore
from airflow_delta.engine.commit.store.owner import StoreBackedOwner
from airflow_delta.engine.errors import (
    CommitOwnerUnavailableError,
    CommitStoreMissingError,
    StorageError,
)
from airflow_delta.engine.log.files import UnbackfilledCommit
from airflow_delta.engine.model.properties import TableProperties
from airflow_delta.engine.storage.base import Storage
from airflow_delta.engine.storage.memory import MemoryStorage
from tests.faulty_commit_store import FaultyCommitStore
from tests.faulty_storage import Fault, FaultyStorage
from tests.owned_tables import OWNER, fresh_storage, in_log
from tests.races.replayed_log import Log
from tests.table_builder import commit_file

__all__ = ["COMMIT_STORE_READS", "OWNED", "Client", "CommitStoreOnStorage", "Truth", "World"]

_Result = TypeVar("_Result")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

OWNED = "delta.managedCommit.commitOwner"
COMMIT_STORE_READS = frozenset({"commit_store.find", "commit_store.entries_at"})
"""The steps without an effect, beside those of the storage."""


@dataclass(frozen=True)
class Client:
    """What a process has of a table: the store that it is in, and its owner."""

    storage: Storage
    owner: CommitOwner

    @property
    def delta(self) -> DeltaTable:
        """The table, opened afresh."""
        delta = DeltaTable(self.storage.root, commit_owners={OWNER: self.owner})
        delta.__dict__["storage"] = self.storage
        return delta


class CommitStoreOnStorage(FaultyCommitStore):
    """A commit store whose calls are steps of a storage with faults, such as ``commit_store.ratify``.

    Args:
        inner: the commit store.
        storage: whose faults it has.
    """

    def __init__(self, inner: CommitStore, storage: FaultyStorage) -> None:
        super().__init__(inner)
        self._storage = storage

    def _step(self, method: str, effect: Callable[[], _Result]) -> _Result:
        try:
            return self._storage.step(f"commit_store.{method}", "", effect)
        except StorageError as error:
            raise CommitOwnerUnavailableError(error.message) from error


@dataclass
class World:
    """A store and the commit store; in memory unless given.

    Attributes:
        storage: where the table is, or is to be.
        commit_store: where the owner records commits.
    """

    storage: Storage = field(default_factory=fresh_storage)
    commit_store: CommitStore = field(default_factory=MemoryCommitStore)

    def client(self, *faults: Fault, capable: type[MemoryStorage] | None = None) -> Client:
        """A client, whose storage is a `FaultyStorage`.

        Args:
            faults: what goes wrong.
            capable: how the client knows a store in memory, if not for what it is.
        """
        storage = self.storage if capable is None else capable(self.storage.root)
        faulty = FaultyStorage(storage, *faults)
        return Client(faulty, StoreBackedOwner(CommitStoreOnStorage(self.commit_store, faulty)))

    def truth(self) -> Truth:
        """What the world has come to."""
        return Truth(self.storage, self.commit_store)

    def copy(self) -> World:
        """The same in another place."""
        copied = World()
        for info in self.storage.walk(""):
            copied.storage.replace(info.path, self.storage.read(info.path))
        for known in self.commit_store.entries_at(self.storage.root):
            entry = self.commit_store.find(known.table_id)
            assert entry
            _copy_entry(entry, copied.commit_store, copied.storage.root)
        return copied

    def clear(self) -> None:
        """Give the memory back."""
        self.storage.delete([info.path for info in self.storage.walk("")])


def _copy_entry(entry: TableEntry, commit_store: CommitStore, location: str) -> None:
    commit_store.propose(entry.table_id, location, entry.owned_from)
    if entry.standing is Standing.PROPOSED:
        return
    commit_store.activate(entry.table_id)
    released = entry.standing is Standing.RELEASED
    if released and not entry.commits:
        commit_store.observe(entry.table_id, entry.latest_version - 1)
        last = UnbackfilledCommit(entry.latest_version, "last", "", 1, 0)
        assert commit_store.ratify(entry.table_id, last, releases=True)
    commit_store.observe(entry.table_id, entry.backfilled_version)
    for commit in entry.commits:
        releases = released and commit.version == entry.latest_version
        assert commit_store.ratify(entry.table_id, commit, releases=releases)
    assert commit_store.find(entry.table_id) == TableEntry(
        **{name: getattr(entry, name) for name in TableEntry.__slots__ if name != "location"},
        location=location,
    )


class Truth:
    """What there is at one moment, without the engine's reading.

    Args:
        storage: where the table is.
        commit_store: where the owner records commits.
    """

    def __init__(self, storage: Storage, commit_store: CommitStore) -> None:
        self._storage = storage
        self._commit_store = commit_store

    @cached_property
    def logged(self) -> dict[int, bytes]:
        """The commits in the log, by version."""
        return in_log(self._storage)

    @cached_property
    def log(self) -> Log:
        """All versions: what the log doesn't have is where the owner says."""
        log = self._log_alone
        known = {
            commit_file(commit.version): commit.path
            for commit in self.tracked
            if commit.version not in self.logged
        }
        if not known:
            return log
        whole = Log(cast("Storage", _Redirected(self._storage, known)))
        whole.look()
        return whole

    @cached_property
    def entry(self) -> TableEntry | None:
        """What the commit store says of the table that the log is of; None where the log names no owner."""
        if not self._log_alone.states:
            return None
        metadata = self._log_alone.states[-1].metadata
        assert metadata
        properties = TableProperties(metadata["configuration"], self._storage.root)
        table_id = properties.commit_owner_conf.get("tableId")
        return None if table_id is None else self._commit_store.find(table_id)

    @property
    def tracked(self) -> Sequence[UnbackfilledCommit]:
        """The commits that the commit store has for not backfilled."""
        return () if self.entry is None else self.entry.commits

    def contents(self) -> list[bytes]:
        """Each version's commit, as it is stored."""
        found = {commit.version: self._storage.read(commit.path) for commit in self.tracked}
        for version, content in self.logged.items():
            assert found.setdefault(version, content) == content, "a copy differs"
        assert sorted(found) == [*range(len(found))], "a log with a gap"
        return [found[version] for version in range(len(found))]

    def problems(self) -> list[str]:
        """What is wrong with the commit store, and with what lies beside the commits."""
        found = []
        for info in self._storage.list("_delta_log"):
            if info.path.endswith(".crc") and int(info.path[-24:-4]) not in self.logged:
                found.append(f"{info.path} is of a version that the log doesn't have")
        for version in self.logged:
            found += self.log.checksum_problems(version)
        entry = self.entry
        if entry is not None and entry.standing is not Standing.PROPOSED:
            versions = [commit.version for commit in entry.commits]
            if versions != [*range(entry.backfilled_version + 1, entry.latest_version + 1)]:
                found.append(f"the commit store has a gap: {entry}")
            if entry.backfilled_version > max(self.logged):
                found.append(f"the commit store is ahead of the log: {entry}")
        return found

    def shape(self) -> object:
        """What there is, without what is random in it, and what a process has left half done."""
        files = sorted(
            (_UUID.sub("*", info.path), info.size)
            for info in self._storage.walk("")
            if not info.name.startswith(".")
        )
        entries: list[TableEntry] = []
        with suppress(CommitStoreMissingError):
            entries = self._commit_store.entries_at(_location(self._storage))
        recorded = sorted(
            (each.standing.value, each.owned_from, each.latest_version, each.backfilled_version)
            for each in entries
        )
        return tuple(files), tuple(recorded)

    @cached_property
    def _log_alone(self) -> Log:
        log = Log(self._storage)
        log.look()
        return log


def _location(storage: Storage) -> str:
    return ManagedTable(storage, OWNER, {}).location


@dataclass(frozen=True)
class _Redirected:
    """A storage for a `Log` that has some files under another name."""

    storage: Storage
    places: dict[str, str]

    def read_many(self, paths: Sequence[str]) -> list[bytes | None]:
        return self.storage.read_many([self.places.get(path, path) for path in paths])
