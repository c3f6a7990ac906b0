"""`append_changes`: the changes of a range of versions, appended to a target once.

A Delta target gets them in one commit, with the identifiers that say which versions it tells the
changes of (`airflow_delta.spark.changes_told`). Whoever commits another range meanwhile sets one of the
same identifiers, which is a conflict.

A parquet target gets a directory for the range, which is written beside its place, and put there by
renaming. Where that happens at once, in file systems, the range has its marker by then, and is whole or
isn't there. Object stores rename by copying file by file, in any order: there the marker comes last, and
a range is to be read once it has it. What a run that was killed between the two has left without a marker
is deleted before any of its versions are appended again. Beside the ranges such a run may leave a directory
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
    FeedRequest,
    check_apart,
    check_feed_format,
)
from airflow_delta.spark.changes_told import (
    MARKER,
    UNFINISHED,
    Told,
    check_lost,
    check_source,
    identifiers_of,
    incomplete_ranges,
    is_new,
    marker_of,
    range_directory,
    start_mark,
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

_RENAMED_AT_ONCE = frozenset({"file", "hdfs", "viewfs"})
"""The schemes of the file systems in which a directory is renamed in one step, files and all."""


@dataclass(frozen=True, slots=True)
class FeedResult:
    """A range of changes that is at the target, by this call or an earlier one.

    Attributes:
        counts: how many changes of each kind; None where a parquet target has the range in other
            ranges than this one.
        num_files: how many files this call added.
        appended: False where the target had all of the range already; true also of a range in which
            nothing changed, which the target keeps as told.
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
            target tells a part of the range or the changes of another table, or may forget what it tells.
        ConstraintViolationError: a Delta target has other columns.
        CommitConflictError: another run appends to a Delta target at the same time.
        DeltaError: the changes can't be read, see `read_changes`, or can't be committed.
        PySparkException: Spark's own errors.
    """
    check_feed_format(request.format)
    source = DeltaTable(request.table_uri, storage_options)
    target = DeltaTable(request.target_uri, storage_options)
    check_apart(request, source.storage, target.storage)
    feed = _Feed(spark, request, source, storage_options)
    return feed.to_files(target.storage) if request.format == "parquet" else feed.to_table(target)


class _AlreadyToldError(Exception):
    """The target has all of the range."""


class _Feed:
    """One range on its way to its target."""

    def __init__(
        self,
        spark: SparkSession,
        request: FeedRequest,
        source: DeltaTable,
        storage_options: Mapping[str, str] | None,
    ) -> None:
        self._spark = spark
        self._request = request
        self._source = source
        # As of the range: a table that is replaced has another one from there on.
        self._source_id = source.snapshot(request.end).metadata.id
        self._options = storage_options

    def to_table(self, target: DeltaTable) -> FeedResult:
        """Append to a Delta table, or create it."""
        request = self._request
        try:
            told = self._checked(target.snapshot()) if target.exists() else Told()
            seen, rows = self._observed(self._changes())
            result = write_table(
                rows,
                request.target_uri,
                mode="append",
                # Where they aren't those of the version that the commit is based on, it is a conflict.
                identifiers=identifiers_of(request, told, self._source_id),
                # Again, at that version.
                check=self._check,
                storage_options=self._options,
            )
        except _AlreadyToldError:
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
        place, finished = self._path(target, unfinished), self._path(target, directory)
        directories = HadoopDirectories(self._spark, place)
        # A void column has no values, and parquet has no type for it.
        changes = self._changes()
        kept = [f.name for f in changes.schema.fields if f.dataType.typeName() != VOID.name]
        seen, rows = self._observed(changes.select([quoted(name) for name in kept]))
        at_once = place.partition(":")[0] in _RENAMED_AT_ONCE
        try:
            write_data_files(rows, place)
            num_files = len(list_data_files(target, unfinished))
            if at_once:
                self._mark(target, unfinished, seen.get)
            # Looked at again: writing took its time, and another run may have been faster.
            if not self._is_new_to(target):
                return self.to_files(target)
            for left in {directory, *incomplete_ranges(request, target)}:
                directories.delete(self._path(target, left))
            directories.rename(place, finished)
        finally:
            directories.delete(place)
        if not at_once:
            self._mark(target, directory, seen.get)
        return FeedResult(seen.get, num_files)

    def _path(self, target: Storage, name: str) -> str:
        return hadoop_path(resolve(target.root, name))

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

    def _check(self, held: Snapshot) -> None:
        self._checked(held)

    def _checked(self, held: Snapshot) -> Told:
        """What a Delta target tells, which is nothing of the range."""
        told = told_by_table(self._request, held)
        check_source(self._request, told, self._source)
        if not is_new(self._request, told):
            raise _AlreadyToldError
        check_lost(self._request, told, held)
        return told

    def _is_new_to(self, target: Storage) -> bool:
        told = told_by_files(self._request, target)
        check_source(self._request, told, self._source)
        return is_new(self._request, told)

    def _told(self, target: DeltaTable) -> FeedResult:
        """What an earlier call has appended, counted where it is: its source may be gone by now."""
        request = self._request
        told = told_by_table(request, target.snapshot())
        (first,) = (first for first, last in told.ranges if first <= request.start <= last)
        commit = target.version_of_transaction(start_mark(first), request.end)
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
