"""The rows of data files, in the form in which new files hold them.

Rows are read like a query reads them: without deleted rows, with the types of the schema. `StoredRows`
turns them into the columns of new files: with the names and ids that the column mapping mode requires,
without void, and with partition columns only if the table requires it.

**Row ids.** Default row ids depend on the file. If row tracking is enabled, each row keeps its id
and row commit version in the table's hidden columns (PROTOCOL.md, "Row Tracking").
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyroaring import BitMap64
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from airflow_delta.engine import DeltaTable, Snapshot
from airflow_delta.engine.data_files.footer_statistics import (
    IndexedColumn,
    indexed_by_physical_name,
)
from airflow_delta.engine.data_files.stored_schema import stored_struct
from airflow_delta.engine.errors import UnsupportedFeatureError
from airflow_delta.engine.features.clustering import DOMAIN, parse_clustering_columns
from airflow_delta.engine.features.column_mapping import (
    mapping_mode,
    partition_fields,
    physical_paths,
)
from airflow_delta.engine.features.iceberg_compat import iceberg_compat_version
from airflow_delta.engine.features.protocol import supported_features
from airflow_delta.engine.model.properties import TableProperties
from airflow_delta.engine.model.schema import StructType
from airflow_delta.engine.model.schema_json import parse_schema
from airflow_delta.spark.reader.columns import file_schema, spark_schema
from airflow_delta.spark.reader.file_partitions import partition_facts
from airflow_delta.spark.reader.file_rows import FILE_ROW_INDEX, Facts, stored_column
from airflow_delta.spark.reader.row_tracking import check_tracked
from airflow_delta.spark.reader.snapshot_reader import SnapshotReader
from airflow_delta.spark.writer.layout import (
    nested_field_ids,
    partition_columns_last,
    stores_partition_columns,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from airflow_delta.engine.model.actions import Metadata, Protocol

__all__ = ["FileForm", "StoredLayout", "StoredRows"]


@dataclass(frozen=True, slots=True)
class FileForm:
    """The form that the new files must have.

    Attributes:
        schema: the table's schema, logical names.
        properties: its properties.
        mode: its column mapping mode.
        supported: the features that its protocol supports.
    """

    schema: StructType
    properties: TableProperties
    mode: str
    supported: frozenset[str]

    @classmethod
    def of(cls, protocol: Protocol, metadata: Metadata, *, table: str) -> FileForm:
        """The form of the files of a table with this protocol and metadata."""
        return cls(
            parse_schema(metadata.schema_string, table),
            TableProperties(metadata.configuration, table),
            mapping_mode(protocol, metadata, table=table),
            supported_features(protocol),
        )


@dataclass(frozen=True, slots=True)
class StoredLayout:
    """The layout of the new files.

    Attributes:
        read: the columns to read from the old files.
        written: the same columns, in the same order, for the new files; then partition columns, if files
            hold them.
        partitioning: the partition columns that files hold.
        hidden: the columns for row ids and row commit versions; none without row tracking.
        statistics: the columns that get statistics.
        partition_names: the new names of partition columns in the log, by their current names.
        nested_ids: see `FileLayout`.
        iceberg: the version of Iceberg compatibility in force; None if none is.
    """

    read: T.StructType
    written: T.StructType
    partitioning: tuple[str, ...]
    hidden: tuple[str, ...]
    statistics: tuple[IndexedColumn, ...]
    partition_names: Mapping[str, str]
    nested_ids: Mapping[tuple[str, ...], int]
    iceberg: int | None

    def unused(self, base: str) -> str:
        """A name that no column of the files has, for a column by which Spark partitions the output.

        Args:
            base: what it begins with.
        """
        taken = {name.lower() for name in (*self.written.names, *self.hidden)}
        return next(name for name in _names(base) if name not in taken)


class StoredRows:
    """Reads the rows of files of one version, in the form of new files.

    Args:
        spark: the session.
        table: the table.
        snapshot: the version.
        after: what the new files must be like, if the commit changes protocol or metadata.

    Attributes:
        mode: the column mapping mode of the version.
        form: what the new files are like.
        layout: their layout.

    Raises:
        UnsupportedFeatureError: new files would have no columns.
    """

    def __init__(
        self,
        spark: SparkSession,
        table: DeltaTable,
        snapshot: Snapshot,
        *,
        after: FileForm | None = None,
    ) -> None:
        self._snapshot = snapshot
        self._reader = SnapshotReader(spark, table, snapshot)
        now = FileForm.of(snapshot.protocol, snapshot.metadata, table=snapshot.table)
        self.mode = now.mode
        self.form = after or now
        self.layout = _layout(snapshot, now, self.form)

    def read(
        self,
        adds: pa.Table,
        *,
        more: Facts | None = None,
        deleted: Mapping[int, BitMap64] | None = None,
    ) -> tuple[DataFrame, list[Column]]:
        """Read the rows of files, as they are stored (`own_sessions`).

        Args:
            adds: the files, all columns of ``add``.
            more: further per-file values to join to the rows.
            deleted: the rows to leave out, by the index of the file; None: what the files' own deletion
                vectors delete.

        Returns:
            The rows, as of `SnapshotReader.file_rows`, and the columns of new files, over them.

        Raises:
            UnsupportedFeatureError: Spark can't read a file because of its name.
            InvalidTableError: the table has row tracking, and a file has no row ids.
            DeltaError: a deletion vector can't be read.
        """
        layout, snapshot = self.layout, self._snapshot
        partitions = partition_facts(adds, snapshot.schema, layout.partitioning, self.mode)
        facts = {**partitions, **(more or {})}
        columns = [
            stored_column(read.name)
            .cast(written.dataType)
            .alias(written.name, metadata=written.metadata)
            for read, written in zip(layout.read, layout.written, strict=False)
        ]
        columns += [
            F.col(name).cast(written.dataType).alias(written.name, metadata=written.metadata)
            for name, written in zip(
                partitions, layout.written.fields[len(layout.read) :], strict=True
            )
        ]
        read = layout.read
        if layout.hidden:
            check_tracked(adds, table=snapshot.table)
            read = T.StructType(
                [*read.fields, *(T.StructField(name, T.LongType()) for name in layout.hidden)]
            )
            facts |= {
                "base_row_id": (T.LongType(), adds["baseRowId"]),
                "default_version": (T.LongType(), adds["defaultRowCommitVersion"]),
            }
            columns += self._hidden_columns()
        return self._reader.file_rows(adds, read, facts, vectors=deleted, exact=True), columns

    def _hidden_columns(self) -> list[Column]:
        row_id, version = self.layout.hidden
        default = F.col("base_row_id") + F.col(FILE_ROW_INDEX)
        return [
            F.coalesce(stored_column(row_id), default).alias(row_id),
            F.coalesce(stored_column(version), F.col("default_version")).alias(version),
        ]


def _layout(snapshot: Snapshot, now: FileForm, after: FileForm) -> StoredLayout:
    partitioning = snapshot.metadata.partition_columns
    holds_partitioning = stores_partition_columns(after.properties, after.supported)
    without = () if holds_partitioning else partitioning
    ordered = partition_columns_last(after.schema, partitioning)
    logical = stored_struct(ordered, mode="none", without=without)
    if len(logical.fields) == len(partitioning) - len(without):
        raise UnsupportedFeatureError(
            "every column is a partition column or void, and Spark writes no files without columns; add a "
            "column first",
            table=snapshot.table,
        )
    # With column mapping by name, columns are also written with their ids.
    written = stored_struct(
        ordered, mode=after.mode, without=without, with_ids=after.mode != "none"
    )
    tracked = snapshot.properties
    hidden = (tracked.row_id_column_name, tracked.row_commit_version_column_name)
    keeps = snapshot.row_tracking is not None and snapshot.row_tracking.enabled
    names = [list(partition_fields(form.schema, partitioning, form.mode)) for form in (now, after)]
    return StoredLayout(
        read=file_schema(snapshot.schema, mode=now.mode, without=partitioning),
        written=spark_schema(written),
        partitioning=partitioning if holds_partitioning else (),
        hidden=tuple(name for name in hidden if name) if keeps else (),
        statistics=_statistics(snapshot, logical, now, after),
        partition_names=dict(zip(*names, strict=True)),
        nested_ids=nested_field_ids(
            ordered, after.properties, mode=after.mode, supported=after.supported
        ),
        iceberg=iceberg_compat_version(after.supported, after.properties),
    )


def _statistics(
    snapshot: Snapshot, stored: StructType, now: FileForm, after: FileForm
) -> tuple[IndexedColumn, ...]:
    """The columns that get statistics, with the names that they have in statistics afterwards."""
    domain = snapshot.domains.get(DOMAIN)
    clustered_by = (
        parse_clustering_columns(domain.configuration, table=snapshot.table) if domain else ()
    )
    columns = indexed_by_physical_name(
        stored,
        now.schema,
        after.properties,
        now.mode,
        clustered_by,
        partition_by=snapshot.metadata.partition_columns,
    )
    if after.mode == now.mode:
        return columns
    logical = {physical: path for path, physical in physical_paths(now.schema, now.mode).items()}
    names = physical_paths(after.schema, after.mode)
    return tuple(IndexedColumn(names[logical[c.path]], c.data_type, c.leaf) for c in columns)


def _names(base: str) -> Iterator[str]:
    yield base
    number = 1
    while True:
        yield f"{base}_{number}"
        number += 1
