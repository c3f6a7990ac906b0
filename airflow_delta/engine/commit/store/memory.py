"""`MemoryLedger`: the books of a commit owner in the memory of one process.

For tests, and for managed tables that no other process uses: the books end with the process, and with
them the knowledge of which un-backfilled commits count. What must last belongs into a `SqlLedger`.
"""

from __future__ import annotations

import threading
from dataclasses import replace

from airflow_delta.engine.commit.owner import Standing
from airflow_delta.engine.commit.store.commit_store import Entry
from airflow_delta.engine.log.files import UnbackfilledCommit

__all__ = ["MemoryLedger"]


class MemoryLedger:
    """A `Ledger` in memory. Every step holds one lock, so each is atomic."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}
        self._lock = threading.Lock()

    def find(self, table_id: str) -> Entry | None:
        """The entry of a table; see `Ledger.find`."""
        with self._lock:
            return self._entries.get(table_id)

    def entries_at(self, location: str) -> list[Entry]:
        """The entries of a location; see `Ledger.entries_at`."""
        with self._lock:
            found = [entry for entry in self._entries.values() if entry.location == location]
        return [replace(entry, commits=()) for entry in found]

    def propose(self, table_id: str, location: str, version: int) -> None:
        """Enter a table as proposed; see `Ledger.propose`."""
        with self._lock:
            entry = self._entries.get(table_id)
            if entry is None or (
                entry.standing is Standing.PROPOSED and entry.owned_from <= version
            ):
                self._entries[table_id] = Entry(
                    table_id, location, Standing.PROPOSED, version, version - 1, version - 1, ()
                )

    def forget(self, table_id: str, version: int) -> None:
        """Take a proposed entry out; see `Ledger.forget`."""
        with self._lock:
            entry = self._entries.get(table_id)
            if (
                entry is not None
                and entry.standing is Standing.PROPOSED
                and entry.owned_from == version
            ):
                del self._entries[table_id]

    def activate(self, table_id: str) -> None:
        """Let a proposed entry be active; see `Ledger.activate`."""
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
        """Make a commit the next version of its table; see `Ledger.ratify`."""
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
        """Note that the log holds all commits up to a version; see `Ledger.observe`."""
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
        """Note that a table has moved; see `Ledger.relocate`."""
        with self._lock:
            entry = self._entries.get(table_id)
            if entry is not None:
                self._entries[table_id] = replace(entry, location=location)

    def accept(self, table_id: str, version: int, *, instead_of: int) -> bool:
        """Give up what the log doesn't have; see `Ledger.accept`."""
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
