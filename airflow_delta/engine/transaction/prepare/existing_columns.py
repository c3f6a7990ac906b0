"""Columns that stay keep what the data files know them by, and a type that files can be read as.

===========================================  ===================================================
change of a column that stays                what it demands
===========================================  ===================================================
a wider type, with type widening enabled     nothing
any other type                               no files: their values would be read wrongly
another physical name, or another id         no files: their values wouldn't be found any more
===========================================  ===================================================

With column mapping a column stays if its physical name or its id does: one that has both anew is another
column, whatever its name. Without, it stays by its name, and keeps that as the physical one when column
mapping is turned on.

Spec: PROTOCOL.md, "Column Mapping", "Writer Requirements for Column Mapping".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from airflow_delta.engine.features.column_mapping import field_id, mapping_mode, physical_schema
from airflow_delta.engine.features.negotiation.transitions import Condition, FileRequirement
from airflow_delta.engine.features.protocol import supported_features
from airflow_delta.engine.features.schema_walk import SchemaPath, all_fields, all_types
from airflow_delta.engine.features.type_widening import can_widen
from airflow_delta.engine.model.actions import Metadata, Protocol
from airflow_delta.engine.model.properties import TableProperties
from airflow_delta.engine.model.schema import VOID, ArrayType, DataType, MapType, StructType
from airflow_delta.engine.model.schema_json import parse_schema

__all__ = ["find_column_requirements"]


def find_column_requirements(
    old: tuple[Protocol, Metadata], new: tuple[Protocol, Metadata], *, table: str
) -> Iterator[FileRequirement]:
    """What a change of a table's columns demands of the files that it has.

    Args:
        old: protocol and metadata before.
        new: protocol and metadata after.
        table: the table's location, for messages.

    Raises:
        InvalidTableError: a schema or property can't be read.
    """
    if (
        old[1].schema_string == new[1].schema_string
        and old[1].configuration == new[1].configuration
    ):
        return
    before, after = _Columns.of(*old, table), _Columns.of(*new, table)
    yield from _of_types(before, after)
    yield from _of_names(before, after)


@dataclass(frozen=True, slots=True)
class _Columns:
    """What counts of one side of the change.

    Attributes:
        mapped: whether column mapping is on.
        widening: whether type widening is enabled.
        types: the type at each place of the schema, physical names.
        places: the physical place of each field, by its logical one.
        ids: the id of each field, by its physical place; empty without column mapping.
    """

    mapped: bool
    widening: bool
    types: Mapping[SchemaPath, DataType]
    places: Mapping[SchemaPath, SchemaPath]
    ids: Mapping[SchemaPath, int]

    @classmethod
    def of(cls, protocol: Protocol, metadata: Metadata, table: str) -> _Columns:
        """What counts of a protocol and metadata."""
        mode = mapping_mode(protocol, metadata, table=table)
        schema = parse_schema(metadata.schema_string, table)
        in_files = physical_schema(schema, mode)
        fields = [*zip(all_fields(schema), all_fields(in_files), strict=True)]
        supported = {name.removesuffix("-preview") for name in supported_features(protocol)}
        properties = TableProperties(metadata.configuration, table)
        return cls(
            mode != "none",
            "typeWidening" in supported and properties.type_widening_enabled,
            dict(all_types(in_files)),
            {path: place for (path, _), (place, _) in fields},
            {place: field_id(field) for (_, field), (place, _) in fields} if mode != "none" else {},
        )


_Nested = StructType | ArrayType | MapType


def _of_types(before: _Columns, after: _Columns) -> Iterator[FileRequirement]:
    for place, old in before.types.items():
        new = after.types.get(place, old)
        if old == VOID or _can_be_read(old, new, widening=after.widening):
            continue
        yield FileRequirement(
            Condition.NO_FILES,
            f"the type of the column {'.'.join(place)} changes from {old} to {new}, which the files "
            "can't be read as; types can only be widened, once delta.enableTypeWidening is true",
        )


def _can_be_read(old: DataType, new: DataType, *, widening: bool) -> bool:
    """Whether values of the old type can be read as the new one, but for what is inside of them."""
    if isinstance(old, _Nested) or isinstance(new, _Nested):
        return type(old) is type(new)
    return old == new or (widening and can_widen(old, new))


def _of_names(before: _Columns, after: _Columns) -> Iterator[FileRequirement]:
    if before.mapped and after.mapped:
        by_id = {number: place for place, number in after.ids.items()}
        moved = [
            place
            for place, number in before.ids.items()
            if after.ids.get(place, number) != number or by_id.get(number, place) != place
        ]
    else:
        moved = [
            place for path, place in before.places.items() if after.places.get(path, place) != place
        ]
    for place in moved:
        yield FileRequirement(
            Condition.NO_FILES,
            f"the files know a column by the physical name {'.'.join(place)}, and its physical name or "
            "its id changes; a column keeps both as long as it is there",
        )
