"""The typed columns of adds: ``stats_parsed`` and ``partitionValues_parsed``.

PROTOCOL.md, "Checkpoints": a table whose property ``delta.checkpoint.writeStatsAsStruct`` is true
has both in its checkpoints (the latter if it is partitioned), named and typed by the physical
schema. The text of the statistics stays beside them unless ``delta.checkpoint.writeStatsAsJson`` is
false; ``partitionValues`` always stays.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.typed_stats import bound_type, stats_type, typed_stats
from airflow_delta.engine.errors import InvalidTableError
from airflow_delta.engine.features.column_mapping import mapping_mode, physical_name
from airflow_delta.engine.features.column_mapping import physical_schema as to_physical
from airflow_delta.engine.model.actions import Metadata, Protocol
from airflow_delta.engine.model.partition_values import parse_partition_value
from airflow_delta.engine.model.properties import TableProperties
from airflow_delta.engine.model.schema import DataType, PrimitiveType, StructType
from airflow_delta.engine.model.schema_json import parse_schema

__all__ = ["TypedColumns", "typed_columns"]

# What partition columns may be beside the types that have minima and maxima.
_FURTHER_TYPES = {"boolean": pa.bool_(), "binary": pa.binary()}


@dataclass(frozen=True, slots=True)
class TypedColumns:
    """What a checkpoint stores of adds beside their own columns.

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
        """Adds with these columns, each in one chunk."""
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
    """The typed columns that the table's properties ask for; None if they don't.

    Raises:
        InvalidTableError: the schema can't be read, or a partition column isn't in it.
    """
    properties = TableProperties(metadata.configuration, table)
    if not properties.write_stats_as_struct:
        return None
    schema = parse_schema(metadata.schema_string, f"{table}: metaData.schemaString")
    mode = mapping_mode(protocol, metadata, table=table)
    partitions = {}
    for name in metadata.partition_columns:
        field = schema.field(name)
        if field is None:
            raise InvalidTableError(
                f"the partition column {name!r} isn't in the schema, whose columns are "
                f"{', '.join(schema.names)}",
                table=table,
            )
        partitions[physical_name(field, mode)] = field.data_type
    data = StructType(tuple(f for f in schema if f.name not in metadata.partition_columns))
    # A list of columns, where there is one, was applied when the statistics were collected.
    listed = properties.data_skipping_stats_columns is not None
    columns = -1 if listed else properties.data_skipping_num_indexed_cols
    return TypedColumns(stats_type(to_physical(data, mode), columns=columns), partitions)


def _partition_type(data_type: DataType) -> pa.DataType:
    found = bound_type(data_type)
    if found is None and isinstance(data_type, PrimitiveType):
        found = _FURTHER_TYPES.get(data_type.name)
    # Nothing else can be a partition column. If it is all the same, its text is kept.
    return pa.string() if found is None else found


def _typed_values(maps: pa.MapArray, name: str, data_type: DataType) -> pa.Array:
    """The typed values of one partition column; null for a text that is no value of its type."""
    texts = pc.map_lookup(maps, pa.scalar(name), "first")
    target = _partition_type(data_type)
    if pa.types.is_string(target):
        return pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)
    # A loop over distinct values, which are as many as partitions, not as many as files.
    encoded = texts.dictionary_encode()
    values = [_value(text, data_type) for text in encoded.dictionary.to_pylist()]
    return pa.array(values, target).take(encoded.indices)


def _value(text: str, data_type: DataType) -> object:
    try:
        return parse_partition_value(text, data_type)
    except InvalidTableError:
        return None


def _one_chunk(column: pa.ChunkedArray) -> pa.Array:
    combined = column.combine_chunks()
    return combined.chunk(0) if isinstance(combined, pa.ChunkedArray) else combined
