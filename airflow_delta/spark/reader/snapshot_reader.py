"""Build DataFrames with the rows of one version.

Spark's own reader reads the data files. Values that aren't in the files, such as partition values from the
log, are joined to their rows (`file_rows`). Tables without partitions and deletion vectors need no join,
and are as fast as plain Parquet.

A column that a file lacks is null. Columns of a file that the schema lacks, such as ``_change_type``, are
ignored. All columns are nullable, as in every file source of Spark.

Spec: PROTOCOL.md, "Reader Requirements" of the features.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from airflow_delta.engine import DeltaTable, Snapshot
from airflow_delta.engine.arrow.statistics.parse import num_records
from airflow_delta.engine.deletion_vectors.columns import read_deletion_vector_column
from airflow_delta.engine.errors import UnsupportedFeatureError
from airflow_delta.engine.features.column_mapping import mapping_mode
from airflow_delta.engine.features.protocol import supported_features
from airflow_delta.engine.model.schema import StructType
from airflow_delta.spark.reader.columns import FIELD_IDS, file_schema, frame_schema
from airflow_delta.spark.reader.file_list import scan_files
from airflow_delta.spark.reader.file_partitions import partition_facts, table_columns
from airflow_delta.spark.reader.file_rows import (
    FILE_NUMBER,
    FILE_ROW_INDEX,
    IS_LIVE,
    Facts,
    file_rows,
    with_facts,
)
from airflow_delta.spark.reader.metadata_columns import (
    ROW_INDEX,
    metadata_column,
    metadata_facts,
    metadata_schema,
)
from airflow_delta.spark.reader.other_formats import file_format, refuse_without_row_index
from airflow_delta.spark.reader.own_sessions import exact_session
from airflow_delta.spark.reader.row_tracking import ROW_COMMIT_VERSION, ROW_ID, TrackedRows
from airflow_delta.spark.runtime.locations import hadoop_uris

__all__ = [
    "LOCATION_FILE",
    "LOCATION_ID",
    "LOCATION_LIVE",
    "LOCATION_ROW",
    "OWN_PREFIX",
    "SnapshotReader",
]

OWN_PREFIX = "__delta_"
"""What the names of columns begin with that are added to those of a table to find and change rows."""

LOCATION_FILE = f"{OWN_PREFIX}file"
"""The column of `SnapshotReader.located_rows` with the index of a row's file."""

LOCATION_ROW = f"{OWN_PREFIX}row"
"""The column of `SnapshotReader.located_rows` with the index of the row in its file."""

LOCATION_ID = f"{OWN_PREFIX}row_id"
"""The column of `SnapshotReader.located_rows` with the stable id of a row."""

LOCATION_LIVE = f"{OWN_PREFIX}is_live"
"""The column of `SnapshotReader.located_rows` that is true for every row of the table. Spark can't evaluate
an expression that needs it for other rows of the files."""

_ADD_COLUMNS = ("path", "partitionValues", "size", "modificationTime", "deletionVector")
_VECTORS = "deletionVectors"
_TRACKING_COLUMNS = ("baseRowId", "defaultRowCommitVersion")


class SnapshotReader:
    """Builds DataFrames of one snapshot.

    Args:
        spark: the session.
        table: the table.
        snapshot: the version.
        options: options of Spark's reader, to be kept in its plans.
    """

    def __init__(
        self,
        spark: SparkSession,
        table: DeltaTable,
        snapshot: Snapshot,
        options: Mapping[str, str] | None = None,
    ) -> None:
        self._spark = spark
        self._snapshot = snapshot
        self._storage = table.storage
        self._access = table.file_access
        self._mode = mapping_mode(snapshot.protocol, snapshot.metadata, table=snapshot.table)
        self._format = file_format(snapshot, mapping_mode=self._mode)
        self._partition_columns = snapshot.metadata.partition_columns
        self._options = options

    @property
    def table_schema(self) -> T.StructType:
        """The table's columns in DataFrames; see `columns.frame_schema`."""
        return frame_schema(self._snapshot.schema)

    def other_schema(
        self, *, tracked: TrackedRows | None, metadata_columns: Sequence[str]
    ) -> T.StructType:
        """The columns that `rows` adds to the table's columns."""
        ids = (ROW_ID, ROW_COMMIT_VERSION) if tracked else ()
        fields = [T.StructField(name, T.LongType()) for name in ids]
        return T.StructType([*fields, *metadata_schema(metadata_columns).fields])

    def rows(
        self,
        *,
        pruning: Any = None,
        tracked: TrackedRows | None = None,
        metadata_columns: Sequence[str] = (),
        exact: bool = False,
    ) -> DataFrame:
        """Read the rows of the snapshot: all columns of the table, then the added ones.

        Args:
            pruning: a `pyarrow.compute.Expression`; files for which it is never true may be skipped.
            tracked: the sources of row ids, to add row ids and row commit versions.
            metadata_columns: metadata columns to add, checked.
            exact: see `file_rows`.

        Raises:
            UnsupportedFeatureError: Spark can't read such files, or has no row index for them.
            InvalidTableError: the action of a file lacks a field.
        """
        self._prepare_session()
        if tracked:
            self._need_row_index("row ids")
        if ROW_INDEX in metadata_columns:
            self._need_row_index("row indexes")
        wanted = _ADD_COLUMNS + (_TRACKING_COLUMNS if tracked else ())
        if _VECTORS in supported_features(self._snapshot.protocol):
            wanted += ("stats",)
        adds = self._snapshot.files(columns=wanted, predicate=pruning)
        has_vector = pc.is_valid(adds["deletionVector"])
        # Two scans, so that the join with deletion vectors doesn't slow down the other files.
        parts = [
            self._rows(files, tracked, metadata_columns, exact=exact)
            for files in (adds.filter(pc.invert(has_vector)), adds.filter(has_vector))
            if files.num_rows
        ]
        if not parts:
            other = self.other_schema(tracked=tracked, metadata_columns=metadata_columns)
            return self._no_rows(T.StructType([*self.table_schema.fields, *other.fields]))
        return parts[0] if len(parts) == 1 else parts[0].union(parts[1])

    def _no_rows(self, schema: T.StructType) -> DataFrame:
        if not self._options:
            return self._spark.createDataFrame([], schema)
        # Only a scan keeps options in the plan.
        scan = scan_files(
            self._spark,
            [],
            sizes=[],
            modified_ms=[],
            schema=T.StructType([T.StructField("nothing", T.BooleanType())]),
            table=self._snapshot.table,
            options=self._options,
        )
        return scan.select(
            [
                F.lit(None).cast(field.dataType).alias(field.name, metadata=field.metadata)
                for field in schema
            ]
        )

    def located_rows(
        self,
        adds: pa.Table,
        *,
        columns: Collection[str] | None = None,
        only: Mapping[int, BitMap64] | None = None,
        tracked: TrackedRows | None = None,
        with_live: bool = False,
    ) -> DataFrame:
        """Read the rows of some files, with where they are, as they are stored (`own_sessions`).

        Args:
            adds: the files, with the columns that `rows` needs.
            columns: the names of the table's columns to read, in lower case; None: all. To plan a scan of
                many columns that nobody uses takes Spark longer.
            only: the row indexes to read, by the index of the file; None: all rows that aren't deleted.
            tracked: the sources of row ids, to add them.
            with_live: whether to add `LOCATION_LIVE`.

        Returns:
            The columns of the table, then `LOCATION_FILE`, the index of the file in ``adds``, or, with
            ``only``, among the files there, in the order of their indexes; `LOCATION_ROW`, the index of the
            row in the file, counting deleted rows; `LOCATION_ID` with ``tracked``, and `LOCATION_LIVE` with
            ``with_live``.

        Raises:
            UnsupportedFeatureError: Spark has no row index for such files, or a column's name begins with
                `OWN_PREFIX`.
            InvalidTableError: a file has no row ids.
        """
        self._need_row_index("changes of rows")
        self._refuse_own_names()
        if only is not None:
            # Spark would open every file, also those without such rows.
            indexes = sorted(only)
            adds = adds.take(pa.array(indexes, pa.int64()))
            only = {number: only[index] for number, index in enumerate(indexes)}
        if not adds.num_rows:
            names = [LOCATION_FILE, LOCATION_ROW, *([LOCATION_ID] if tracked else [])]
            locations = [T.StructField(name, T.LongType()) for name in names]
            if with_live:
                locations.append(T.StructField(LOCATION_LIVE, T.BooleanType()))
            nothing = T.StructType([*self.table_schema.fields, *locations])
            return self._spark.createDataFrame([], nothing)
        schema, mode = self._chosen_schema(columns), self._mode
        partitioning = [name for name in self._partition_columns if name in schema.names]
        stored = file_schema(schema, mode=mode, without=partitioning)
        facts = partition_facts(adds, schema, partitioning, mode)
        selected = [
            *table_columns(self._spark, schema, partitioning, mode),
            F.col(FILE_NUMBER).alias(LOCATION_FILE),
            F.col(FILE_ROW_INDEX).alias(LOCATION_ROW),
        ]
        if tracked:
            stored = T.StructType([*stored.fields, *tracked.stored])
            facts = {**facts, **tracked.facts(adds)}
            selected.append(tracked.columns()[0].alias(LOCATION_ID))
        rows = self.file_rows(
            adds, stored, facts, vectors=only, selects=only is not None, exact=True
        )
        if with_live:
            # Without a join, each row of the files is one of the table.
            is_live = F.col(IS_LIVE) if IS_LIVE in rows.columns else F.lit(True)
            selected.append(is_live.alias(LOCATION_LIVE))
        return rows.select(selected)

    def _chosen_schema(self, columns: Collection[str] | None) -> StructType:
        schema = self._snapshot.schema
        if columns is None:
            return schema
        return StructType(tuple(field for field in schema if field.name.lower() in columns))

    def file_rows(
        self,
        adds: pa.Table,
        schema: T.StructType,
        facts: Facts,
        *,
        vectors: Mapping[int, BitMap64] | None = None,
        selects: bool = False,
        exact: bool = False,
    ) -> DataFrame:
        """Read the stored rows of some files, without those that deletion vectors delete.

        Args:
            adds: the files, with at least ``path``, ``size`` and ``deletionVector``; with ``stats``,
                deletion vectors are checked against the number of rows.
            schema: the columns to read, by their physical names.
            facts: the per-file values to join.
            vectors: the rows to leave out, by the index of the file; None: what the files' own deletion
                vectors delete.
            selects: whether to read just the rows of ``vectors`` instead.
            exact: whether to read values as they are stored, whatever the session's settings
                (`own_sessions`): for rows that are written anew, or checked against a new rule.

        Returns:
            The columns of `airflow_delta.spark.reader.file_rows`, where a file's number is its index in
            ``adds``, and the facts.
        """
        rows = file_rows(
            self._spark,
            hadoop_uris(adds["path"], self._access),
            sizes=adds["size"],
            schema=schema,
            table=self._snapshot.table,
            file_format=self._format,
            options=self._options,
            read_in=self._exact_session if exact else None,
        )
        if vectors is None:
            vectors = self.vectors(adds)
        if vectors:
            self._need_row_index("deletion vectors")
        if not vectors and not facts:
            return rows
        numbers = pa.array(np.arange(adds.num_rows, dtype=np.int64))
        chosen = F.lit(True) if selects else None
        return with_facts(self._spark, rows, numbers, facts, vectors=vectors, selects=chosen)

    def _refuse_own_names(self) -> None:
        names = self._snapshot.schema.names
        if taken := [name for name in names if name.lower().startswith(OWN_PREFIX)]:
            raise UnsupportedFeatureError(
                f"the table has the columns {taken}, and names that begin with {OWN_PREFIX} are needed to "
                "find the rows to change: rename them",
                table=self._snapshot.table,
            )

    def vectors(self, adds: pa.Table) -> Mapping[int, BitMap64]:
        """Read the deletion vectors of some files, by the index of the file.

        Args:
            adds: the files, with ``deletionVector``; with ``stats``, these are checked against the number
                of rows.

        Raises:
            DeletionVectorError: a deletion vector can't be read.
        """
        return read_deletion_vector_column(
            adds["deletionVector"],
            self._storage,
            table=self._snapshot.table,
            open_uri=self._access.locate,
            num_rows=num_records(adds["stats"]) if "stats" in adds.column_names else None,
        )

    @cached_property
    def _exact_session(self) -> SparkSession:
        return exact_session(self._spark, mode=self._mode)

    def _prepare_session(self) -> None:
        if self._mode == "id":
            self._spark.conf.set(FIELD_IDS, "true")

    def _rows(
        self,
        adds: pa.Table,
        tracked: TrackedRows | None,
        metadata_columns: Sequence[str],
        *,
        exact: bool,
    ) -> DataFrame:
        """Like `rows`, for some files."""
        schema, mode, partitioning = self._snapshot.schema, self._mode, self._partition_columns
        stored = file_schema(schema, mode=mode, without=partitioning)
        facts = {
            **partition_facts(adds, schema, partitioning, mode),
            **metadata_facts(metadata_columns, adds),
        }
        columns = table_columns(self._spark, schema, partitioning, mode)
        if tracked:
            stored = T.StructType([*stored.fields, *tracked.stored])
            facts.update(tracked.facts(adds))
            columns += tracked.columns()
        version = self._snapshot.version
        columns += [metadata_column(name, version=version) for name in metadata_columns]
        return self.file_rows(adds, stored, facts, exact=exact).select(columns)

    def _need_row_index(self, what: str) -> None:
        refuse_without_row_index(self._format, what, table=self._snapshot.table)
