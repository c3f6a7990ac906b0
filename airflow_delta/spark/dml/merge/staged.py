"""What one attempt of a merge has staged, and the result that comes of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from airflow_delta.spark.dml.merge.result import MergeResult
from airflow_delta.spark.dml.removed_rows import RemovedRows

if TYPE_CHECKING:
    from airflow_delta.spark.dml.merge.matches import Matches
    from airflow_delta.spark.writer.new_files import NewFiles

__all__ = ["Staged"]


@dataclass(frozen=True)
class Staged:
    """What a merge has staged.

    Attributes:
        num_source_rows: the number of rows of the source.
        matches: the pairs; None if there are none, or nothing is done to them.
        removed: what became of the files with updated and deleted rows.
        num_inserted: the number of rows that are inserted.
        num_change_files: the number of change data files.
    """

    num_source_rows: int
    matches: Matches | None = None
    removed: RemovedRows = field(default_factory=RemovedRows)
    num_inserted: int = 0
    num_change_files: int = 0

    @property
    def changes_table(self) -> bool:
        """Whether there is anything to be committed."""
        return bool(self.removed.num_rows or self.num_inserted)

    def count(self, then: str, *when: str) -> int:
        """The number of rows of the table to which something is done."""
        return self.matches.count(then, *when) if self.matches else 0

    def result(self, version: int, new_files: NewFiles) -> MergeResult:
        """The result of the merge whose commit is a version."""
        return MergeResult(
            version,
            self.num_inserted,
            self.count("update"),
            self.count("delete"),
            self.removed.num_copied_rows,
            self.removed.num_removed_files,
            len(new_files.adds) + self.removed.num_added_files,
            self.removed.num_vectors_added,
        )
