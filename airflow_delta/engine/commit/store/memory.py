"""`MemoryCommitStore`: a commit store in the memory of one process.

It is for tests, and for managed tables that no other process uses. It ends with the process, and then
nobody knows any more which un-backfilled commits are versions. Tables that must last need a
`SqlCommitStore`.
"""

from __future__ import annotations

import threading
from dataclasses import replace

from airflow_delta.engine.commit.owner import Standing
from airflow_delta.engine.commit.store.commit_store import TableEntry
from airflow_delta.engine.log.files import UnbackfilledCommit

__all__ = ["MemoryCommitStore"]


class MemoryCommitStore:
    """A `CommitStore` in memory. Each method holds one lock, so it is atomic."""

    def __init__(self) -> None:
        self._entries: dict[str, TableEntry] = {}
        self._lock = threading.Lock()

    def find(self, table_id: str) -> TableEntry | None:
        """Return a table's entry; see `CommitStore.find`."""
        with self._lock:
            return self._entries.get(table_id)

    def entries_at(self, location: str) -> list[TableEntry]:
        """Return the entries of a location; see `CommitStore.entries_at`."""
        with self._lock:
            found = [entry for entry in self._entries.values() if entry.location == location]
        return [replace(entry, commits=()) for entry in found]

    def propose(self, table_id: str, location: str, version: int) -> None:
        """Enter a table as proposed; see `CommitStore.propose`."""
        with self._lock:
            entry = self._entries.get(table_id)
            if entry is None or (
                entry.standing is Standing.PROPOSED and entry.owned_from <= version
            ):
                self._entries[table_id] = TableEntry(
                    table_id, location, Standing.PROPOSED, version, version - 1, version - 1, ()
                )

    def forget(self, table_id: str, version: int) -> None:
        """Delete a proposed entry; see `CommitStore.forget`."""
        with self._lock:
            entry = self._entries.get(table_id)
            if (
                entry is not None
                and entry.standing is Standing.PROPOSED
                and entry.owned_from == version
            ):
                del self._entries[table_id]

    def activate(self, table_id: str) -> None:
        """Make a proposed entry active; see `CommitStore.activate`."""
        with self._lock:
            entry = self._entries.get(table_id)
            if entry is not None and entry.standing is Standing.PROPOSED:
                self._entries[table_id] = replace(
                    entry,
                    standing=Standing.ACTIVE,
                    latest_version=entry.owned_from,
                    backfilled_version=entry.owned_from,
                )

    def ratify(self, table_id: str, commit: UnbackfilledCommit, *, releases: bool) -> bool:
        """Make a commit the next version of its table; see `CommitStore.ratify`."""
        with self._lock:
            entry = self._entries.get(table_id)
            if entry is None:
                return False
            if (
                entry.standing is Standing.ACTIVE
                and entry.latest_version == commit.version - 1
                and not (releases and entry.backfilled_version != commit.version - 1)
            ):
                self._entries[table_id] = replace(
                    entry,
                    standing=Standing.RELEASED if releases else Standing.ACTIVE,
                    latest_version=commit.version,
                    commits=(*entry.commits, commit),
                )
                return True
            tracked = {known.version: known.uuid for known in entry.commits}
            return tracked.get(commit.version) == commit.uuid

    def observe(self, table_id: str, version: int) -> None:
        """Record that the log has all commits up to a version; see `CommitStore.observe`."""
        with self._lock:
            entry = self._entries.get(table_id)
            if (
                entry is None
                or entry.standing is Standing.PROPOSED
                or version <= entry.backfilled_version
            ):
                return
            self._entries[table_id] = replace(
                entry,
                latest_version=max(entry.latest_version, version),
                backfilled_version=version,
                commits=tuple(known for known in entry.commits if known.version > version),
            )

    def relocate(self, table_id: str, location: str) -> None:
        """Record a table's new location; see `CommitStore.relocate`."""
        with self._lock:
            entry = self._entries.get(table_id)
            if entry is not None:
                self._entries[table_id] = replace(entry, location=location)

    def accept(self, table_id: str, version: int, *, instead_of: int) -> bool:
        """Give up the ratified commits that the log lacks; see `CommitStore.accept`."""
        with self._lock:
            entry = self._entries.get(table_id)
            if entry is None or entry.standing is Standing.PROPOSED:
                return False
            accepted = replace(
                entry,
                standing=Standing.ACTIVE,
                latest_version=version,
                backfilled_version=version,
                commits=(),
            )
            if entry.latest_version == instead_of:
                self._entries[table_id] = accepted
            return self._entries[table_id] == accepted
