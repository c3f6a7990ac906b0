"""Type widening: changes of a column's type that readers can follow.

If a column's type is widened, its older files stay. Readers convert their values to the new type. Each
change is recorded in the metadata of the column, under ``delta.typeChanges``, as ``fromType`` and
``toType`` (and ``fieldPath`` for the contents of arrays and maps). Only some changes can be read correctly
(`can_widen`); others must be refused. The rules are those of later editions of the protocol.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from airflow_delta.engine.errors import InvalidTableError
from airflow_delta.engine.features.schema_walk import SchemaPath, all_fields, map_fields
from airflow_delta.engine.model.schema import (
    BYTE,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    SHORT,
    TIMESTAMP_NTZ,
    DataType,
    DecimalType,
    StructField,
    StructType,
)
from airflow_delta.engine.model.schema_json import data_type_from_json

__all__ = ["can_widen", "changed_columns", "unsupported_type_changes", "without_type_changes"]

_TYPE_CHANGES = "delta.typeChanges"

_WIDER: Mapping[DataType, frozenset[DataType]] = {
    BYTE: frozenset({SHORT, INTEGER, LONG, DOUBLE}),
    SHORT: frozenset({INTEGER, LONG, DOUBLE}),
    INTEGER: frozenset({LONG, DOUBLE}),
    FLOAT: frozenset({DOUBLE}),
    DATE: frozenset({TIMESTAMP_NTZ}),
}
_INTEGER_DIGITS: Mapping[DataType, int] = {BYTE: 3, SHORT: 5, INTEGER: 10, LONG: 20}
"""The digits before the point with which a decimal can hold all values of an integer type. The final rule
is 10 for the first three, but writers of the preview used these."""


def can_widen(old: DataType, new: DataType) -> bool:
    """Whether values of the old type can be read as the new one.

    Besides the types in `_WIDER`, this holds for an integer and a decimal that can hold all its values, and
    for two decimals of which the new one has no fewer digits before and after the point.
    """
    if old == new or new in _WIDER.get(old, ()):
        return True
    if not isinstance(new, DecimalType):
        return False
    if isinstance(old, DecimalType):
        digits, scale = old.precision - old.scale, old.scale
    elif old in _INTEGER_DIGITS:
        digits, scale = _INTEGER_DIGITS[old], 0
    else:
        return False
    return new.scale >= scale and new.precision - new.scale >= digits


def unsupported_type_changes(schema: StructType, *, table: str) -> tuple[str, ...]:
    """The recorded type changes that readers can't follow, described for a message.

    Raises:
        InvalidTableError: a record of a change is malformed.
    """
    return tuple(
        f"{'.'.join(path)}: {old} to {new}"
        for path, field in all_fields(schema)
        for old, new in _changes(field, ".".join(path), table)
        if not can_widen(old, new)
    )


def changed_columns(schema: StructType) -> tuple[SchemaPath, ...]:
    """The columns, at any depth, with recorded type changes. Files may have narrower types for them."""
    return tuple(path for path, field in all_fields(schema) if _TYPE_CHANGES in field.metadata)


def without_type_changes(schema: StructType) -> StructType:
    """The schema without the records, for a table whose files all have the types of the schema."""

    def _strip(field: StructField) -> StructField:
        kept = {key: value for key, value in field.metadata.items() if key != _TYPE_CHANGES}
        return replace(field, metadata=kept)

    return map_fields(schema, _strip)


def _changes(field: StructField, name: str, table: str) -> Iterator[tuple[DataType, DataType]]:
    for change in field.metadata.get(_TYPE_CHANGES) or ():
        try:
            yield _type(change, "fromType"), _type(change, "toType")
        except (InvalidTableError, LookupError, TypeError) as error:
            raise InvalidTableError(
                f"{_TYPE_CHANGES} of column {name} holds {change!r}: expected an object with the "
                "types 'fromType' and 'toType'",
                table=table,
            ) from error


def _type(change: Any, key: str) -> DataType:
    return data_type_from_json(change[key])
