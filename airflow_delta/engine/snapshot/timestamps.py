"""Points in time: as users give them, and as epoch milliseconds, as in the log."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TypeAlias

from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.engine.model.times import EPOCH, utc_text

__all__ = ["Timestamp", "epoch_ms", "utc_text"]

Timestamp: TypeAlias = datetime | str | int
"""An aware datetime, an ISO-8601 text with an offset, or epoch milliseconds."""


def epoch_ms(timestamp: Timestamp, *, table: str | None = None) -> int:
    """A point in time as epoch milliseconds.

    Args:
        timestamp: the point in time.
        table: the table's location, for errors.

    Raises:
        InvalidArgumentError: it is none of these; a time without an offset is no point in time.
    """
    if isinstance(timestamp, bool):
        raise InvalidArgumentError(f"{timestamp!r} is no timestamp", table=table)
    if isinstance(timestamp, int):
        return timestamp
    moment: object = timestamp
    if isinstance(moment, str):
        try:
            # Before Python 3.11 fromisoformat doesn't know the Z.
            text = moment[:-1] + "+00:00" if moment[-1:] in {"Z", "z"} else moment
            moment = datetime.fromisoformat(text)
        except ValueError as error:
            raise InvalidArgumentError(
                f"{timestamp!r} is no timestamp: expected ISO-8601 with an offset, such as "
                "2026-01-31T12:00:00Z",
                table=table,
            ) from error
    if not isinstance(moment, datetime) or moment.utcoffset() is None:
        raise InvalidArgumentError(
            f"{timestamp!r} is no point in time: expected an aware datetime, ISO-8601 with an offset, "
            "or epoch milliseconds",
            table=table,
        )
    return (moment - EPOCH) // timedelta(milliseconds=1)
