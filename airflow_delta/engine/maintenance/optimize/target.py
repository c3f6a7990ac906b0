"""What the new files of an optimization look like: columns, statistics, codec.

They are like those that Spark writes into the table (``spark/writer/layout.py``): physical names, field
ids, no ``void``. With row tracking enabled, two hidden columns keep each row's id and commit version.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from airflow_delta.engine.data_files.footer_statistics import (
    IndexedColumn,
    indexed_by_physical_name,
)
from airflow_delta.engine.data_files.request import TableLayout, TrackingColumns
from airflow_delta.engine.data_files.stored_schema import (
    parquet_schema,
    physical_columns,
    stored_struct,
)
from airflow_delta.engine.errors import InvalidTableError, UnsupportedFeatureError
from airflow_delta.engine.features.column_mapping import partition_fields
from airflow_delta.engine.features.protocol import supported_features
from airflow_delta.engine.maintenance.optimize.sorting.order import clustering_paths_of
from airflow_delta.engine.model.properties import TableProperties
from airflow_delta.engine.model.schema import StructType
from airflow_delta.engine.snapshot.scanning import table_layout
from airflow_delta.engine.snapshot.snapshot import Snapshot

__all__ = ["FileTarget"]

_CODEC = "zstd"
_UNWRITABLE = frozenset({"lzo"})


@dataclass(frozen=True, slots=True)
class FileTarget:
    """The form of new files.

    Attributes:
        layout: the table as files have it: with physical names, and without void. A scan with it returns
            what new files hold.
        columns: the columns of new files, by their names there, but for those of row tracking.
        hidden: the columns for row ids and row commit versions; None without row tracking.
        schema: the schema of new files.
        statistics: the columns that get statistics. A leaf's index is that in ``schema``.
        states_tight_bounds: see `file_statistics`.
        prefix: the characters to which strings are truncated in statistics.
        compression: Spark's name of the codec.
        max_file_size: see `OptimizeSettings`.
    """

    layout: TableLayout
    columns: tuple[str, ...]
    hidden: tuple[str, str] | None
    schema: pa.Schema
    statistics: tuple[IndexedColumn, ...]
    states_tight_bounds: bool
    prefix: int
    compression: str
    max_file_size: int

    @classmethod
    def of(cls, snapshot: Snapshot, *, max_file_size: int) -> FileTarget:
        """The form of new files of a version.

        Raises:
            UnsupportedFeatureError: the table has files in another format, a column that can't be written
                anew, or a codec that the engine lacks; or files would have no columns.
            InvalidTableError: a column lacks its physical name or id; or row tracking its hidden columns.
        """
        layout = table_layout(snapshot)
        mode, properties, schema = layout.mapping_mode, snapshot.properties, snapshot.schema
        supported = supported_features(snapshot.protocol)
        partitioning = partition_fields(schema, layout.partition_columns, mode)
        physical = physical_columns(schema, mode, table=snapshot.table)
        without = () if _stores_partition_columns(properties, supported) else (*partitioning,)
        stored = StructType(tuple(field for field in physical if field.name not in without))
        if not stored.fields:
            raise UnsupportedFeatureError(
                "every column is a partition column or void, so that new files would have no columns",
                table=snapshot.table,
            )
        hidden = _hidden_columns(layout.tracking, snapshot.table)
        compression = properties.parquet_compression_codec or _CODEC
        if compression in _UNWRITABLE:
            raise UnsupportedFeatureError(
                f"delta.parquet.compression.codec is {compression!r}, which the engine can't write",
                table=snapshot.table,
            )
        files = parquet_schema(stored, mode)
        for name in hidden or ():
            files = files.append(pa.field(name, pa.int64()))
        return cls(
            TableLayout(
                layout.table, layout.version, physical, mode, (*partitioning,), layout.tracking
            ),
            stored.names,
            hidden,
            files,
            _statistics(snapshot, mode, layout.partition_columns, stores_partitions=not without),
            "deletionVectors" in supported,
            properties.data_skipping_string_prefix_length,
            compression,
            max_file_size,
        )


def _stores_partition_columns(properties: TableProperties, supported: frozenset[str]) -> bool:
    return "materializePartitionColumns" in supported or properties.flag(
        "delta.writePartitionColumnsToParquet"
    )


def _hidden_columns(tracking: TrackingColumns | None, table: str) -> tuple[str, str] | None:
    if tracking is None:
        return None
    if tracking.row_id is None or tracking.row_commit_version is None:
        raise InvalidTableError(
            "delta.enableRowTracking is true, but the properties delta.rowTracking.materializedRowId"
            "ColumnName and …RowCommitVersionColumnName don't name the columns that keep row ids: set "
            "delta.enableRowTracking to false, and to true again",
            table=table,
        )
    return tracking.row_id, tracking.row_commit_version


def _statistics(
    snapshot: Snapshot, mode: str, partitioning: tuple[str, ...], *, stores_partitions: bool
) -> tuple[IndexedColumn, ...]:
    without = () if stores_partitions else partitioning
    return indexed_by_physical_name(
        stored_struct(snapshot.schema, mode="none", without=without),
        snapshot.schema,
        snapshot.properties,
        mode,
        clustering_paths_of(snapshot),
        partition_by=partitioning,
    )
