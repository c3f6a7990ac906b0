"""What is copied, and the mark by which a Delta copy says so in each of its commits.

The mark is a transaction identifier: `copy_app_id` of the source's table id, with the source's version. A
source that is replaced by another definition has another id from then on, and its copies go on
(`table_identity`). So a commit sets the marks of all ids that the source is known to have had, and they
never contradict one another.

No PySpark here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_delta.spark.table_identity import is_same_log

if TYPE_CHECKING:
    from airflow_delta.engine import DeltaTable, Snapshot

__all__ = ["CopySource", "copy_app_id"]

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
        return table_id == self.id or bool(is_same_log(self.table, table_id, version))

    def marks(self, held: Snapshot | None) -> dict[str, int]:
        """The marks of a target that tell of copies of this table, with the versions that were copied.

        Args:
            held: the target; None where there is none yet.

        Returns:
            By application id. That of the table's id now is there only where it has been set.

        Raises:
            DeltaError: the table, or the target, can't be read.
        """
        marks = {} if held is None else held.transactions
        return {
            app_id: mark.version
            for app_id, mark in marks.items()
            if app_id.startswith(_APP_ID) and self.was(app_id.removeprefix(_APP_ID), mark.version)
        }

    def version_at(self, held: Snapshot) -> int | None:
        """The version of this table that a target is a copy of; None where it is none.

        Raises:
            DeltaError: see `marks`.
        """
        marks = self.marks(held)
        return marks.get(copy_app_id(self.id), max(marks.values(), default=None))


def copy_app_id(table_id: str) -> str:
    """The application id that marks a Delta copy of a table, whose id this is."""
    return f"{_APP_ID}{table_id}"
