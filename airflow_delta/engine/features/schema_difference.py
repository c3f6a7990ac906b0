"""Compare the schemas of two versions of a table: which columns were added, dropped, renamed or changed.

Columns of both versions are matched by their physical names, which stay when a column is renamed or moved.
Without column mapping a physical name is the name itself, so a renamed column can't occur.

PROTOCOL.md, "Column Mapping" and "Type Widening".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from airflow_delta.engine.features.column_mapping import (
    ID,
    PHYSICAL_NAME,
    physical_schema,
)
from airflow_delta.engine.features.schema_walk import SchemaPath, all_fields
from airflow_delta.engine.features.type_widening import can_widen
from airflow_delta.engine.model.plain import plain
from airflow_delta.engine.model.schema import (
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
)
from airflow_delta.engine.model.sql_names import sql_name

__all__ = ["SchemaChange", "SchemaChangeKind", "compare_schemas"]

_IDENTITY = frozenset({ID, PHYSICAL_NAME, "delta.columnMapping.nested.ids"})
"""The metadata by which columns are matched, which isn't reported."""


class SchemaChangeKind(Enum):
    """The kinds of changes of a column."""

    ADDED = "added"
    DROPPED = "dropped"
    RENAMED = "renamed"
    WIDENED = "type widened"
    RETYPED = "type changed"
    NULLABILITY = "nullability changed"
    METADATA = "metadata changed"


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """A change of a column.

    Attributes:
        kind: what has changed.
        column: its path in the later schema; of a dropped column in the earlier one.
        before: what it was: a name, a type, whether it could be null, or a value of the metadata; None for
            an added column.
        after: what it is, likewise; None for a dropped column.
        key: the key in the metadata of the column, if that has changed.
    """

    kind: SchemaChangeKind
    column: SchemaPath
    before: Any = None
    after: Any = None
    key: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """The change as plain JSON values; ``column`` is a text as in SQL."""
        return {
            "change": self.kind.value,
            "column": sql_name(self.column),
            "before": plain(self.before),
            "after": plain(self.after),
            "key": self.key,
        }


def compare_schemas(
    before: StructType, after: StructType, *, mode_before: str, mode_after: str
) -> tuple[SchemaChange, ...]:
    """Compare two schemas of a table.

    Args:
        before: the earlier schema.
        after: the later schema.
        mode_before: the mode of column mapping of the earlier schema.
        mode_after: the mode of the later one.

    Returns:
        The changes, in the order of the columns: those of the later schema, then the dropped ones. A column
        that was added or dropped together with the struct around it has no change of its own.

    Raises:
        InvalidTableError: column mapping is used, and a column lacks its physical name.
    """
    old, new = _columns(before, mode_before), _columns(after, mode_after)
    changes: list[SchemaChange] = []
    for key, (path, field) in new.items():
        if key in old:
            changes += _compare(*old[key], path, field)
        elif not _is_inside(key, new, old):
            changes.append(SchemaChange(_KIND.ADDED, path, None, str(field.data_type)))
    for key, (path, field) in old.items():
        if key not in new and not _is_inside(key, old, new):
            changes.append(SchemaChange(_KIND.DROPPED, path, str(field.data_type), None))
    return tuple(changes)


_KIND = SchemaChangeKind
_Columns = dict[SchemaPath, tuple[SchemaPath, StructField]]


def _columns(schema: StructType, mode: str) -> _Columns:
    """The columns at any depth with their paths, by their physical paths."""
    physical = all_fields(physical_schema(schema, mode))
    return {
        key: (path, field)
        for (path, field), (key, _) in zip(all_fields(schema), physical, strict=True)
    }


def _is_inside(key: SchemaPath, columns: _Columns, others: _Columns) -> bool:
    """Whether a struct around a column is missing in the other schema as well."""
    around = [key[:length] for length in range(1, len(key)) if key[:length] in columns]
    return any(path not in others for path in around)


def _compare(
    path: SchemaPath, before: StructField, new_path: SchemaPath, after: StructField
) -> Iterator[SchemaChange]:
    if before.name != after.name:
        yield SchemaChange(_KIND.RENAMED, new_path, sql_name(path), sql_name(new_path))
    old, new = _without_structs(before.data_type), _without_structs(after.data_type)
    if old != new:
        kind = _KIND.WIDENED if _is_widened(before.data_type, after.data_type) else _KIND.RETYPED
        yield SchemaChange(kind, new_path, str(before.data_type), str(after.data_type))
    if before.nullable != after.nullable:
        yield SchemaChange(_KIND.NULLABILITY, new_path, before.nullable, after.nullable)
    for key in _changed_keys(before.metadata, after.metadata):
        values = before.metadata.get(key), after.metadata.get(key)
        yield SchemaChange(_KIND.METADATA, new_path, *values, key)


def _changed_keys(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    keys = (before.keys() | after.keys()) - _IDENTITY
    return sorted(key for key in keys if before.get(key) != after.get(key))


def _is_widened(before: DataType, after: DataType) -> bool:
    """Whether a type, or the types inside arrays and maps, were widened."""
    match before, after:
        case ArrayType(), ArrayType():
            return _is_widened(before.element_type, after.element_type)
        case MapType(), MapType():
            return _is_widened(before.key_type, after.key_type) and _is_widened(
                before.value_type, after.value_type
            )
        case _:
            return _without_structs(before) == _without_structs(after) or can_widen(before, after)


def _without_structs(data_type: DataType) -> DataType:
    """The type without the columns of its structs, which are compared one by one."""
    match data_type:
        case StructType():
            return StructType()
        case ArrayType():
            return ArrayType(_without_structs(data_type.element_type), data_type.contains_null)
        case MapType():
            return MapType(
                _without_structs(data_type.key_type),
                _without_structs(data_type.value_type),
                data_type.value_contains_null,
            )
        case _:
            return data_type
