"""`CommitResult`: the result of a commit. `may_be_made`: whether the commit may exist after an error."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from airflow_delta.engine.errors import CommitOutcomeUnknownError, DeltaError
from airflow_delta.engine.model.plain import time_or_none
from airflow_delta.engine.model.properties import TableProperties
from airflow_delta.engine.model.times import utc_datetime

__all__ = ["CommitResult", "is_checkpoint_due", "may_be_made"]


@dataclass(frozen=True, slots=True)
class CommitResult:
    """A commit that was made.

    Attributes:
        version: its version.
        timestamp_ms: its time, in epoch ms: its in-commit timestamp if the table has them, else the
            ``timestamp`` of its ``commitInfo``. None for an earlier commit whose file is deleted or has
            no timestamp.
        num_files_added: the number of its ``add`` actions; 0 for an earlier commit.
        num_files_removed: the number of its ``remove`` actions; 0 for an earlier commit.
        attempts: the number of attempts; 0 for an earlier commit.
        checkpoint_due: whether the version is a multiple of ``delta.checkpointInterval``. By the rule of
            other engines this writer should then write a checkpoint. Of several concurrent writers
            only one gets true. (`DeltaTable.checkpoint` with ``if_needed`` counts the commits since the
            last checkpoint instead, which suits a schedule.)
        repeated: whether the commit is an earlier one with the same transaction identifier, found by
            `DeltaTable.commit_once`; nothing was committed now.
    """

    version: int
    timestamp_ms: int | None
    num_files_added: int = 0
    num_files_removed: int = 0
    attempts: int = 0
    checkpoint_due: bool = False
    repeated: bool = False

    @property
    def timestamp(self) -> datetime | None:
        """Its time, in UTC; see ``timestamp_ms``."""
        return utc_datetime(self.timestamp_ms)

    def to_dict(self) -> dict[str, Any]:
        """The result as plain JSON values; ``timestamp`` is ISO-8601 in UTC."""
        return {**asdict(self), "timestamp": time_or_none(self.timestamp_ms)}


def is_checkpoint_due(version: int, properties: TableProperties) -> bool:
    """Whether the writer of a version should write a checkpoint of it; see `CommitResult`.

    Args:
        version: the version.
        properties: the table's properties.

    Raises:
        InvalidTableError: ``delta.checkpointInterval`` isn't a valid number.
    """
    return version > 0 and version % properties.checkpoint_interval == 0


def may_be_made(error: BaseException) -> bool:
    """Whether a commit that has raised an error may have been made all the same.

    Then its new files must stay, because they may be part of the table.

    Args:
        error: what `OptimisticTransaction.commit` has raised.

    Returns:
        False for the engine's errors but `CommitOutcomeUnknownError`; true for that, and for all that can
        interrupt a commit at any point, such as a signal.
    """
    return isinstance(error, CommitOutcomeUnknownError) or not isinstance(error, DeltaError)
