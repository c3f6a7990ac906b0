"""The typed columns of adds: ``stats_parsed`` and ``partitionValues_parsed``.

If the property ``delta.checkpoint.writeStatsAsStruct`` is true, a table's checkpoints have both columns
(the latter if the table is partitioned), named and typed by the physical schema. The statistics are also
stored as text unless ``delta.checkpoint.writeStatsAsJson`` is false; ``partitionValues`` always stays.

Spec: PROTOCOL.md, "Checkpoints".
"""

from __future__ import annotations

import warnings
from collections.abc import Collection
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.statistics.typed import bound_type, stats_type, typed_stats
from airflow_delta.engine.checkpoint.cast_texts import cast_text
from airflow_delta.engine.errors import DeltaWarning, InvalidTableError
from airflow_delta.engine.features.column_mapping import mapping_mode, partition_fields
from airflow_delta.engine.features.column_mapping import physical_schema as to_physical
from airflow_delta.engine.model.actions import Metadata, Protocol
from airflow_delta.engine.model.properties import TableProperties
from airflow_delta.engine.model.schema import DataType, PrimitiveType, StructType
from airflow_delta.engine.model.schema_json import parse_schema

__all__ = ["TypedColumns", "typed_columns"]

# The types of partition columns besides those that have minima and maxima.
_FURTHER_TYPES = {"boolean": pa.bool_(), "binary": pa.binary()}


@dataclass(frozen=True, slots=True)
class TypedColumns:
    """The typed columns of adds in a checkpoint.

    Attributes:
        stats: the type of ``stats_parsed``.
        partitions: the partition columns by physical name, in their order.
    """

    stats: pa.StructType
    partitions: dict[str, DataType]

    @property
    def fields(self) -> list[pa.Field]:
        """The columns."""
        fields = [pa.field("stats_parsed", self.stats)]
        if self.partitions:
            types = [(name, _partition_type(type_)) for name, type_ in self.partitions.items()]
            fields.append(pa.field("partitionValues_parsed", pa.struct(types)))
        return fields

    def added_to(self, adds: pa.Table) -> pa.Table:
        """Add these columns to adds, each in one chunk."""
        for field in self.fields:
            if field.name == "stats_parsed":
                column = typed_stats(_one_chunk(adds["stats"]), self.stats)
            else:
                maps = _one_chunk(adds["partitionValues"])
                values = [_typed_values(maps, n, type_) for n, type_ in self.partitions.items()]
                column = pa.StructArray.from_arrays(values, fields=list(field.type))
            adds = adds.append_column(field, column)
        return adds


def typed_columns(protocol: Protocol, metadata: Metadata, *, table: str) -> TypedColumns | None:
    """The typed columns that the table's properties request; None if they don't.

    Raises:
        InvalidTableError: the schema can't be read, or lacks a partition column.
    """
    properties = TableProperties(metadata.configuration, table)
    if not properties.write_stats_as_struct:
        return None
    schema = parse_schema(metadata.schema_string, f"{table}: metaData.schemaString")
    mode = mapping_mode(protocol, metadata, table=table)
    try:
        fields = partition_fields(schema, metadata.partition_columns, mode)
    except InvalidTableError as error:
        raise InvalidTableError(error.message, table=table) from error
    partitions = {name: field.data_type for name, field in fields.items()}
    data = StructType(tuple(f for f in schema if f.name not in metadata.partition_columns))
    # Only the columns that get statistics. A table may have thousands of others, which would be empty, and
    # cost time and memory.
    columns = properties.data_skipping_num_indexed_cols
    listed = properties.data_skipping_stats_columns
    if listed is not None:
        names = {tuple(map(str.lower, name)) for name in listed}
        data, columns = _listed(data, names), -1
    return TypedColumns(stats_type(to_physical(data, mode), columns=columns), partitions)


def _listed(struct: StructType, names: Collection[tuple[str, ...]]) -> StructType:
    """The columns of a struct that a list names; a column that is a struct is included as a whole.

    Args:
        struct: the columns, under their logical names.
        names: names of columns in lower case, because case doesn't matter in SQL.
    """
    fields = []
    for field in struct:
        name = field.name.lower()
        if (name,) in names:
            fields.append(field)
        elif isinstance(field.data_type, StructType):
            inner = _listed(field.data_type, {path[1:] for path in names if path[0] == name})
            fields.append(replace(field, data_type=inner))
    return StructType(tuple(fields))


def _partition_type(data_type: DataType) -> pa.DataType:
    found = bound_type(data_type)
    if found is None and isinstance(data_type, PrimitiveType):
        found = _FURTHER_TYPES.get(data_type.name)
    # No other type can be that of a partition column. If it is one all the same, its text is kept.
    return pa.string() if found is None else found


def _typed_values(maps: pa.MapArray, name: str, data_type: DataType) -> pa.Array:
    """The typed values of one partition column; null, and a warning, for a text that is no value."""
    texts = pc.map_lookup(maps, pa.scalar(name), "first")
    target = _partition_type(data_type)
    if pa.types.is_string(target):
        return pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)
    # A loop over distinct values: there are as many as partitions, not as many as files.
    encoded = texts.dictionary_encode()
    distinct = encoded.dictionary.to_pylist()
    values = [cast_text(text, data_type) for text in distinct]
    bad = [text for text, value in zip(distinct, values, strict=True) if value is None and text]
    if bad:
        warnings.warn(
            f"the partition column {name!r} has the value {bad[0]!r}, which is no {data_type}: the "
            "checkpoint has null for it in partitionValues_parsed, beside the text. Readers take "
            "the rows of such files for rows without a value; rewrite them",
            DeltaWarning,
            stacklevel=2,
        )
    return pa.array(values, target).take(encoded.indices)


def _one_chunk(column: pa.ChunkedArray) -> pa.Array:
    combined = column.combine_chunks()
    return combined.chunk(0) if isinstance(combined, pa.ChunkedArray) else combined
