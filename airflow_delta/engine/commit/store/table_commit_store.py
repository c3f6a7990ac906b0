"""`TableBooks`: one table's entry in a commit owner's ledger, with errors that name both.

A ledger knows tables by their ids alone. A directory that was copied has the id of the original, and its
commits must not mix with the original's. So an entry is refused where it is for another location.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from airflow_delta.engine.commit.owner import ManagedTable
from airflow_delta.engine.commit.store.commit_store import Entry, Ledger
from airflow_delta.engine.errors import CommitOwnerError

__all__ = ["TableBooks"]

_T = TypeVar("_T")


class TableBooks:
    """The ledger of a commit owner, as far as it is about one table.

    All methods raise `CommitOwnerUnavailableError` where the ledger can't be reached.

    Args:
        ledger: stores which commits the owner has ratified.
        table: the table.

    Raises:
        CommitOwnerError: the table has no id.
    """

    def __init__(self, ledger: Ledger, table: ManagedTable) -> None:
        self.ledger = ledger
        self.table = table
        if table.table_id is None:
            raise self.refusal(
                f"the owner {table.owner!r} finds a table in its books by the key 'tableId' of "
                "delta.managedCommit.commitOwnerConf, which this table doesn't have: another engine has "
                "handed it over to another owner of that name. Use the engine and the owner that it has"
            )
        self.table_id = table.table_id

    def find(self) -> Entry | None:
        """Return the table's entry, for whatever location; None where there is none."""
        return self.ask(lambda: self.ledger.find(self.table_id))

    def known(self) -> Entry:
        """Return the table's entry, for whatever location.

        Raises:
            CommitOwnerError: there is none.
        """
        entry = self.find()
        if entry is None:
            raise self.refusal(
                f"the owner {self.table.owner!r} has no table with the id {self.table_id}. Make sure that "
                "its books are those that the table was handed over to (the right database, say); if "
                "they were lost, restore them from a backup"
            )
        return entry

    def entry(self) -> Entry:
        """Return the table's entry.

        Raises:
            CommitOwnerError: there is none, or it is for another location.
        """
        entry = self.known()
        if entry.location == self.table.location:
            return entry
        raise self.refusal(
            f"the owner {self.table.owner!r} has the table with the id {self.table_id} at "
            f"{entry.location}, not at {self.table.location}. If it has moved, tell the owner by "
            "`airflow-delta commits --relocate`; if this is a copy, it can be read as far as it is "
            "backfilled, and nobody can commit to it, as the owner's books are the original's",
            expected=entry.location,
            found=self.table.location,
        )

    def observe(self, version: int) -> None:
        """Record that the log has all commits up to a version."""
        self.ask(lambda: self.ledger.observe(self.table_id, version))

    def ask(self, question: Callable[[], _T]) -> _T:
        """Call the ledger, and add the table's facts to its errors."""
        try:
            return question()
        except CommitOwnerError as error:
            facts = {**error.facts, "owner": self.table.owner}
            raise type(error)(error.message, table=self.table.uri, **facts) from error

    def refusal(self, message: str, **facts: Any) -> CommitOwnerError:
        """Make the error for what the owner refuses."""
        return CommitOwnerError(message, table=self.table.uri, owner=self.table.owner, **facts)
