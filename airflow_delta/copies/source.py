"""The version that is copied, and the transaction identifiers that record it in a Delta copy.

The application id is `copy_app_id` of the source's table id; its version is the source's version. A
source that is replaced by another definition gets another table id, and its copies continue
(`airflow_delta.change_feeds.table_identity`). So a commit updates all such identifiers of its
target: all are of one table.

No PySpark here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_delta.change_feeds.table_identity import is_same_log

if TYPE_CHECKING:
    from airflow_delta.engine import DeltaTable, Snapshot

__all__ = ["CopySource", "copy_app_id", "is_marked_as_copy"]

_APP_ID = "airflow-delta:copy-of:"


@dataclass(frozen=True, slots=True)
class CopySource:
    """A version of a table, to be copied.

    Attributes:
        table: the table.
        snapshot: the version.
    """

    table: DeltaTable
    snapshot: Snapshot

    @property
    def id(self) -> str:
        """The table's id in that version."""
        return self.snapshot.metadata.id

    def had_id(self, table_id: str, version: int) -> bool | None:
        """Whether the table had an id at a version; None if nobody can know any more.

        That is so if the table has another id now, and the version is gone after a cleanup or damage.

        Raises:
            DeltaError: the table can't be read.
        """
        return table_id == self.id or is_same_log(self.table, table_id, version)

    def app_ids(self, held: Snapshot | None) -> list[str]:
        """The application ids that a copy sets.

        Args:
            held: the target, an earlier copy of this table; None if it doesn't exist yet.

        Raises:
            DeltaError: the target can't be read.
        """
        return [copy_app_id(table_id) for table_id in sorted({self.id, *_marks(held)})]

    def version_at(self, held: Snapshot) -> int | None:
        """The version of this table that a target is a copy of; None if none is known.

        Raises:
            DeltaError: the table, or the target, can't be read.
        """
        marks = _marks(held)
        if self.id in marks:
            return marks[self.id]
        known = (version for mark, version in marks.items() if self.had_id(mark, version))
        return max(known, default=None)

    def unknown_version(self, held: Snapshot) -> int | None:
        """A version that a target is a copy of, if nobody can know whether it was this table's.

        Raises:
            DeltaError: the table, or the target, can't be read.
        """
        marks = _marks(held).items()
        return next(
            (version for mark, version in marks if self.had_id(mark, version) is None), None
        )


def _marks(held: Snapshot | None) -> dict[str, int]:
    """The versions that were copied to a target, by the table id of the source."""
    transactions = {} if held is None else held.transactions
    return {
        app_id.removeprefix(_APP_ID): mark.version
        for app_id, mark in transactions.items()
        if app_id.startswith(_APP_ID)
    }


def is_marked_as_copy(held: Snapshot) -> bool:
    """Whether a table is a Delta copy of any table, according to its log.

    Raises:
        DeltaError: the table can't be read.
    """
    # Not `Snapshot.transactions`, which leaves out expired identifiers.
    return any(app_id.startswith(_APP_ID) for app_id in held.state.non_file_state.transactions)


def copy_app_id(table_id: str) -> str:
    """The application id that records copies of the table with this id."""
    return f"{_APP_ID}{table_id}"
