"""What a transaction says of the commit that it has made."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from airflow_delta.engine.model.plain import time_or_none
from airflow_delta.engine.model.properties import TableProperties
from airflow_delta.engine.model.times import utc_datetime

__all__ = ["CommitResult", "is_checkpoint_due"]


@dataclass(frozen=True, slots=True)
class CommitResult:
    """A commit that was made.

    Attributes:
        version: the version it made.
        timestamp_ms: its time, in epoch ms: its in-commit timestamp where the table has them, else the
            ``timestamp`` of its ``commitInfo``. None where the commit is an earlier one whose file is
            gone or tells no time.
        num_files_added: how many ``add`` actions it holds; 0 for an earlier commit.
        num_files_removed: how many ``remove`` actions it holds; 0 for an earlier commit.
        attempts: how often it was tried; 0 for an earlier commit.
        checkpoint_due: whether the version is a multiple of ``delta.checkpointInterval``, so that it is
            for this writer to have a checkpoint made, as other engines count it. One of any number of
            concurrent writers is told so, and of an earlier commit whoever asks for it again.
            (`DeltaTable.checkpoint` with ``if_needed`` counts the commits since the last checkpoint
            instead, for whoever comes by on a schedule.)
        repeated: whether the commit is an earlier one with the same transaction identifier, found by
            `DeltaTable.commit_once`, so that nothing was committed now.
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
    """Whether whoever has made a version should have a checkpoint of it made; see `CommitResult`.

    Args:
        version: the version.
        properties: the table's properties.

    Raises:
        InvalidTableError: ``delta.checkpointInterval`` is no number that it can be.
    """
    return version > 0 and version % properties.checkpoint_interval == 0
