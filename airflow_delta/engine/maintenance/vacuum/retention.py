"""How old a file must be for a vacuum to take it.

``delta.deletedFileRetentionDuration`` says it, a week unless set, and whoever shortens it for one run risks
more than old versions: queries that are under way lose their files, and commits that are being made lose
what they have written. So a shorter retention is refused unless the caller insists.

A longer one is honoured to the letter. It isn't enough to count back further: checkpoints forget tombstones
that are older than the property says, and without the tombstone a file would be as good as an orphan. So
the commits since then are read (`vacuum_log.removed_since`), and must still be there. Where it is the
property itself that was raised, they are read as far as they are there: a checkpoint made before that has
forgotten tombstones by the old value, and which it was nobody tells.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from airflow_delta.engine.errors import RetentionError
from airflow_delta.engine.model.arguments import wrong_argument
from airflow_delta.engine.model.properties import TableProperties
from airflow_delta.engine.model.times import duration_text, utc_datetime

__all__ = ["Retention", "check_hours", "retention_of"]

_HOUR_MS = 60 * 60 * 1000
_MOST_HOURS = 10**9  # far beyond what there is, and within 64 bits of milliseconds


@dataclass(frozen=True, slots=True)
class Retention:
    """How long files are kept.

    Attributes:
        duration_ms: for so long, in ms.
        cutoff_ms: what is older than that may go: written, or removed, before this time, in epoch ms.
        configured_ms: what the table's property says, in ms.
    """

    duration_ms: int
    cutoff_ms: int
    configured_ms: int

    @property
    def cutoff(self) -> datetime | None:
        """What was written or removed before may go, in UTC; None where that is before the year 1."""
        return utc_datetime(self.cutoff_ms)


def check_hours(hours: object, *, table: str) -> None:
    """Make sure that an argument is a number of hours, or None.

    Raises:
        InvalidArgumentError: it isn't.
    """
    if hours is None:
        return
    if (
        isinstance(hours, bool)
        or not isinstance(hours, int | float)
        or not 0 <= hours <= _MOST_HOURS
    ):
        expected = "a number of hours, at least 0, or None"
        raise wrong_argument("retention_hours", expected, hours, table=table)


def retention_of(
    properties: TableProperties, hours: float | None, *, now_ms: int, enforce: bool
) -> Retention:
    """The retention of a vacuum.

    Args:
        properties: the table's.
        hours: what was asked for; None for what the table's property says.
        now_ms: the time, in epoch ms.
        enforce: refuse less than the property says.

    Raises:
        InvalidArgumentError: the hours are no such number.
        RetentionError: they are less than the property says.
        InvalidTableError: the property can't be read.
    """
    check_hours(hours, table=properties.table)
    configured = properties.deleted_file_retention_ms
    duration = configured if hours is None else round(hours * _HOUR_MS)
    if enforce and duration < configured:
        raise RetentionError(
            f"a retention of {duration_text(duration)} was asked for, and the table keeps removed files "
            f"for {duration_text(configured)} (delta.deletedFileRetentionDuration): queries and writers "
            "that are under way may need younger files. Ask for no less, or change the property; whoever "
            "is sure that nobody else uses the table sets enforce_retention=False",
            table=properties.table,
            retention_ms=duration,
            configured_ms=configured,
        )
    return Retention(duration, now_ms - duration, configured)
