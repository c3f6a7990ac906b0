"""Rewrite data files one by one, in the current form of the table.

Rows are read like a query reads them: without deleted rows, with the types of the schema. They are
written with the names and ids that the column mapping mode requires. Rows aren't shuffled, and a
new file has rows of one old file only. So the fields of the old file's ``add``, except for
statistics, are also right for the new files: partition values, tags, and so on.

**Row ids.** Default row ids depend on the file. If row tracking is enabled, each row keeps its id
and row commit version in the table's hidden columns (PROTOCOL.md, "Row Tracking").

A file that Spark reads in several tasks becomes several files. A file whose rows are all deleted
becomes none.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from airflow_delta.engine import AddFile, DeltaTable, Snapshot
from airflow_delta.engine.arrow.statistics.parse import num_records
from airflow_delta.engine.data_files.footer_statistics import (
    IndexedColumn,
    file_statistics,
    indexed_by_physical_name,
)
from airflow_delta.engine.data_files.stored_schema import stored_struct
from airflow_delta.engine.errors import InvalidTableError, UnsupportedFeatureError
from airflow_delta.engine.features.clustering import DOMAIN, parse_clustering_columns
from airflow_delta.engine.features.column_mapping import (
    mapping_mode,
    partition_fields,
    physical_paths,
)
from airflow_delta.engine.features.iceberg_compat import iceberg_compat_version
from airflow_delta.engine.features.protocol import supported_features
from airflow_delta.engine.model.paths import encode_path, resolve
from airflow_delta.engine.model.properties import TableProperties
from airflow_delta.engine.model.schema import StructType
from airflow_delta.engine.model.schema_json import parse_schema
from airflow_delta.spark.reader.columns import FIELD_IDS, file_schema, spark_schema
from airflow_delta.spark.reader.data_files import DataFile, list_data_files, write_data_files
from airflow_delta.spark.reader.file_partitions import partition_facts
from airflow_delta.spark.reader.file_rows import FILE_NUMBER, FILE_ROW_INDEX, stored_column
from airflow_delta.spark.reader.snapshot_reader import SnapshotReader
from airflow_delta.spark.runtime.locations import hadoop_path
from airflow_delta.spark.writer.layout import (
    nested_field_ids,
    partition_columns_last,
    stores_partition_columns,
)
from airflow_delta.spark.writer.log_actions import live_files
from airflow_delta.spark.writer.nested_ids import write_nested_ids

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from airflow_delta.engine.model.actions import Metadata, Protocol

__all__ = ["FileForm", "FileRewriter", "Rewritten"]

_WRITE_IDS = {"spark.sql.parquet.fieldId.write.enabled": "true"}
_ICEBERG_TAG = "ICEBERG_COMPAT_VERSION"


@dataclass(frozen=True, slots=True)
class FileForm:
    """What the new files must be like.

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
class Rewritten:
    """A live file, and the new files with its rows.

    Attributes:
        file: the file.
        successors: the new files; none if all rows are deleted.
    """

    file: AddFile
    successors: tuple[AddFile, ...]


@dataclass(frozen=True, slots=True)
class _Layout:
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

    @property
    def number(self) -> str:
        """An unused name for the column with the file number, by which Spark partitions the output."""
        taken = {name.lower() for name in (*self.written.names, *self.hidden)}
        return next(name for name in _names("file") if name not in taken)


class FileRewriter:
    """Rewrites files of one version.

    Args:
        spark: the session.
        table: the table.
        snapshot: the version.
        after: what the new files must be like, if the commit changes protocol or metadata.
    """

    def __init__(
        self,
        spark: SparkSession,
        table: DeltaTable,
        snapshot: Snapshot,
        *,
        after: FileForm | None = None,
    ) -> None:
        self._spark = spark
        self._table = table
        self._snapshot = snapshot
        self._reader = SnapshotReader(spark, table, snapshot)
        now = FileForm.of(snapshot.protocol, snapshot.metadata, table=snapshot.table)
        self._mode = now.mode
        self._form = after or now
        self._layout = _layout(snapshot, now, self._form)

    def rewrite(
        self,
        adds: pa.Table,
        *,
        deleted: Mapping[int, BitMap64] | None = None,
        directory: str | None = None,
    ) -> list[Rewritten]:
        """Write the rows of files into new ones; on an error, the new files are deleted.

        Args:
            adds: live files, all columns of ``add``.
            deleted: the rows to leave out, by the index of the file; None: what the files' own deletion
                vectors delete.
            directory: a new directory below the table's root for the new files; None for any.

        Raises:
            UnsupportedFeatureError: Spark can't read a file because of its name, or the files have
                no columns.
            InvalidTableError: a file has another number of rows than in its statistics.
            DeltaError: a deletion vector can't be read.
            StorageError: the store failed.
            PySparkException: Spark's own errors.
        """
        storage, number = self._table.storage, self._layout.number
        directory = directory or f"rewrite-{uuid.uuid4()}"
        path = hadoop_path(resolve(storage.root, encode_path(directory)))
        try:
            with _settings(self._spark, {FIELD_IDS: str(self._mode == "id").lower(), **_WRITE_IDS}):
                write_data_files(
                    self._rows(adds, deleted),
                    path,
                    partition_by=(number,),
                    compression=self._form.properties.parquet_compression_codec,
                )
            write_nested_ids(self._spark, self._table, directory, self._layout.nested_ids)
            by_number: dict[int, list[AddFile]] = defaultdict(list)
            sources = list(live_files(adds))
            # Python loops over files are fine: the footers of the batch are read anyway.
            for found in list_data_files(storage, directory):
                if found.num_rows:
                    index = int(found.info.path.split("/")[1].partition("=")[2])
                    by_number[index].append(self._successor(sources[index], found))
            self._check_counts(adds, deleted, by_number)
        except BaseException:
            storage.delete([info.path for info in storage.walk(directory)])
            raise
        return [Rewritten(file, tuple(by_number[index])) for index, file in enumerate(sources)]

    def _rows(self, adds: pa.Table, deleted: Mapping[int, BitMap64] | None) -> DataFrame:
        """The rows to be written, with the number of their file."""
        layout, snapshot = self._layout, self._snapshot
        partitions = partition_facts(adds, snapshot.schema, layout.partitioning, self._mode)
        facts = {
            **partitions,
            "base_row_id": (T.LongType(), adds["baseRowId"]),
            "default_version": (T.LongType(), adds["defaultRowCommitVersion"]),
        }
        rows = self._reader.file_rows(adds, self._read_with_hidden(), facts, vectors=deleted)
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
        if layout.hidden:
            row_id, version = layout.hidden
            default = F.col("base_row_id") + F.col(FILE_ROW_INDEX)
            columns += [
                F.coalesce(stored_column(row_id), default).alias(row_id),
                F.coalesce(stored_column(version), F.col("default_version")).alias(version),
            ]
        return rows.select(*columns, F.col(FILE_NUMBER).alias(layout.number))

    def _read_with_hidden(self) -> T.StructType:
        hidden = [T.StructField(name, T.LongType()) for name in self._layout.hidden]
        return T.StructType([*self._layout.read.fields, *hidden])

    def _successor(self, source: AddFile, written: DataFile) -> AddFile:
        layout, tags = self._layout, dict(source.tags or {})
        # A tag of the former file says that it follows rules, which this one may not have to.
        tags.pop(_ICEBERG_TAG, None)
        if layout.iceberg is not None and layout.iceberg > 1:
            tags[_ICEBERG_TAG] = str(layout.iceberg)
        return AddFile(
            path=encode_path(written.info.path),
            partition_values={
                layout.partition_names.get(name, name): value
                for name, value in source.partition_values.items()
            },
            size=written.info.size,
            modification_time=written.info.modified_ms,
            data_change=False,
            stats=file_statistics(written.footer, layout.statistics),
            tags=tags if tags or source.tags is not None else None,
            clustering_provider=source.clustering_provider,
        )

    def _check_counts(
        self,
        adds: pa.Table,
        deleted: Mapping[int, BitMap64] | None,
        written: Mapping[int, Sequence[AddFile]],
    ) -> None:
        """Check that the new files have exactly the rows that should stay, according to the log."""
        if deleted is None:
            left_out = pc.coalesce(pc.struct_field(adds["deletionVector"], "cardinality"), 0)
        else:
            counts = [len(deleted.get(index, ())) for index in range(adds.num_rows)]
            left_out = pa.array(counts, pa.int64())
        expected = pc.subtract(num_records(adds["stats"]), left_out).to_pylist()
        texts = [[file.stats for file in written.get(index, ())] for index in range(len(expected))]
        for path, count, stats in zip(adds["path"].to_pylist(), expected, texts, strict=True):
            found = pc.sum(num_records(pa.chunked_array([stats], pa.string()))).as_py() or 0
            if count is not None and found != count:
                raise InvalidTableError(
                    f"the file {path!r} has {found} rows that aren't deleted, but according to its "
                    f"statistics and its deletion vector it has {count}: nothing was committed; find out "
                    "what is wrong with the file",
                    table=self._snapshot.table,
                    path=path,
                )


def _layout(snapshot: Snapshot, now: FileForm, after: FileForm) -> _Layout:
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
    return _Layout(
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


@contextmanager
def _settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    before = {name: str(spark.conf.get(name)) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


def _names(base: str) -> Iterator[str]:
    yield base
    number = 1
    while True:
        yield f"{base}_{number}"
        number += 1
