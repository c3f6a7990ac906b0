"""Dates and times that Spark has counted in the hybrid calendar; only this module knows about it.

Dates before 1582-10-15 were Julian to Spark 2, and times before that, too. Later versions write them so if
``spark.sql.parquet.datetimeRebaseModeInWrite`` or ``int96RebaseModeInWrite`` is ``LEGACY``. The footer
says which version has written a file, and in which mode. A file without the version of Spark is read as it
is; Spark has a setting for that, which is ``CORRECTED`` by default.

==================  ===================================================================================
column              before 1582-10-15 (dates), or 1900-01-01T00:00:00Z (times), in such a file
==================  ===================================================================================
``date``            the day with the same year, month and day in the proleptic Gregorian calendar, as by
                    Spark. A February 29 that isn't there becomes March 1
``timestamp``       an error: the value depends on a time zone, and on its history in Java
``timestamp_ntz``   as it is, as in Spark: the type is younger than the hybrid calendar
==================  ===================================================================================

The order of dates stays the same, so minimum and maximum of a footer are converted alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.numpy_arrays import int64_array, int64_view
from airflow_delta.engine.arrow.python_arrays import scalar_of

__all__ = ["HybridCalendar", "OldTimeError", "calendar_of"]

_VERSION = b"org.apache.spark.version"
_LEGACY_DATETIME = b"org.apache.spark.legacyDateTime"
_LEGACY_INT96 = b"org.apache.spark.legacyINT96"

_FIRST_DATE = date(1582, 10, 15)
_FIRST_DAY = (_FIRST_DATE - date(1970, 1, 1)).days
_FIRST_TIME = datetime(1900, 1, 1)
_FIRST_SECOND = (_FIRST_TIME - datetime(1970, 1, 1)).days * 86_400
_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}

_JULIAN_MARCH_OF_YEAR_0 = -719_470
"""The number of the day 0000-03-01 of the Julian calendar."""
_DAYS_OF_FOUR_YEARS = 1461


class OldTimeError(Exception):
    """A time whose value depends on a time zone. The caller, which knows the column, raises the error."""


@dataclass(frozen=True, slots=True)
class HybridCalendar:
    """What a file counts in the hybrid calendar.

    Attributes:
        has_dates: whether dates.
        has_times: whether times with a zone.
    """

    has_dates: bool
    has_times: bool

    def affects(self, stored: pa.DataType, wanted: pa.DataType) -> bool:
        """Whether values of a type may be old.

        Args:
            stored: the type in the file.
            wanted: the type in the table.
        """
        types = pa.types
        if types.is_timestamp(stored):
            is_instant = types.is_timestamp(wanted) and wanted.tz is not None
            return self.has_times and is_instant
        return self.has_dates and types.is_date32(stored)

    @staticmethod
    def convert(array: pa.Array) -> pa.Array:
        """The values of a file in the proleptic Gregorian calendar.

        Args:
            array: dates, or times, of a type that the calendar `affects`.

        Raises:
            OldTimeError: a time is too old.
        """
        if pa.types.is_date32(array.type):
            return _rebase_dates(array)
        oldest = pc.min(array.view(pa.int64())).as_py()
        if oldest is not None and oldest < _FIRST_SECOND * _PER_SECOND[array.type.unit]:
            raise OldTimeError
        return array

    def hides(self, minimum: Any, *, is_instant: bool) -> bool:
        """Whether the minimum of a footer, read as if it were proleptic, bounds nothing.

        Args:
            minimum: a value of a column as a Python value; a time as one without a zone.
            is_instant: whether the column is a ``timestamp``.
        """
        if isinstance(minimum, datetime):
            return self.has_times and is_instant and minimum < _FIRST_TIME
        return self.has_dates and isinstance(minimum, date) and minimum < _FIRST_DATE


def calendar_of(footer: Any) -> HybridCalendar | None:
    """What a file counts in the hybrid calendar; None for nothing.

    Args:
        footer: its footer, a ``pyarrow.parquet.FileMetaData``.
    """
    known = footer.metadata or {}
    version = known.get(_VERSION)
    if version is None:
        return None
    # The comparisons of texts are Spark's.
    has_dates = version < b"3.0.0" or _LEGACY_DATETIME in known
    has_int96 = version < b"3.1.0" or _LEGACY_INT96 in known
    if not (has_dates or has_int96):
        return None
    # Spark writes all times of a file in one type.
    schema = footer.schema
    is_int96 = any(schema.column(index).physical_type == "INT96" for index in range(len(schema)))
    has_times = has_int96 if is_int96 else has_dates
    return HybridCalendar(has_dates, has_times) if has_dates or has_times else None


def _rebase_dates(array: pa.Array) -> pa.Array:
    oldest = pc.min(array.view(pa.int32())).as_py()
    if oldest is None or oldest >= _FIRST_DAY:
        return array
    days = int64_view(array.view(pa.int32()).cast(pa.int64()))
    # Years begin on March 1, so that a leap day is the last of its year.
    years = (4 * (days - _JULIAN_MARCH_OF_YEAR_0) + 3) // _DAYS_OF_FOUR_YEARS
    centuries = years // 100
    # The Gregorian calendar has no leap day in three of four centuries.
    rebased = np.where(days < _FIRST_DAY, days - (centuries - centuries // 4 - 2), days)
    numbers = int64_array(rebased)
    if array.null_count:
        numbers = pc.if_else(array.is_valid(), numbers, scalar_of(None, pa.int64()))
    return numbers.cast(pa.int32()).view(array.type)
