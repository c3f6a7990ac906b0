"""Choose how old a file must be before a vacuum deletes it.

The table's property ``delta.deletedFileRetentionDuration`` says it, a week unless set.

* A shorter retention is refused unless the caller insists. It would take files from queries that are
  running, and from commits in the making.
* A longer retention needs more than a larger number: checkpoints drop tombstones by the table's property,
  and without its tombstone a file looks like an orphan. So the commits since then are read
  (`read_removes_since`), and must exist. If the property itself was raised, those that exist are read: an
  older checkpoint has dropped tombstones by the old value, and the log doesn't say when that was.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from airflow_delta.engine.errors import RetentionError
from airflow_delta.engine.model.arguments import wrong_argument
from airflow_delta.engine.model.properties import TableProperties
from airflow_delta.engine.model.times import duration_text, utc_datetime

__all__ = ["Retention", "check_hours", "choose_retention"]

_HOUR_MS = 60 * 60 * 1000
_MOST_HOURS = 10**9  # far more than anybody needs, and within 64 bits of milliseconds


@dataclass(frozen=True, slots=True)
class Retention:
    """The retention of files.

    Attributes:
        duration_ms: how long, in ms.
        cutoff_ms: files written or removed before this time may be deleted, in epoch ms.
        configured_ms: the table's property, in ms.
    """

    duration_ms: int
    cutoff_ms: int
    configured_ms: int

    @property
    def cutoff(self) -> datetime | None:
        """The time before which files may be deleted, in UTC; None if it is before the year 1."""
        return utc_datetime(self.cutoff_ms)


def check_hours(hours: object, *, table: str) -> None:
    """Check that an argument is a number of hours, or None.

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


def choose_retention(
    properties: TableProperties, hours: float | None, *, now_ms: int, enforce: bool
) -> Retention:
    """Choose the retention of a vacuum.

    Args:
        properties: the table's.
        hours: the requested hours; None for the table's property.
        now_ms: the time, in epoch ms.
        enforce: refuse less than the property.

    Raises:
        InvalidArgumentError: the hours are no such number.
        RetentionError: they are less than the property.
        InvalidTableError: the property can't be read.
    """
    check_hours(hours, table=properties.table)
    configured = properties.deleted_file_retention_ms
    duration = configured if hours is None else round(hours * _HOUR_MS)
    if enforce and duration < configured:
        raise RetentionError(
            f"the requested retention is {duration_text(duration)}, but the table keeps removed files for "
            f"{duration_text(configured)} (delta.deletedFileRetentionDuration): running queries and "
            "writers may need younger files. Request at least that, or change the property. If you are "
            "sure that nobody else uses the table, set enforce_retention=False",
            table=properties.table,
            retention_ms=duration,
            configured_ms=configured,
        )
    return Retention(duration, now_ms - duration, configured)
