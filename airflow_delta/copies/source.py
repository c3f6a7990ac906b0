"""What is copied, and the mark by which a Delta copy says so in each of its commits.

The mark is a transaction identifier: `copy_app_id` of the source's table id, with the source's version. A
source that is replaced by another definition has another id from then on, and its copies go on
(`table_identity`). So a commit sets all marks of its target, which is a copy of one table, and they never
contradict one another.

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

    def was(self, table_id: str, version: int) -> bool:
        """Whether the table had an id at a version; False where that can't be told any more.

        Raises:
            DeltaError: the table can't be read.
        """
        return bool(self.had_id(table_id, version))

    def had_id(self, table_id: str, version: int) -> bool | None:
        """Whether the table had an id at a version; None where that can't be told any more.

        That is so once cleanup has taken the version, or damage, and the table has another id since.

        Raises:
            DeltaError: the table can't be read.
        """
        return table_id == self.id or is_same_log(self.table, table_id, version)

    def app_ids(self, held: Snapshot | None) -> list[str]:
        """The application ids of the marks that a copy sets.

        Args:
            held: the target, an earlier copy of this table; None where there is none yet.

        Raises:
            DeltaError: the target can't be read.
        """
        return [copy_app_id(table_id) for table_id in sorted({self.id, *_marks(held)})]

    def version_at(self, held: Snapshot) -> int | None:
        """The version of this table that a target is a copy of; None where none is known.

        Raises:
            DeltaError: the table, or the target, can't be read.
        """
        marks = _marks(held)
        if self.id in marks:
            return marks[self.id]
        known = (version for mark, version in marks.items() if self.had_id(mark, version))
        return max(known, default=None)

    def unknown_version(self, held: Snapshot) -> int | None:
        """A version of which a target is a copy, and nobody can tell whether it was this table's.

        Raises:
            DeltaError: the table, or the target, can't be read.
        """
        marks = _marks(held).items()
        return next(
            (version for mark, version in marks if self.had_id(mark, version) is None), None
        )


def _marks(held: Snapshot | None) -> dict[str, int]:
    """The versions that were copied to a target, by the table ids of the sources."""
    transactions = {} if held is None else held.transactions
    return {
        app_id.removeprefix(_APP_ID): mark.version
        for app_id, mark in transactions.items()
        if app_id.startswith(_APP_ID)
    }


def is_marked_as_copy(held: Snapshot) -> bool:
    """Whether the log of a table says that it is a Delta copy, of whichever table.

    Raises:
        DeltaError: the table can't be read.
    """
    # Whether or not the retention of such a mark has passed.
    return any(app_id.startswith(_APP_ID) for app_id in held.state.non_file_state.transactions)


def copy_app_id(table_id: str) -> str:
    """The application id that marks a Delta copy of a table, whose id this is."""
    return f"{_APP_ID}{table_id}"
