"""`read_changes`: read the changes of a range of versions as a DataFrame.

The engine plans which rows of which files are changes, and of which kind
(`airflow_delta.engine.changes.plan`). Spark reads each file once, in one scan of change data files
and one of data files. A file may contain several changes of the same rows, such as their insert in
one version and their delete in a later one. So the entries of the plan are a broadcast table,
joined to the rows by the number of the file. It has the columns that aren't in the
file: the kind of change, the version, its time and the partition values.

Spec: PROTOCOL.md, "Change Data Files".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import reduce

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.changes.plan import ChangePlan
from airflow_delta.engine.changes.row_selection import read_entry_rows
from airflow_delta.engine.commit.owner import CommitOwner
from airflow_delta.engine.errors import (
    InvalidTableError,
    UnsupportedFeatureError,
)
from airflow_delta.engine.features.change_columns import (
    CHANGE_COLUMNS,
    CHANGE_TYPE,
    COMMIT_TIMESTAMP,
    COMMIT_VERSION,
    columns_named_as_changes,
)
from airflow_delta.engine.features.column_mapping import mapping_mode
from airflow_delta.engine.model.paths import resolve
from airflow_delta.engine.model.schema import StructType
from airflow_delta.spark.reader.columns import (
    FIELD_IDS,
    checked_columns,
    file_schema,
    frame_schema,
    quoted,
)
from airflow_delta.spark.reader.file_partitions import partition_facts, table_columns
from airflow_delta.spark.reader.file_rows import file_rows, stored_column, with_facts
from airflow_delta.spark.runtime.locations import hadoop_uris

__all__ = ["read_changes"]

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
    allowed_outside: Sequence[str] = (),
) -> DataFrame:
    """Read the changes of a range of versions, both ends included: a row for each changed row.

    A row has the columns of the table at the last version (null in changes from before the column
    was added), and then

    * ``_change_type``: ``insert``, ``delete``, ``update_preimage`` or ``update_postimage``,
    * ``_commit_version``: the version of the change, a long,
    * ``_commit_timestamp``: the commit timestamp of that version, a timestamp.

    The call decides on the range and the files; later commits don't matter. The rows are in no order.

    If the table has column mapping mode ``id``, the session's ``spark.sql.parquet.fieldId.read.enabled`` is
    set to true, and must stay true until the DataFrame has been evaluated.

    Args:
        spark: the session; Spark reads the files with the credentials of its own configuration.
        uri: the table's path or URI.
        start: the first version; or an aware datetime or ISO-8601 with an offset: the first version
            at or after this time.
        end: the last version; or a time: the last version at or before it; None for the newest.
        columns: the columns of the table to read, in this order; None for all. `CHANGE_COLUMNS` follow.
        storage_options: credentials and settings with which the engine reads the log.
        commit_owners: the commit owners of managed tables, by name.
        allowed_outside: locations outside of the table below which it may read files; see `DeltaTable`.

    Raises:
        InvalidArgumentError: the range ends before it starts, there is no such column, or Spark can't
            reach the location.
        TableNotFoundError: there is no table.
        VersionNotFoundError: a version is after the newest.
        TimestampOutOfRangeError: no version belongs to a time.
        ChangesNotAvailableError: the changes weren't recorded, are gone, or the schema changed in
            other ways than by added columns.
        DeletionVectorError: a deletion vector isn't as the log describes it.
        OutsidePathError: a file is at a location that the table isn't allowed to read.
        InvalidTableError: the table has a column with a name of `CHANGE_COLUMNS`.
        UnsupportedFeatureError: the engine can't read a feature of the table, or Spark a file name.
        DeltaError: the log is damaged, or the store fails; see `DeltaTable.changes`.
    """
    table = DeltaTable(uri, storage_options, commit_owners, allowed_outside=allowed_outside)
    plan = table.changes(start, end)
    _check_format(plan)
    _check_names(plan.schema, uri)
    chosen = checked_columns(columns, plan.schema, uri)
    rows = _ChangeReader(spark, table, plan).rows()
    return rows if chosen is None else rows.select([quoted(c) for c in (*chosen, *CHANGE_COLUMNS)])


class _ChangeReader:
    """Builds the DataFrame of a plan."""

    def __init__(
        self,
        spark: SparkSession,
        table: DeltaTable,
        plan: ChangePlan,
    ) -> None:
        self._spark = spark
        self._plan = plan
        self._schema = plan.schema
        self._partition_columns = plan.metadata.partition_columns
        self._mode = mapping_mode(plan.protocol, plan.metadata, table=plan.table)
        self._access = table.file_access
        self._storage = table.storage

    def rows(self) -> DataFrame:
        """All changes of the plan."""
        if self._mode == "id":
            self._spark.conf.set(FIELD_IDS, "true")
        parts = [
            self._changes(some, cdc=cdc)
            for some, cdc in self._split(self._plan.files)
            if some.num_rows
        ]
        if not parts:
            types = [*frame_schema(self._schema).fields, *_CHANGE_TYPES.fields]
            return self._spark.createDataFrame([], T.StructType(types))
        return reduce(DataFrame.union, parts)

    def _split(self, entries: pa.Table) -> list[tuple[pa.Table, bool]]:
        """Split the entries by the kind of scan; the second value is whether it reads change data files.

        Files without deletion vectors have a scan of their own, which is cheaper. Each file is read once.
        """
        is_cdc = entries[CHANGE_TYPE].is_null()
        of_data = entries.filter(pc.invert(is_cdc))
        has_vector = pc.or_(
            of_data["deletionVector"].is_valid(), of_data["selectionVector"].is_valid()
        )
        with_vector = pc.is_in(of_data["path"], value_set=of_data["path"].filter(has_vector))
        return [
            (of_data.filter(pc.invert(with_vector)), False),
            (of_data.filter(with_vector), False),
            (entries.filter(is_cdc), True),
        ]

    def _changes(self, entries: pa.Table, *, cdc: bool) -> DataFrame:
        """Read the changes of some entries, either all of change data files or all of data files."""
        table, mode, partitioning = self._plan.table, self._mode, self._partition_columns
        schema = file_schema(self._schema, mode=mode, without=partitioning)
        if cdc:
            # For change data files only: in data files such a column has no meaning.
            schema = T.StructType([*schema.fields, T.StructField(CHANGE_TYPE, T.StringType())])
        # Some files have several entries.
        files = hadoop_uris(entries["path"], self._access).dictionary_encode()
        numbers = np.asarray(files.indices).astype(np.int64)
        sizes = self._sizes(entries, numbers, len(files.dictionary))
        rows = file_rows(self._spark, files.dictionary, sizes=sizes, schema=schema, table=table)
        facts = {
            **partition_facts(entries, self._schema, partitioning, mode),
            "change": (T.StringType(), entries[CHANGE_TYPE]),
            "version": (T.LongType(), entries[COMMIT_VERSION]),
            "committed": (T.TimestampType(), entries[COMMIT_TIMESTAMP]),
            "selects": (T.BooleanType(), entries["selectionVector"].is_valid()),
        }
        rows = with_facts(
            self._spark,
            rows,
            pa.array(numbers),
            facts,
            vectors=read_entry_rows(
                entries["deletionVector"],
                entries["selectionVector"],
                self._storage,
                table=table,
                open_uri=self._access.locate,
                num_rows=entries["numRecords"],
            ),
            selects=F.col("selects"),
        )
        change = stored_column(CHANGE_TYPE) if cdc else F.col("change")
        added = zip((change, F.col("version"), F.col("committed")), CHANGE_COLUMNS, strict=True)
        columns = table_columns(self._spark, self._schema, partitioning, mode)
        return rows.select(columns + [column.alias(name) for column, name in added])

    def _sizes(self, entries: pa.Table, numbers: npt.NDArray[np.int64], num_files: int) -> pa.Array:
        """The sizes of the files by number; a ``remove`` may lack the size, then from the store."""
        sizes = np.zeros(num_files, dtype=np.int64)
        np.maximum.at(sizes, numbers, np.asarray(pc.fill_null(entries["size"], 0)))
        unknown = np.flatnonzero(sizes == 0)
        _, first_entries = np.unique(numbers, return_index=True)
        paths = entries["path"].take(pa.array(first_entries[unknown])).to_pylist()
        with ThreadPoolExecutor(_REQUESTS_AT_A_TIME) as pool:
            sizes[unknown] = list(pool.map(self._size_in_store, paths))
        return pa.array(sizes)

    def _size_in_store(self, path: str) -> int:
        storage, name = self._access.locate(resolve(self._plan.table, path))
        return storage.head(name).size


def _check_format(plan: ChangePlan) -> None:
    """Refuse formats for which Spark has no row index, which deletion vectors need."""
    provider = plan.metadata.format.provider
    if provider.lower() != "parquet":
        raise UnsupportedFeatureError(
            f"the data files are in the format {provider!r}: changes are read from parquet only",
            table=plan.table,
        )


def _check_names(schema: StructType, uri: str) -> None:
    """Refuse a table with a column that has a name of `CHANGE_COLUMNS`, ignoring case."""
    taken = columns_named_as_changes(schema)
    if taken:
        raise InvalidTableError(
            f"the table has the columns {taken}, whose names are those of the columns of a change; "
            "rename them",
            table=uri,
        )
