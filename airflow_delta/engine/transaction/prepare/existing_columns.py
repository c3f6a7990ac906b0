"""Find what changes of existing columns require of the table's files.

===========================================  ===================================================
change of an existing column                 requirement
===========================================  ===================================================
a wider type, with type widening enabled     none
any other type                               no files, because their values would be misread
another physical name, or another id         no files, because their values wouldn't be found
===========================================  ===================================================

With column mapping, a column is the same as before if it has the same physical name or the same id. Without
column mapping, it is the same if it has the same name. That becomes its physical name when column mapping
is turned on.

PROTOCOL.md, "Column Mapping", "Writer Requirements for Column Mapping".
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
    """Find what a change of a table's columns requires of its existing files.

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
    yield from _type_requirements(before, after)
    yield from _name_requirements(before, after)


@dataclass(frozen=True, slots=True)
class _Columns:
    """The columns before or after the change.

    Attributes:
        mapped: whether column mapping is on.
        widening: whether type widening is enabled.
        types: the type at each physical path of the schema.
        physical: the physical path of each field, by its logical path.
        ids: the id of each field, by its physical path; empty without column mapping.
    """

    mapped: bool
    widening: bool
    types: Mapping[SchemaPath, DataType]
    physical: Mapping[SchemaPath, SchemaPath]
    ids: Mapping[SchemaPath, int]

    @classmethod
    def of(cls, protocol: Protocol, metadata: Metadata, table: str) -> _Columns:
        """The columns of a table with this protocol and metadata."""
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
            {logical: path for (logical, _), (path, _) in fields},
            {path: field_id(field) for (_, field), (path, _) in fields} if mode != "none" else {},
        )


_Nested = StructType | ArrayType | MapType


def _type_requirements(before: _Columns, after: _Columns) -> Iterator[FileRequirement]:
    for path, old in before.types.items():
        new = after.types.get(path, old)
        if old == VOID or _can_be_read(old, new, widening=after.widening):
            continue
        yield FileRequirement(
            Condition.NO_FILES,
            f"the type of the column {'.'.join(path)} changes from {old} to {new}, but the values in the "
            "files can't be read as that; types can only be widened, if delta.enableTypeWidening is true",
        )


def _can_be_read(old: DataType, new: DataType, *, widening: bool) -> bool:
    """Whether values of the old type can be read as the new one. The types inside them don't count."""
    if isinstance(old, _Nested) or isinstance(new, _Nested):
        return type(old) is type(new)
    return old == new or (widening and can_widen(old, new))


def _name_requirements(before: _Columns, after: _Columns) -> Iterator[FileRequirement]:
    if before.mapped and after.mapped:
        by_id = {number: path for path, number in after.ids.items()}
        changed = [
            path
            for path, number in before.ids.items()
            if after.ids.get(path, number) != number or by_id.get(number, path) != path
        ]
    else:
        changed = [
            path
            for logical, path in before.physical.items()
            if after.physical.get(logical, path) != path
        ]
    for path in changed:
        yield FileRequirement(
            Condition.NO_FILES,
            "the physical name or the id of a column changes, but the files have it under the physical "
            f"name {'.'.join(path)}; a column must keep both",
        )
