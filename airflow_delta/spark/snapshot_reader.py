"""Builds DataFrames of the rows of one version: scans, and what is joined to them.

Spark's own reader reads the data files in one scan. What files don't hold is joined to it: a broadcast
table has a row per file with the file's typed partition values, and whatever else is the same for all its
rows, found through ``_metadata.file_path``. Tables without partitions and deletion vectors need no join,
and are as fast as plain parquet. Files with deletion vectors have a scan of their own, so that the others
don't pay for them.

The parts of the result that aren't obvious:

* partition values are those of the log, whatever the directories are called;
* a column that a file lacks is null there; ``_change_type`` and other columns of files that the
  schema doesn't name are not seen;
* all columns are nullable for Spark, as in every file source of Spark.

Lists of files stay in Arrow: nothing here is done per file in Python but to read deletion vectors.

Spec: PROTOCOL.md, "Reader Requirements" of the features; edge cases G3 to G7, G16, G17.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from airflow_delta.engine import DeltaTable, Snapshot
from airflow_delta.engine.deletion_vectors.read import read_deletion_vector
from airflow_delta.engine.deletion_vectors.roaring import positions
from airflow_delta.engine.features.column_mapping import mapping_mode, physical_name
from airflow_delta.engine.model.dv_descriptor import DeletionVectorDescriptor
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
from airflow_delta.spark.file_partitions import typed_partition_values
from airflow_delta.spark.locations import hadoop_uris
from airflow_delta.spark.metadata_columns import ROW_INDEX, metadata_column, metadata_schema
from airflow_delta.spark.nullable import nullable
from airflow_delta.spark.other_formats import PARQUET, file_format, refuse_without_row_index
from airflow_delta.spark.row_tracking import ROW_COMMIT_VERSION, ROW_ID, TrackedRows

__all__ = ["FIELD_IDS", "SnapshotReader"]

FIELD_IDS = "spark.sql.parquet.fieldId.read.enabled"
"""The session's setting that lets Spark's reader find columns by their ids.

It is looked at when a scan runs, and the reader has no option for it.
"""

_ADD_COLUMNS = ("path", "partitionValues", "size", "modificationTime", "deletionVector")
_TRACKING_COLUMNS = ("baseRowId", "defaultRowCommitVersion")
_VECTORS_AT_A_TIME = 16


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
        self._format = file_format(snapshot, mapping_mode=self._mode)
        self._partition_columns = snapshot.metadata.partition_columns

    @property
    def table_schema(self) -> T.StructType:
        """The table's columns as DataFrames have them: nullable, without metadata."""
        return spark_schema(nullable(self._snapshot.schema))

    def other_schema(
        self, *, tracked: TrackedRows | None, metadata_columns: Sequence[str]
    ) -> T.StructType:
        """What `rows` gives beside the table's columns."""
        ids = (ROW_ID, ROW_COMMIT_VERSION) if tracked else ()
        fields = [T.StructField(name, T.LongType()) for name in ids]
        return T.StructType([*fields, *metadata_schema(metadata_columns).fields])

    def rows(
        self,
        *,
        pruning: Any = None,
        tracked: TrackedRows | None = None,
        metadata_columns: Sequence[str] = (),
    ) -> DataFrame:
        """The rows of the snapshot, with all columns of the table, and after them others.

        Args:
            pruning: a `pyarrow.compute.Expression`: files that hold no row of it may be left out.
            tracked: where row ids come from, to have them and the row commit versions.
            metadata_columns: others of `metadata_columns`, checked.

        Raises:
            UnsupportedFeatureError: Spark can't read such files, or can't tell the places of their rows.
            InvalidTableError: the log lacks something that a file must have.
        """
        if self._mode == "id":
            self._spark.conf.set(FIELD_IDS, "true")
        if tracked:
            self._need_row_index("row ids")
        if ROW_INDEX in metadata_columns:
            self._need_row_index("row indexes")
        wanted = _ADD_COLUMNS + (_TRACKING_COLUMNS if tracked else ())
        adds = self._snapshot.files(columns=wanted, predicate=pruning)
        has_vector = pc.is_valid(adds["deletionVector"])
        parts = [
            self._columns(self._file_rows(files, tracked), tracked, metadata_columns)
            for files in (adds.filter(pc.invert(has_vector)), adds.filter(has_vector))
            if files.num_rows
        ]
        if not parts:
            other = self.other_schema(tracked=tracked, metadata_columns=metadata_columns)
            schema = T.StructType([*self.table_schema.fields, *other.fields])
            return self._spark.createDataFrame([], schema)
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
        uris = self._file_uris(adds)
        rows = self._with_file_facts(self._scan(adds, uris, schema), uris, facts, types)
        deleted = self._deleted(adds)
        return without_deleted_rows(self._spark, rows, deleted) if deleted else rows

    def _file_rows(self, adds: pa.Table, tracked: TrackedRows | None) -> DataFrame:
        """As `file_rows`, of the table's columns; without a join where no file has facts."""
        schema, (values, types) = self._stored(), self._partition_values(adds)
        if tracked:
            schema = T.StructType([*schema.fields, *tracked.stored])
            for name, column in tracked.facts(adds).items():
                values.append(column)
                types.add(name, "long")
        if not values and adds["deletionVector"].null_count == adds.num_rows:
            return self._scan(adds, self._file_uris(adds), schema)
        return self.file_rows(adds, schema, pa.table(values, names=types.names), types)

    def _stored(self) -> T.StructType:
        return file_schema(self._snapshot.schema, mode=self._mode, without=self._partition_columns)

    def _scan(self, adds: pa.Table, uris: pa.Array, schema: T.StructType) -> DataFrame:
        """Columns ``data`` (a struct of what the files hold), ``file``, and others that tell of the row.

        The struct keeps the table's column names apart from ours; Spark's optimizer dissolves it.
        """
        scan = scan_files(
            self._spark,
            uris,
            sizes=adds["size"],
            modified_ms=adds["modificationTime"],
            schema=schema,
            table=self._snapshot.table,
            file_format=self._format.provider,
            options=self._format.options,
        )
        # Not the column `_metadata`: the table may have one of that name.
        metadata = scan.metadataColumn("_metadata")
        told = ["file_size", "file_modification_time"]
        told += ["row_index"] if self._format == PARQUET else []
        return scan.select(
            F.struct(*[scan[quoted(name)] for name in schema.names]).alias("data"),
            metadata["file_path"].alias("file"),
            *[metadata[name].alias(name) for name in told],
        )

    def _partition_values(self, adds: pa.Table) -> tuple[list[pa.Array], T.StructType]:
        """The typed values of the partition columns, one of each per file, and their types."""
        by_name = {field.name: field for field in self._snapshot.schema}
        types, values = T.StructType(), []
        for index, name in enumerate(self._partition_columns):
            types.add(_partition_alias(index), spark_type(by_name[name].data_type))
            values.append(typed_partition_values(adds, by_name[name], self._mode))
        return values, types

    def _with_file_facts(
        self, scan: DataFrame, uris: pa.Array, facts: pa.Table, types: T.StructType
    ) -> DataFrame:
        """Adds the columns ``number``, of the file by its URI, and the facts of each file."""
        columns = [uris, pa.array(np.arange(len(uris), dtype=np.int64)), *facts.columns]
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

    def _columns(
        self, rows: DataFrame, tracked: TrackedRows | None, metadata_columns: Sequence[str]
    ) -> DataFrame:
        """The columns of the table, in the order of its schema, and the others."""
        places = {name: index for index, name in enumerate(self._partition_columns)}
        columns: list[Column] = []
        for field in self._snapshot.schema:
            if field.name in places:
                column = F.col(_partition_alias(places[field.name])).alias(field.name)
            else:
                stored = F.col("data").getField(physical_name(field, self._mode))
                column = logical_column(stored, field, self._mode)
            columns.append(column)
        if tracked:
            columns += tracked.columns(F.col("data"))
        version = self._snapshot.version
        columns += [metadata_column(name, version=version) for name in metadata_columns]
        return rows.select(columns)

    def _deleted(self, adds: pa.Table) -> dict[int, npt.NDArray[np.int64]]:
        """The deleted positions of each file that has some, by its number."""
        has_vector = pc.is_valid(adds["deletionVector"])
        numbers = pc.indices_nonzero(has_vector).to_pylist()
        if not numbers:
            return {}
        self._need_row_index("deletion vectors")
        vectors = adds["deletionVector"].filter(has_vector).to_pylist()
        # File by file: each vector is read by itself, some at a time, since stores let one wait.
        with ThreadPoolExecutor(_VECTORS_AT_A_TIME) as pool:
            return dict(zip(numbers, pool.map(self._positions, vectors), strict=True))

    def _positions(self, vector: Mapping[str, Any]) -> npt.NDArray[np.int64]:
        descriptor = DeletionVectorDescriptor.from_json(vector, "add.deletionVector")
        bitmap = read_deletion_vector(
            descriptor,
            self._table.storage,
            table=self._snapshot.table,
            open_uri=self._open_uri,
        )
        return positions(bitmap)

    def _need_row_index(self, what: str) -> None:
        refuse_without_row_index(self._format, what, table=self._snapshot.table)

    def _file_uris(self, adds: pa.Table) -> pa.Array:
        return hadoop_uris(adds["path"], table=self._snapshot.table)


def _partition_alias(index: int) -> str:
    return f"partition_{index}"
