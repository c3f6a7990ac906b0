"""`read_changes`: what changed from one version of a table to another, as a DataFrame.

The engine plans (`airflow_delta.engine.changes.plan`) which files tell the changes, which rows of
them, and of which kind they are; Spark reads the files, each once, in one scan of change data files
and one of data files. A file may tell several changes, such as the insert of its rows in one version
and their delete in a later one. So the entries of the plan are joined to the rows by the number of
their file, as a broadcast table with all that isn't in the file: the kind of change, the version, its
time and the partition values.

The number of a row's file is told by ``_metadata.file_modification_time``, which Spark takes from the
list of files that it is given: it is the one fact of a file that we are free in, and a join on a
number is several times faster than one on a long path.

Spec: PROTOCOL.md, "Change Data Files"; edge cases G12, G13.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.changes.file_changes import CHANGE_TYPE, COMMIT_VERSION
from airflow_delta.engine.changes.plan import COMMIT_TIMESTAMP, ChangePlan
from airflow_delta.engine.changes.row_selection import selected_rows
from airflow_delta.engine.commit.owner import CommitOwner
from airflow_delta.engine.deletion_vectors.read import read_deletion_vector
from airflow_delta.engine.deletion_vectors.roaring import positions
from airflow_delta.engine.errors import (
    InvalidTableError,
    UnsupportedFeatureError,
)
from airflow_delta.engine.features.column_mapping import mapping_mode, physical_name
from airflow_delta.engine.model.dv_descriptor import DeletionVectorDescriptor
from airflow_delta.engine.model.paths import resolve
from airflow_delta.engine.model.schema import StructType
from airflow_delta.engine.storage.location import storage_for_uri
from airflow_delta.spark.changes_vectors import SELECTS, rows_by_vectors
from airflow_delta.spark.columns import (
    checked_columns,
    file_schema,
    logical_column,
    quoted,
    spark_schema,
    spark_type,
)
from airflow_delta.spark.file_list import scan_files
from airflow_delta.spark.file_partitions import typed_partition_values
from airflow_delta.spark.locations import hadoop_uris
from airflow_delta.spark.nullable import nullable
from airflow_delta.spark.read import FIELD_IDS

__all__ = ["CHANGE_COLUMNS", "read_changes"]

CHANGE_COLUMNS = (CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP)
"""The columns that a change has beside those of the table."""

_CHANGE_TYPES = T.StructType(
    [
        T.StructField(CHANGE_TYPE, T.StringType()),
        T.StructField(COMMIT_VERSION, T.LongType()),
        T.StructField(COMMIT_TIMESTAMP, T.TimestampType()),
    ]
)
_REQUESTS_AT_A_TIME = 8


def read_changes(
    spark: SparkSession,
    uri: str,
    start: int | datetime | str,
    end: int | datetime | str | None = None,
    *,
    columns: Sequence[str] | None = None,
    storage_options: Mapping[str, str] | None = None,
    commit_owners: Mapping[str, CommitOwner] | None = None,
) -> DataFrame:
    """The changes of a range of versions, both ends included: a row for each row that changed.

    A change has the columns of the table as of the last version, null in older rows where they were
    added later, and then

    * ``_change_type``: ``insert``, ``delete``, ``update_preimage`` or ``update_postimage``,
    * ``_commit_version``: the version that made it, a long,
    * ``_commit_timestamp``: when that was committed, a timestamp.

    The range is fixed by the call, as is the plan of what to read. The rows are in no order.

    Where the table has column mapping of mode ``id``, the session's
    ``spark.sql.parquet.fieldId.read.enabled`` is set to true, and must stay so until the DataFrame
    has been evaluated.

    Args:
        spark: the session; Spark reads the files with the credentials of its own configuration.
        uri: the table's path or URI.
        start: the first version; or an aware datetime or ISO-8601 with an offset: the first version
            that isn't older.
        end: the last version, or the time that it isn't younger than; None for the newest.
        columns: columns of the table to give, in this order; None for all. The columns of the change
            follow them.
        storage_options: credentials and settings with which the engine reads the log.
        commit_owners: the commit owners of managed tables, by name.

    Raises:
        InvalidArgumentError: the range ends before it starts, there is no such column, or Spark can't
            reach the location.
        TableNotFoundError: there is no table.
        VersionNotFoundError: a version is beyond the newest.
        TimestampOutOfRangeError: no version belongs to a time.
        ChangesNotAvailableError: the changes weren't recorded, are gone, or the schema changed in
            between other than by added columns.
        DeletionVectorError: a deletion vector can't be read as the log describes it.
        InvalidTableError: the table has a column of the name of one of a change.
        UnsupportedFeatureError: the table needs a feature that the engine, or a file name that
            Spark, can't read.
        DeltaError: the log is damaged, or the store fails; see `DeltaTable.changes`.
    """
    table = DeltaTable(uri, storage_options, commit_owners)
    plan = table.changes(start, end)
    _check_format(plan)
    _check_names(plan.schema, uri)
    chosen = checked_columns(columns, plan.schema, uri)
    rows = _ChangeReader(spark, table, plan, storage_options).rows()
    return rows if chosen is None else rows.select([quoted(c) for c in (*chosen, *CHANGE_COLUMNS)])


class _ChangeReader:
    """Builds the DataFrame of a plan."""

    def __init__(
        self,
        spark: SparkSession,
        table: DeltaTable,
        plan: ChangePlan,
        storage_options: Mapping[str, str] | None,
    ) -> None:
        self._spark = spark
        self._plan = plan
        self._storage = table.storage
        self._options = storage_options
        self._schema = plan.schema
        self._partition_columns = plan.metadata.partition_columns
        self._mode = _mapping_mode(table, plan)

    def rows(self) -> DataFrame:
        """All changes of the plan."""
        if self._mode == "id":
            self._spark.conf.set(FIELD_IDS, "true")
        entries = self._plan.files
        told_by_rows = entries[CHANGE_TYPE].is_null()
        parts = []
        for cdc, some in (
            (False, entries.filter(pc.invert(told_by_rows))),
            (True, entries.filter(told_by_rows)),
        ):
            if some.num_rows:
                parts.append(self._changes(some, cdc=cdc))
        if not parts:
            types = [*spark_schema(nullable(self._schema)).fields, *_CHANGE_TYPES.fields]
            return self._spark.createDataFrame([], T.StructType(types))
        return parts[0] if len(parts) == 1 else parts[0].union(parts[1])

    def _changes(self, entries: pa.Table, *, cdc: bool) -> DataFrame:
        """The changes that some entries tell: all of change data files, or all of data files."""
        schema = file_schema(self._schema, mode=self._mode, without=self._partition_columns)
        if cdc:
            # Of change data files only: data files may have such a column, too, of no meaning.
            schema = T.StructType([*schema.fields, T.StructField(CHANGE_TYPE, T.StringType())])
        # Some files have several entries.
        files = hadoop_uris(entries["path"], table=self._plan.table).dictionary_encode()
        numbers = np.asarray(files.indices).astype(np.int64)
        rows = self._scan(entries, numbers, files.dictionary, schema)
        facts, types = self._facts(entries)
        columns = [pa.array(numbers), pa.array(np.arange(entries.num_rows, dtype=np.int32))]
        known = T.StructType().add("file", T.LongType()).add("entry", T.IntegerType())
        known = T.StructType([*known.fields, *types.fields])
        # With its types: by itself Spark takes a time without zone for one of the session's.
        told = self._spark.createDataFrame(pa.table([*columns, *facts], known.names), known)
        rows = rows.join(F.broadcast(told), F.col("number") == F.col("file"))
        vectors = self._vectors(entries)
        if vectors:
            rows = rows_by_vectors(self._spark, rows, vectors)
        return self._told_columns(rows, cdc=cdc)

    def _scan(
        self,
        entries: pa.Table,
        numbers: npt.NDArray[np.int64],
        uris: pa.Array,
        schema: T.StructType,
    ) -> DataFrame:
        """Columns ``data`` (a struct of what the files hold), ``number`` and ``row_index``.

        The struct keeps the table's column names apart from ours; Spark's optimizer dissolves it.
        """
        scan = scan_files(
            self._spark,
            uris,
            sizes=self._sizes(entries, numbers, len(uris)),
            modified_ms=pa.array(np.arange(len(uris))),
            schema=schema,
            table=self._plan.table,
        )
        # Not the column `_metadata`: the table may have one of that name.
        metadata = scan.metadataColumn("_metadata")
        return scan.select(
            F.struct(*[scan[quoted(name)] for name in schema.names]).alias("data"),
            F.unix_millis(metadata["file_modification_time"]).alias("number"),
            metadata["row_index"].alias("row_index"),
        )

    def _sizes(self, entries: pa.Table, numbers: npt.NDArray[np.int64], num_files: int) -> pa.Array:
        """The files' sizes by number. A remove needn't tell one: then the store is asked."""
        sizes = np.zeros(num_files, dtype=np.int64)
        np.maximum.at(sizes, numbers, np.asarray(pc.fill_null(entries["size"], 0)))
        unknown = np.flatnonzero(sizes == 0)
        _, first_entries = np.unique(numbers, return_index=True)
        paths = entries["path"].take(pa.array(first_entries[unknown])).to_pylist()
        with ThreadPoolExecutor(_REQUESTS_AT_A_TIME) as pool:
            sizes[unknown] = list(pool.map(self._size_in_store, paths))
        return pa.array(sizes)

    def _size_in_store(self, path: str) -> int:
        storage, name = storage_for_uri(resolve(self._plan.table, path), self._options)
        return storage.head(name).size

    def _facts(self, entries: pa.Table) -> tuple[list[Any], T.StructType]:
        """What the rows of an entry have in common: partition values, the change, its meaning."""
        fields = {field.name: field for field in self._schema}
        values, types = [], T.StructType()
        for index, name in enumerate(self._partition_columns):
            values.append(typed_partition_values(entries, fields[name], self._mode))
            types.add(_partition_alias(index), spark_type(fields[name].data_type))
        values += [entries[name] for name in CHANGE_COLUMNS]
        values.append(entries["selectionVector"].is_valid())
        types.add("change", T.StringType()).add("version", T.LongType())
        types.add("committed", T.TimestampType()).add(SELECTS, T.BooleanType())
        return values, types

    def _vectors(self, entries: pa.Table) -> dict[int, npt.NDArray[np.int64]]:
        """The positions of each entry that has a vector, by its number."""
        deleted, selected = entries["deletionVector"], entries["selectionVector"]
        with_vector = np.flatnonzero(np.asarray(pc.or_(deleted.is_valid(), selected.is_valid())))
        some = entries.select(["deletionVector", "selectionVector"]).take(pa.array(with_vector))
        # A loop over vectors: each is read by itself.
        with ThreadPoolExecutor(_REQUESTS_AT_A_TIME) as pool:
            found = pool.map(self._positions, *(column.to_pylist() for column in some.columns))
            return dict(zip(with_vector.tolist(), found, strict=True))

    def _positions(
        self, deleted: dict[str, Any] | None, selected: dict[str, Any] | None
    ) -> npt.NDArray[np.int64]:
        table, open_uri = self._plan.table, partial(storage_for_uri, storage_options=self._options)
        if selected is not None:
            return positions(
                selected_rows(selected, deleted, self._storage, table=table, open_uri=open_uri)
            )
        descriptor = DeletionVectorDescriptor.from_json(deleted, "deletionVector")
        return positions(
            read_deletion_vector(descriptor, self._storage, table=table, open_uri=open_uri)
        )

    def _told_columns(self, rows: DataFrame, *, cdc: bool) -> DataFrame:
        """The columns of the table, in the order of its schema, and those of the change."""
        places = {name: index for index, name in enumerate(self._partition_columns)}
        columns = []
        for field in self._schema:
            if field.name in places:
                column = F.col(_partition_alias(places[field.name])).alias(field.name)
            else:
                stored = F.col("data").getField(physical_name(field, self._mode))
                column = logical_column(stored, field, self._mode)
            columns.append(column)
        change = F.col("data").getField(CHANGE_TYPE) if cdc else F.col("change")
        told = (change, F.col("version"), F.col("committed"))
        columns += [column.alias(n) for column, n in zip(told, CHANGE_COLUMNS, strict=True)]
        return rows.select(columns)


def _mapping_mode(table: DeltaTable, plan: ChangePlan) -> str:
    """The column mapping mode of the plan's last version."""
    if "delta.columnMapping.mode" not in plan.metadata.configuration:
        return "none"
    return mapping_mode(table.snapshot(plan.end).protocol, plan.metadata, table=plan.table)


def _partition_alias(index: int) -> str:
    return f"partition_{index}"


def _check_format(plan: ChangePlan) -> None:
    """Refuse data files whose rows' places Spark doesn't tell, which deletion vectors need."""
    provider = plan.metadata.format.provider
    if provider.lower() != "parquet":
        raise UnsupportedFeatureError(
            f"the data files are in the format {provider!r}: changes are read from parquet only",
            table=plan.table,
        )


def _check_names(schema: StructType, uri: str) -> None:
    """Refuse a table with a column that a change's would be mixed up with, in any case of letters."""
    taken = [name for name in schema.names if name.lower() in CHANGE_COLUMNS]
    if taken:
        raise InvalidTableError(
            f"the table has the columns {taken}, whose names a change needs for what it tells; "
            "rename them",
            table=uri,
        )
