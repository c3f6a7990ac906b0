"""`append_changes`: the changes of a range of versions, appended to a target once.

A Delta target gets them in one commit, with the identifier that says up to which version it tells the
changes (`airflow_delta.spark.changes_rules`). Whoever commits another range meanwhile sets the same
identifier, which is a conflict.

A parquet target gets a directory for the range. It is written beside its place, put there by renaming,
and then marked as complete. File systems rename at once; object stores copy file by file, so that
there a range is to be read once it has its marker. A run that is killed may leave a directory
``_unfinished-<uuid>``, which readers skip and anybody may delete.

Either way a run that is killed or fails leaves the target as it was, for readers, and a retry does what
is still to be done.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.model.paths import resolve
from airflow_delta.engine.model.schema import VOID
from airflow_delta.spark.changes import CHANGE_COLUMNS, read_changes
from airflow_delta.spark.changes_rules import (
    CHANGE_KINDS,
    MARKER,
    UNFINISHED,
    FeedRequest,
    check_apart,
    check_feed_format,
    feed_app_id,
    is_new,
    marker_of,
    range_directory,
    told_by_files,
    told_by_table,
)
from airflow_delta.spark.columns import quoted
from airflow_delta.spark.data_files import list_data_files, write_data_files
from airflow_delta.spark.hadoop_directories import HadoopDirectories
from airflow_delta.spark.locations import hadoop_path
from airflow_delta.spark.read import read_snapshot
from airflow_delta.spark.writing import write_table

if TYPE_CHECKING:
    from airflow_delta.engine import Snapshot
    from airflow_delta.engine.storage.base import Storage

__all__ = ["FeedResult", "append_changes"]

_CHANGE_TYPE, _COMMIT_VERSION, _ = CHANGE_COLUMNS


@dataclass(frozen=True, slots=True)
class FeedResult:
    """A range of changes that is at the target, by this call or an earlier one.

    Attributes:
        counts: how many changes of each kind; None where a parquet target has the range as a part
            of longer ones.
        num_files: how many files this call added.
        appended: False where the target had all of the range already.
        committed_version: of a Delta target, its version with the changes.
    """

    counts: Mapping[str, int] | None
    num_files: int = 0
    appended: bool = True
    committed_version: int | None = None


def append_changes(
    spark: SparkSession,
    request: FeedRequest,
    *,
    storage_options: Mapping[str, str] | None = None,
) -> FeedResult:
    """Append the changes of a range to a target that doesn't have them yet.

    A Delta target that isn't there is created, with the columns of the changes, and keeps these
    columns: a range with other ones is refused. Parquet targets follow any.

    Raises:
        InvalidArgumentError: the format is unknown, table and target lie inside one another, or the
            target tells a part of the range or the changes of another table.
        ConstraintViolationError: a Delta target has other columns.
        CommitConflictError: another run appends to a Delta target at the same time.
        DeltaError: the changes can't be read, see `read_changes`, or can't be committed.
        PySparkException: Spark's own errors.
    """
    check_feed_format(request.format)
    source = DeltaTable(request.table_uri, storage_options)
    target = DeltaTable(request.target_uri, storage_options)
    check_apart(request, source.storage, target.storage)
    feed = _Feed(spark, request, source.snapshot().metadata.id, storage_options)
    return feed.to_files(target.storage) if request.format == "parquet" else feed.to_table(target)


class _AlreadyToldError(Exception):
    """The target has all of the range."""


class _Feed:
    """One range on its way to its target."""

    def __init__(
        self,
        spark: SparkSession,
        request: FeedRequest,
        source_id: str,
        storage_options: Mapping[str, str] | None,
    ) -> None:
        self._spark = spark
        self._request = request
        self._source_id = source_id
        self._options = storage_options

    def to_table(self, target: DeltaTable) -> FeedResult:
        """Append to a Delta table, or create it."""
        request = self._request
        try:
            if target.exists():
                self._check_new(target.snapshot())
            seen, rows = self._observed(self._changes())
            result = write_table(
                rows,
                request.target_uri,
                mode="append",
                txn=(feed_app_id(self._source_id), request.end),
                # Again, at the version that the commit is based on.
                check=self._check_new,
                storage_options=self._options,
            )
        except _AlreadyToldError:
            return self._told(target)
        if not result.written:
            # Another run was faster, after the looks above.
            return self._told(target)
        return FeedResult(seen.get, result.num_files, committed_version=result.version)

    def to_files(self, target: Storage) -> FeedResult:
        """Add a directory to a directory of parquet files."""
        request = self._request
        directory = range_directory(request.start, request.end)
        if not self._is_new_to(target):
            marker = marker_of(request, target, directory)
            return FeedResult(marker["counts"] if marker else None, appended=False)
        unfinished = f"{UNFINISHED}{uuid.uuid4()}"
        place, finished = (
            hadoop_path(resolve(target.root, name)) for name in (unfinished, directory)
        )
        directories = HadoopDirectories(self._spark, place)
        # A void column has no values, and parquet has no type for it.
        changes = self._changes()
        kept = [f.name for f in changes.schema.fields if f.dataType.typeName() != VOID.name]
        seen, rows = self._observed(changes.select([quoted(name) for name in kept]))
        try:
            write_data_files(rows, place)
            num_files = len(list_data_files(target, unfinished))
            # Looked at again: writing took its time, and another run may have been faster.
            if not self._is_new_to(target):
                return self.to_files(target)
            # Without a marker: what a run that was killed has left.
            directories.delete(finished)
            directories.rename(place, finished)
        finally:
            directories.delete(place)
        self._mark(target, directory, seen.get)
        return FeedResult(seen.get, num_files)

    def _changes(self) -> DataFrame:
        request = self._request
        return read_changes(
            self._spark,
            request.table_uri,
            request.start,
            request.end,
            storage_options=self._options,
        )

    def _observed(self, changes: DataFrame) -> tuple[Observation, DataFrame]:
        """The changes, which are counted by kind while they are written."""
        seen = Observation()
        kinds = [F.count_if(F.col(_CHANGE_TYPE) == kind).alias(kind) for kind in CHANGE_KINDS]
        return seen, changes.observe(seen, *kinds)

    def _check_new(self, held: Snapshot) -> None:
        if not is_new(self._request, told_by_table(self._request, self._source_id, held)):
            raise _AlreadyToldError

    def _is_new_to(self, target: Storage) -> bool:
        return is_new(self._request, told_by_files(self._request, self._source_id, target))

    def _told(self, target: DeltaTable) -> FeedResult:
        """What an earlier call has appended, counted where it is: its source may be gone by now."""
        request = self._request
        commit = target.version_of_transaction(feed_app_id(self._source_id), request.end)
        rows = read_snapshot(
            self._spark,
            request.target_uri,
            columns=[_CHANGE_TYPE],
            predicate=F.col(_COMMIT_VERSION).between(request.start, request.end),
            storage_options=self._options,
        )
        found = {row[0]: row[1] for row in rows.groupBy(_CHANGE_TYPE).count().collect()}
        counts = {kind: found.get(kind, 0) for kind in CHANGE_KINDS}
        return FeedResult(counts, appended=False, committed_version=commit)

    def _mark(self, target: Storage, directory: str, counts: Mapping[str, int]) -> None:
        marker = {
            "table_uri": self._request.table_uri,
            "table_id": self._source_id,
            "start_version": self._request.start,
            "end_version": self._request.end,
            "counts": counts,
        }
        target.replace(f"{directory}/{MARKER}", json.dumps(marker).encode())
