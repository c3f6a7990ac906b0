"""`read_snapshot`: a version of a table as a DataFrame.

The engine says which files the version is made of; Spark's vectorised parquet reader reads them in
one scan. What files don't hold is joined to it: a broadcast table has a row per file with the
file's typed partition values, found through ``_metadata.file_path``. Tables without partitions and
deletion vectors need no join, and are as fast as plain parquet.

The parts of the result that aren't obvious:

* partition values are those of the log, whatever the directories are called;
* a column that a file lacks is null there; ``_change_type`` and other columns of files that the
  schema doesn't name are not seen;
* all columns are nullable for Spark, as in every file source of Spark.

Spec: PROTOCOL.md, "Reader Requirements" of the features; edge cases G3 to G7, G16, G17.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812
from pyspark.sql.pandas.types import to_arrow_type

from airflow_delta.engine import DeltaTable, Snapshot
from airflow_delta.engine.deletion_vectors.read import read_deletion_vector
from airflow_delta.engine.deletion_vectors.roaring import positions
from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.engine.features.column_mapping import mapping_mode, physical_name
from airflow_delta.engine.model.dv_descriptor import DeletionVectorDescriptor
from airflow_delta.engine.model.partition_values import parse_partition_value
from airflow_delta.engine.model.paths import resolve
from airflow_delta.engine.model.schema import StructField, StructType
from airflow_delta.engine.storage.location import storage_for_uri
from airflow_delta.spark.columns import (
    file_schema,
    logical_column,
    quoted,
    spark_schema,
    spark_type,
)
from airflow_delta.spark.deleted_rows import without_deleted_rows
from airflow_delta.spark.file_list import scan_files
from airflow_delta.spark.locations import hadoop_uri

__all__ = ["FIELD_IDS", "SnapshotReader", "read_snapshot"]

_ADD_COLUMNS = ("path", "partitionValues", "size", "modificationTime", "deletionVector")
FIELD_IDS = "spark.sql.parquet.fieldId.read.enabled"
"""The session's setting that lets Spark's reader find columns by their ids.

It is looked at when a scan runs, and the reader has no option for it.
"""


def read_snapshot(
    spark: SparkSession,
    uri: str,
    version: int | None = None,
    *,
    timestamp: datetime | str | int | None = None,
    columns: Sequence[str] | None = None,
    predicate: Column | str | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> DataFrame:
    """A version of a Delta table as a DataFrame.

    The version is fixed by the call: later commits don't change what the DataFrame gives. Vacuum
    may take its files away, which makes it fail.

    Where the table has column mapping of mode ``id``, the session's
    ``spark.sql.parquet.fieldId.read.enabled`` is set to true, and must stay so until the DataFrame
    has been evaluated.

    Args:
        spark: the session; Spark reads data files with the credentials of its own configuration.
        uri: the table's path or URI.
        version: the version; without version and timestamp it is the newest.
        timestamp: an aware datetime, ISO-8601 with an offset, or epoch milliseconds.
        columns: columns to give, in this order; None for all.
        predicate: which rows to give: a Spark condition over the table's columns.
        storage_options: credentials and settings with which the engine reads the log.

    Raises:
        InvalidArgumentError: version and timestamp are both given, there is no such column, or
            Spark can't reach the location.
        TableNotFoundError: there is no table.
        VersionNotFoundError: the log can't rebuild the version.
        TimestampOutOfRangeError: no version belongs to the time.
        UnsupportedFeatureError: the table needs a feature that the engine, or a file name that
            Spark, can't read.
        DeltaError: the log is damaged; see `DeltaTable.snapshot`.
    """
    table = DeltaTable(uri, storage_options)
    snapshot = table.snapshot(version=version, timestamp=timestamp)
    chosen = _checked_columns(columns, snapshot.schema, uri)
    reader = SnapshotReader(spark, table, snapshot, storage_options)
    rows = reader.rows()
    if predicate is not None:
        rows = rows.where(predicate)
    return rows if chosen is None else rows.select([quoted(name) for name in chosen])


class SnapshotReader:
    """Builds DataFrames of one snapshot.

    Args:
        spark: the session.
        table: the table.
        snapshot: the version.
        storage_options: with which the engine reads deletion vectors that lie elsewhere.
    """

    def __init__(
        self,
        spark: SparkSession,
        table: DeltaTable,
        snapshot: Snapshot,
        storage_options: Mapping[str, str] | None,
    ) -> None:
        self._spark = spark
        self._table = table
        self._snapshot = snapshot
        self._open_uri = partial(storage_for_uri, storage_options=storage_options)
        self._mode = mapping_mode(snapshot.protocol, snapshot.metadata, table=snapshot.table)
        self._partition_columns = snapshot.metadata.partition_columns

    def rows(self) -> DataFrame:
        """All rows and columns of the snapshot."""
        if self._mode == "id":
            self._spark.conf.set(FIELD_IDS, "true")
        adds = self._snapshot.files(columns=_ADD_COLUMNS)
        has_vector = pc.is_valid(adds["deletionVector"])
        plain, masked = adds.filter(pc.invert(has_vector)), adds.filter(has_vector)
        parts = []
        if plain.num_rows:
            parts.append(self._plain_rows(plain))
        if masked.num_rows:
            parts.append(self._masked_rows(masked))
        if not parts:
            return self._spark.createDataFrame([], spark_schema(self._snapshot.schema))
        return parts[0] if len(parts) == 1 else parts[0].union(parts[1])

    def file_rows(
        self, adds: pa.Table, schema: T.StructType, facts: pa.Table, types: T.StructType
    ) -> DataFrame:
        """The rows of some files as the files hold them, but for those that deletion vectors delete.

        Args:
            adds: the files, with at least ``path``, ``size``, ``modificationTime`` and
                ``deletionVector``.
            schema: the columns to read, by the names that the files have for them.
            facts: what to join to all rows of a file, a row per file.
            types: the types of the facts.

        Returns:
            The columns ``data`` (a struct of what is read), ``file`` (its URI), ``row_index``, ``number``
            (of the file in ``adds``), and the facts.
        """
        rows = self._with_file_facts(self._scan(adds, schema), adds, facts, types)
        deleted = self._deleted(adds)
        return without_deleted_rows(self._spark, rows, deleted) if deleted else rows

    def _plain_rows(self, adds: pa.Table) -> DataFrame:
        scan = self._scan(adds, self._stored())
        if self._partition_columns:
            scan = self._with_file_facts(scan, adds, *self._partition_facts(adds))
        return self._table_columns(scan)

    def _masked_rows(self, adds: pa.Table) -> DataFrame:
        return self._table_columns(
            self.file_rows(adds, self._stored(), *self._partition_facts(adds))
        )

    def _stored(self) -> T.StructType:
        return file_schema(self._snapshot.schema, mode=self._mode, without=self._partition_columns)

    def _scan(self, adds: pa.Table, schema: T.StructType) -> DataFrame:
        """Columns ``data`` (a struct of what the files hold), ``file`` and ``row_index``.

        The struct keeps the table's column names apart from ours; Spark's optimizer dissolves it.
        """
        scan = scan_files(
            self._spark,
            self._file_uris(adds),
            sizes=adds["size"].to_pylist(),
            modified_ms=adds["modificationTime"].to_pylist(),
            schema=schema,
            table=self._snapshot.table,
        )
        # Not the column `_metadata`: the table may have one of that name.
        metadata = scan.metadataColumn("_metadata")
        return scan.select(
            F.struct(*[scan[quoted(name)] for name in schema.names]).alias("data"),
            metadata["file_path"].alias("file"),
            metadata["row_index"].alias("row_index"),
        )

    def _partition_facts(self, adds: pa.Table) -> tuple[pa.Table, T.StructType]:
        """The typed values of the partition columns, a row per file, and their types."""
        by_name = {field.name: field for field in self._snapshot.schema}
        types, values = T.StructType(), []
        for index, name in enumerate(self._partition_columns):
            types.add(_partition_alias(index), spark_type(by_name[name].data_type))
            values.append(_typed_partition_values(adds, by_name[name], self._mode))
        return pa.table(values, names=types.names), types

    def _with_file_facts(
        self, scan: DataFrame, adds: pa.Table, facts: pa.Table, types: T.StructType
    ) -> DataFrame:
        """Adds the columns ``number``, of the file in ``adds``, and the facts of each file."""
        columns = [
            pa.array(self._file_uris(adds), pa.string()),
            pa.array(np.arange(adds.num_rows, dtype=np.int64)),
            *facts.columns,
        ]
        # With its types: by itself Spark takes a time without zone for one of the session's.
        known = T.StructType().add("uri", "string").add("number", "long")
        known = T.StructType([*known.fields, *types.fields])
        files = self._spark.createDataFrame(pa.table(columns, names=known.names), known)
        found = scan.join(F.broadcast(files), F.col("file") == F.col("uri"), "left")
        # A row of a file that isn't found must stop the query, not vanish as an inner join has it.
        unknown = F.raise_error(F.concat(F.lit("not a file of the table: "), F.col("file")))
        return found.where(
            F.when(F.col("number").isNull(), unknown.cast("boolean")).otherwise(F.lit(True))
        )

    def _table_columns(self, rows: DataFrame) -> DataFrame:
        """The columns of the table, in the order of its schema."""
        places = {name: index for index, name in enumerate(self._partition_columns)}
        columns = []
        for field in self._snapshot.schema:
            if field.name in places:
                column = F.col(_partition_alias(places[field.name])).alias(field.name)
            else:
                stored = F.col("data").getField(physical_name(field, self._mode))
                column = logical_column(stored, field, self._mode)
            columns.append(column)
        return rows.select(columns)

    def _deleted(self, adds: pa.Table) -> dict[int, npt.NDArray[np.int64]]:
        # A loop over files: each vector is read by itself.
        return {
            number: positions(
                read_deletion_vector(
                    DeletionVectorDescriptor.from_json(vector, "add.deletionVector"),
                    self._table.storage,
                    table=self._snapshot.table,
                    open_uri=self._open_uri,
                )
            )
            for number, vector in enumerate(adds["deletionVector"].to_pylist())
            if vector is not None
        }

    def _file_uris(self, adds: pa.Table) -> list[str]:
        # A loop over files: Spark's list of files is text.
        root = self._snapshot.table
        return [hadoop_uri(resolve(root, path)) for path in adds["path"].to_pylist()]


def _typed_partition_values(adds: pa.Table, field: StructField, mode: str) -> pa.Array:
    """The values of a partition column, one per file; each distinct text is parsed once."""
    name = physical_name(field, mode)
    texts = pc.map_lookup(adds["partitionValues"], pa.scalar(name), "first").combine_chunks()
    encoded = texts.dictionary_encode()
    parsed = [parse_partition_value(t, field.data_type) for t in encoded.dictionary.to_pylist()]
    type_ = to_arrow_type(spark_type(field.data_type), timezone="UTC")
    return pa.array(parsed, type_).take(encoded.indices)


def _checked_columns(
    columns: Sequence[str] | None, schema: StructType, uri: str
) -> Sequence[str] | None:
    if columns is None:
        return None
    if isinstance(columns, str):
        raise InvalidArgumentError(f"columns={columns!r}: expected a list of names", table=uri)
    unknown = [name for name in columns if schema.field(name) is None]
    if unknown:
        raise InvalidArgumentError(
            f"unknown columns {unknown}: the table has {', '.join(schema.names)}", table=uri
        )
    return columns


def _partition_alias(index: int) -> str:
    return f"partition_{index}"
