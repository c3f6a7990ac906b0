"""The types of a table's columns, as a tree of frozen values.

A `DataType` is primitive, decimal, struct, array or map, so that ``match`` over it can be exhaustive.
Decimals are apart from the other primitive types because they have parameters. A table's schema is a
`StructType`.

The classes refuse invalid trees: structs with two names that only differ in case, because engines ignore
the case; and decimals with impossible numbers of digits.

`schema_json` reads and writes the JSON form. ``arrow/types.py`` makes Arrow's types.

PROTOCOL.md, "Schema Serialization Format".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from airflow_delta.engine.errors import InvalidTableError

__all__ = [
    "BINARY",
    "BOOLEAN",
    "BYTE",
    "DATE",
    "DOUBLE",
    "FLOAT",
    "INTEGER",
    "LONG",
    "MAX_DECIMAL_PRECISION",
    "PRIMITIVE_TYPES",
    "SHORT",
    "STRING",
    "TIMESTAMP",
    "TIMESTAMP_NTZ",
    "VARIANT",
    "VOID",
    "ArrayType",
    "DataType",
    "DecimalType",
    "MapType",
    "PrimitiveType",
    "StructField",
    "StructType",
]

MAX_DECIMAL_PRECISION = 38
"""The protocol's limit for the digits of a decimal."""


@dataclass(frozen=True, slots=True)
class PrimitiveType:
    """A type without parameters, by its name in the schema's JSON; see the constants."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class DecimalType:
    """An exact number of ``precision`` digits, ``scale`` of them after the point.

    Raises:
        InvalidTableError: not 1 <= precision <= 38, or not 0 <= scale <= precision.
    """

    precision: int
    scale: int

    def __post_init__(self) -> None:
        if not 1 <= self.precision <= MAX_DECIMAL_PRECISION or not (
            0 <= self.scale <= self.precision
        ):
            raise InvalidTableError(
                f"decimal({self.precision},{self.scale}): the precision must be 1 to "
                f"{MAX_DECIMAL_PRECISION}, and the scale 0 to the precision"
            )

    def __str__(self) -> str:
        return f"decimal({self.precision},{self.scale})"


@dataclass(frozen=True, slots=True)
class ArrayType:
    """A list of elements of one type."""

    element_type: DataType
    contains_null: bool = True

    def __str__(self) -> str:
        return f"array<{self.element_type}>"


@dataclass(frozen=True, slots=True)
class MapType:
    """A list of pairs of a key, never null, and a value."""

    key_type: DataType
    value_type: DataType
    value_contains_null: bool = True

    def __str__(self) -> str:
        return f"map<{self.key_type},{self.value_type}>"


@dataclass(frozen=True, slots=True)
class StructField:
    """A column, at the top or inside another.

    Attributes:
        name: the logical name.
        data_type: its type.
        nullable: whether values may be null.
        metadata: JSON values by key, such as ``delta.columnMapping.id`` ("Column Metadata"). Kept
            as read; treat as read-only.
    """

    name: str
    data_type: DataType
    nullable: bool = True
    # No part of the hash, since it isn't hashable: a type can be looked up in a set.
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class StructType:
    """Named columns in order: a table's schema, or a column that groups others.

    Raises:
        InvalidTableError: two names differ in case alone, or not at all. Facts: names.
    """

    fields: tuple[StructField, ...] = ()
    _by_name: dict[str, StructField] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        self._by_name.update((column.name, column) for column in self.fields)
        seen: dict[str, str] = {}
        for name in self.names:
            other = seen.get(name.lower())
            if other is not None:
                raise InvalidTableError(
                    f"column names {other!r} and {name!r} are the same to engines that look names "
                    "up regardless of case; rename one",
                    names=(other, name),
                )
            seen[name.lower()] = name

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns, in order."""
        return tuple(column.name for column in self.fields)

    def field(self, name: str) -> StructField | None:
        """The column of exactly this name; None if there is none."""
        return self._by_name.get(name)

    def to_dict(self) -> dict[str, Any]:
        """The schema as plain JSON values, as in ``metaData.schemaString``."""
        # Not at the top: that module imports this one.
        from airflow_delta.engine.model.schema_json import struct_to_json

        return struct_to_json(self)

    def __iter__(self) -> Iterator[StructField]:
        return iter(self.fields)

    def __len__(self) -> int:
        return len(self.fields)

    def __str__(self) -> str:
        return f"struct<{','.join(f'{column.name}:{column.data_type}' for column in self.fields)}>"


DataType: TypeAlias = "PrimitiveType | DecimalType | StructType | ArrayType | MapType"
"""The type of a column, element, key or value."""

STRING = PrimitiveType("string")
LONG = PrimitiveType("long")
INTEGER = PrimitiveType("integer")
SHORT = PrimitiveType("short")
BYTE = PrimitiveType("byte")
FLOAT = PrimitiveType("float")
DOUBLE = PrimitiveType("double")
BOOLEAN = PrimitiveType("boolean")
BINARY = PrimitiveType("binary")
DATE = PrimitiveType("date")
TIMESTAMP = PrimitiveType("timestamp")
TIMESTAMP_NTZ = PrimitiveType("timestamp_ntz")
VOID = PrimitiveType("void")
VARIANT = PrimitiveType("variant")

PRIMITIVE_TYPES: Mapping[str, PrimitiveType] = {
    type_.name: type_
    for type_ in (
        STRING,
        LONG,
        INTEGER,
        SHORT,
        BYTE,
        FLOAT,
        DOUBLE,
        BOOLEAN,
        BINARY,
        DATE,
        TIMESTAMP,
        TIMESTAMP_NTZ,
        VOID,
        VARIANT,
    )
}
"""Every primitive type by its name in JSON. Of ``variant`` only the name is known."""
