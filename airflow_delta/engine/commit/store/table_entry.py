"""`TableBooks`: one table's part of an owner's books, with errors that say whose they are.

A ledger knows tables by their ids alone. Here an id is made one of a table at a location: an entry is
refused where the table is somewhere else. A directory that was copied holds the id of the original; what
is committed there must not go into the original's books, nor the original's commits be looked for there.
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
    """The books of one table.

    All methods raise `CommitOwnerUnavailableError` where the books can't be reached.

    Args:
        ledger: the books of the owner.
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
        """The entry of the table, wherever it says the table is; None where there is none."""
        return self.ask(lambda: self.ledger.find(self.table_id))

    def known(self) -> Entry:
        """The entry of the table, wherever it says the table is.

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
        """The entry of the table.

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
        """Note that the log has all commits up to a version."""
        self.ask(lambda: self.ledger.observe(self.table_id, version))

    def ask(self, question: Callable[[], _T]) -> _T:
        """What the ledger answers; its errors get the facts of the table."""
        try:
            return question()
        except CommitOwnerError as error:
            facts = {**error.facts, "owner": self.table.owner}
            raise type(error)(error.message, table=self.table.uri, **facts) from error

    def refusal(self, message: str, **facts: Any) -> CommitOwnerError:
        """The error for what the owner doesn't do."""
        return CommitOwnerError(message, table=self.table.uri, owner=self.table.owner, **facts)
