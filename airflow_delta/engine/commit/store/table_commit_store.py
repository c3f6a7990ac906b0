"""`TableCommitStore`: the commit store of an owner, seen from one table.

It calls the methods of `CommitStore` with the table's id, and adds the table and its owner to errors.

A commit store finds tables by their ids alone. A copy of a table's directory has the id of the original,
and its commits must not mix with those of the original. So an entry with another location is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from airflow_delta.engine.commit.owner import ManagedTable
from airflow_delta.engine.commit.store.commit_store import CommitStore, TableEntry
from airflow_delta.engine.errors import CommitOwnerError
from airflow_delta.engine.log.files import UnbackfilledCommit

__all__ = ["TableCommitStore"]

_T = TypeVar("_T")


class TableCommitStore:
    """The records of a commit store about one table.

    All methods raise `CommitOwnerUnavailableError` if the commit store can't be reached.

    Args:
        commit_store: stores which commits the owner has ratified.
        table: the table.

    Raises:
        CommitOwnerError: the table has no id.
    """

    def __init__(self, commit_store: CommitStore, table: ManagedTable) -> None:
        self._commit_store = commit_store
        self.table = table
        if table.table_id is None:
            raise self.make_error(
                f"the owner {table.owner!r} finds a table by the key 'tableId' of "
                "delta.managedCommit.commitOwnerConf, which this table doesn't have: another engine has "
                "handed it over to another owner of that name. Use that engine and that owner"
            )
        self.table_id = table.table_id

    def find_entry(self) -> TableEntry | None:
        """Return the table's entry, whatever its location; None if there is none."""
        return self._call(lambda: self._commit_store.find(self.table_id))

    def load_entry_anywhere(self) -> TableEntry:
        """Return the table's entry, whatever its location.

        Raises:
            CommitOwnerError: there is none.
        """
        entry = self.find_entry()
        if entry is None:
            raise self.make_error(
                f"the owner {self.table.owner!r} has no table with the id {self.table_id}. Make sure that "
                "its commit store is the one that the table was handed over to (the right database, say); "
                "if that was lost, restore it from a backup"
            )
        return entry

    def load_entry(self) -> TableEntry:
        """Return the table's entry.

        Raises:
            CommitOwnerError: there is none, or it has another location.
        """
        entry = self.load_entry_anywhere()
        if entry.location == self.table.location:
            return entry
        raise self.make_error(
            f"the owner {self.table.owner!r} has the table with the id {self.table_id} at "
            f"{entry.location}, not at {self.table.location}. If the table has moved, record that with "
            "`airflow-delta commits --relocate`. If this is a copy, its backfilled versions can be read, "
            "and nobody can commit to it, because the owner has recorded the commits of the original",
            expected=entry.location,
            found=self.table.location,
        )

    def list_entries_here(self) -> list[TableEntry]:
        """Return the entries of all tables at this location; see `CommitStore.entries_at`."""
        return self._call(lambda: self._commit_store.entries_at(self.table.location))

    def propose(self, version: int) -> None:
        """Enter the table as proposed; see `CommitStore.propose`."""
        self._call(lambda: self._commit_store.propose(self.table_id, self.table.location, version))

    def forget(self, entry: TableEntry) -> None:
        """Delete a proposed entry, of this table or another one; see `CommitStore.forget`."""
        self._call(lambda: self._commit_store.forget(entry.table_id, entry.owned_from))

    def activate(self) -> None:
        """Make the proposed entry active; see `CommitStore.activate`."""
        self._call(lambda: self._commit_store.activate(self.table_id))

    def ratify(self, commit: UnbackfilledCommit, *, releases: bool) -> bool:
        """Make a commit the table's next version; see `CommitStore.ratify`."""
        return self._call(
            lambda: self._commit_store.ratify(self.table_id, commit, releases=releases)
        )

    def observe(self, version: int) -> None:
        """Record that the log has all commits up to a version; see `CommitStore.observe`."""
        self._call(lambda: self._commit_store.observe(self.table_id, version))

    def relocate(self) -> None:
        """Record that the table is at this location now; see `CommitStore.relocate`."""
        self._call(lambda: self._commit_store.relocate(self.table_id, self.table.location))

    def accept(self, version: int, *, instead_of: int) -> bool:
        """Give up the ratified commits that the log lacks; see `CommitStore.accept`."""
        return self._call(
            lambda: self._commit_store.accept(self.table_id, version, instead_of=instead_of)
        )

    def make_error(self, message: str, **facts: Any) -> CommitOwnerError:
        """Make the error with which the owner refuses a request."""
        return CommitOwnerError(message, table=self.table.uri, owner=self.table.owner, **facts)

    def _call(self, step: Callable[[], _T]) -> _T:
        """Call the commit store, and add the table and its owner to errors."""
        try:
            return step()
        except CommitOwnerError as error:
            facts = {**error.facts, "owner": self.table.owner}
            raise type(error)(error.message, table=self.table.uri, **facts) from error
