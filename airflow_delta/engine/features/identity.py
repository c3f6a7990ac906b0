"""Identity columns: columns for which the writer generates unique values.

A column with the keys below in its metadata gets the values ``start + k * step``. The furthest value ever
used is its *high water mark*, which is in the metadata too. So every commit that generates values changes
the table's metadata, and concurrent ones conflict.

If users may insert values themselves, those needn't be of the form ``start + k * step``. The mark is the
first value of that form that is as far as all inserted ones. Inserted values before the start don't count.

Example:
    If users insert 8 into a column with start 1 and step 2, its mark is 9, and the next value is 11.

PROTOCOL.md, "Identity Columns".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from airflow_delta.engine.errors import InvalidArgumentError, InvalidTableError
from airflow_delta.engine.model.schema import StructField, StructType

__all__ = [
    "ALLOW_EXPLICIT_INSERT",
    "FEATURE",
    "HIGH_WATER_MARK",
    "ONLY_MARKS_TAG",
    "START",
    "STEP",
    "IdentityColumn",
    "advance_marks",
    "identity_columns",
]

FEATURE = "identityColumns"
"""The feature's name."""

START = "delta.identity.start"
"""The key of a column's first value."""

STEP = "delta.identity.step"
"""The key of the difference between a value and the next; not 0."""

HIGH_WATER_MARK = "delta.identity.highWaterMark"
"""The key of the furthest value; missing until there is one."""

ALLOW_EXPLICIT_INSERT = "delta.identity.allowExplicitInsert"
"""The key for whether users may insert values themselves."""

ONLY_MARKS_TAG = "delta.identity.schemaUpdate"
"""The tag in ``commitInfo`` of a commit that changes nothing in the metadata but the marks. Delta Spark
sets it, and checks it in concurrent commits that change the metadata."""

_LONG_BITS = 64


@dataclass(frozen=True, slots=True)
class IdentityColumn:
    """One identity column.

    Attributes:
        name: its logical name.
        start: the first value.
        step: the difference to the next value; negative if values descend.
        high_water_mark: the furthest value that was used; None if there is none yet.
        allow_explicit_insert: whether users may insert values themselves.
    """

    name: str
    start: int
    step: int
    high_water_mark: int | None
    allow_explicit_insert: bool

    def mark_after(self, furthest: int) -> int | None:
        """The high water mark after a commit adds values to the column.

        Args:
            furthest: the furthest of the values, in the direction of the step.

        Raises:
            OverflowError: the mark would be no 64-bit integer.
        """
        direction = 1 if self.step > 0 else -1
        marks = []
        if self.high_water_mark is not None and not self._is_before_start(self.high_water_mark):
            marks.append(self.high_water_mark)
        if not self._is_before_start(furthest):
            steps = -(-abs(furthest - self.start) // abs(self.step))  # rounded up
            marks.append(self.start + steps * self.step)
        if not marks:
            return self.high_water_mark
        mark = max(marks, key=lambda value: value * direction)
        if not _is_long(mark):
            raise OverflowError(mark)
        return mark

    def _is_before_start(self, value: int) -> bool:
        return value < self.start if self.step > 0 else value > self.start


def identity_columns(schema: StructType) -> tuple[IdentityColumn, ...]:
    """The identity columns of a table, in the order of its schema.

    Columns inside others can't be identity columns.

    Raises:
        InvalidTableError: the metadata of an identity column are invalid. Facts: column.
    """
    return tuple(_identity(field) for field in schema if START in field.metadata)


def advance_marks(schema: StructType, furthest: Mapping[str, int]) -> StructType:
    """The schema after a commit adds values to its identity columns.

    Args:
        schema: the schema.
        furthest: for each identity column that gets values, by logical name, the furthest of them: the
            highest, or the lowest if the step is negative.

    Returns:
        The schema with the new high water marks; the same object if none has changed.

    Raises:
        InvalidArgumentError: a name isn't that of an identity column, or a value is no 64-bit integer.
        OverflowError: a mark would be no 64-bit integer.
        InvalidTableError: see `identity_columns`.
    """
    columns = {column.name: column for column in identity_columns(schema)}
    for name, value in furthest.items():
        if name not in columns or not _is_long(value):
            raise InvalidArgumentError(
                f"the value {value!r} of {name!r}: expected a 64-bit integer for one of the table's "
                f"identity columns, which are {sorted(columns)}"
            )
    marks = {name: columns[name].mark_after(value) for name, value in furthest.items()}
    moved = {name for name, mark in marks.items() if mark != columns[name].high_water_mark}
    if not moved:
        return schema
    return StructType(
        tuple(
            replace(field, metadata={**field.metadata, HIGH_WATER_MARK: marks[field.name]})
            if field.name in moved
            else field
            for field in schema
        )
    )


def _identity(field: StructField) -> IdentityColumn:
    start, step = field.metadata[START], field.metadata.get(STEP, 0)
    mark = field.metadata.get(HIGH_WATER_MARK)
    allow = field.metadata.get(ALLOW_EXPLICIT_INSERT, False)
    numbers = _is_long(start) and _is_long(step) and (mark is None or _is_long(mark))
    if not numbers or step == 0 or not isinstance(allow, bool):
        raise InvalidTableError(
            f"the identity column {field.name!r} has {START}={start!r}, {STEP}={step!r}, "
            f"{HIGH_WATER_MARK}={mark!r} and {ALLOW_EXPLICIT_INSERT}={allow!r}: expected 64-bit "
            "integers, a step other than 0, and true or false",
            column=field.name,
        )
    return IdentityColumn(field.name, start, step, mark, allow)


def _is_long(value: object) -> bool:
    return type(value) is int and -(1 << _LONG_BITS - 1) <= value < 1 << _LONG_BITS - 1
