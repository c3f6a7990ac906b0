"""`append_changes`: append the changes of a range of versions to a target, exactly once.

**A Delta target** gets them in one commit, with transaction identifiers that record the progress
(`airflow_delta.change_feeds.progress`).

**A Parquet target** gets a directory for the range (`airflow_delta.change_feeds.directories`):

1. Write the files to ``_unfinished-<uuid>``, which readers skip.
2. Delete incomplete ranges with the same versions, which killed runs have left.
3. Rename the directory. Its marker completes the range; readers must wait for it.
4. Check that the range has the files of this run only, and that no other complete range overlaps it. On a
   conflict, delete the marker and the files of this run, and fail.

For readers, a failed or killed run leaves the target as it was. A retry does the rest.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from airflow_delta.change_feeds.directories import (
    MARKER,
    UNFINISHED,
    complete_ranges,
    files_read_in,
    incomplete_ranges,
    overlapping,
    range_directories,
    range_directory,
)
from airflow_delta.change_feeds.earlier_append import earlier_append
from airflow_delta.change_feeds.progress import (
    load_progress,
    load_table_progress,
    transaction_identifiers,
)
from airflow_delta.change_feeds.request import (
    CHANGE_KINDS,
    FeedRequest,
    check_apart,
    check_feed_format,
)
from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import CommitConflictError, ObjectExistsError, StorageError
from airflow_delta.engine.features.change_columns import CHANGE_TYPE, COMMIT_VERSION
from airflow_delta.engine.model.paths import resolve
from airflow_delta.engine.model.schema import VOID
from airflow_delta.spark.changes.read import read_changes
from airflow_delta.spark.ingest.write import write_table
from airflow_delta.spark.reader.columns import quoted
from airflow_delta.spark.reader.data_files import write_data_files
from airflow_delta.spark.reader.read import read_snapshot
from airflow_delta.spark.runtime.hadoop_directories import HadoopDirectories
from airflow_delta.spark.runtime.locations import RENAMED_AT_ONCE, hadoop_path
from airflow_delta.spark.writer.request import WriteRequest

if TYPE_CHECKING:
    from airflow_delta.engine import Snapshot
    from airflow_delta.engine.storage.base import Storage

__all__ = ["FeedResult", "append_changes"]


@dataclass(frozen=True, slots=True)
class FeedResult:
    """A range of changes that this call or an earlier one has appended to the target.

    Attributes:
        counts: the number of changes of each kind; None if a Parquet target has the versions in
            other ranges.
        num_files: the number of files that this call added.
        appended: whether this call appended the range, even if it contains no changes; False if the target
            had it already.
        committed_version: the version of a Delta target that has the changes.
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
    allowed_outside: Sequence[str] = (),
) -> FeedResult:
    """Append the changes of a range to a target, unless it has them already.

    A Delta target is created with the columns of the changes if it doesn't exist. If the table gets
    new columns later, they must be added to the target first. Parquet targets accept any columns.

    Raises:
        InvalidArgumentError: the format is unknown or not that of the target; table and target lie inside
            one another; the target has a part of the range or the changes of another table; its record of
            the progress may expire; or it is a Delta table with other columns.
        CommitConflictError: another run is appending to the target.
        DeltaError: the changes can't be read, see `read_changes`, or can't be committed.
        PySparkException: Spark's own errors.
    """
    check_feed_format(request.format)
    source = DeltaTable(request.table_uri, storage_options, allowed_outside=allowed_outside)
    target = DeltaTable(request.target_uri, storage_options)
    check_apart(request, source.storage, target.storage)
    feed = _Feed(spark, request, source, storage_options)
    return feed.to_files(target) if request.format == "parquet" else feed.to_table(target)


class _AlreadyAppendedError(Exception):
    """The target has the whole range."""


class _Feed:
    """Appends one range to its target."""

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
        self._options = storage_options

    @cached_property
    def _source_id(self) -> str:
        """The table id at the end of the range; a replaced table gets another one.

        Computed only if something is appended: otherwise a cleanup may have deleted the version.
        """
        return self._source.snapshot(self._request.end).metadata.id

    def to_table(self, target: DeltaTable) -> FeedResult:
        """Append to a Delta table, or create it."""
        request = self._request
        try:
            progress = load_progress(request, self._source, target)
            if progress is None:
                return self._earlier_result(target)
            seen, rows = self._observed(self._changes())
            result = write_table(
                rows,
                WriteRequest(
                    DeltaTable(request.target_uri, self._options),
                    mode="append",
                    # A concurrent feed sets one of the same application ids, which makes the commit fail.
                    transactions=transaction_identifiers(request, progress, self._source_id),
                    # Checks the progress again, at the version that the commit is based on.
                    check=self._check,
                ),
            )
        except _AlreadyAppendedError:
            return self._earlier_result(target)
        # If there are no rows to shuffle, Spark leaves the counting out of the plan.
        counts = seen.get if result.num_rows else dict.fromkeys(CHANGE_KINDS, 0)
        return FeedResult(counts, result.num_files, committed_version=result.version)

    def to_files(self, table: DeltaTable) -> FeedResult:
        """Append to a directory of Parquet files."""
        request, target = self._request, table.storage
        directory = range_directory(request.start, request.end)
        if load_progress(request, self._source, table) is None:
            return FeedResult(earlier_append(request, table).counts, appended=False)
        unfinished = f"{UNFINISHED}{uuid.uuid4()}"
        path = self._path(target, unfinished)
        directories = HadoopDirectories(self._spark, path)
        # A void column has no values, and Parquet has no type for it.
        changes = self._changes()
        kept = [f.name for f in changes.schema.fields if f.dataType.typeName() != VOID.name]
        seen, rows = self._observed(changes.select([quoted(name) for name in kept]))
        try:
            write_data_files(rows, path)
            files = files_read_in(target, unfinished)
            # Checked again: another run may have finished while this one wrote.
            if load_progress(request, self._source, table) is None:
                return self.to_files(table)
            self._rename(
                target, directories, (unfinished, directory), self._marker(files, seen.get)
            )
        finally:
            directories.delete(path)
        return FeedResult(seen.get, len(files))

    def _rename(
        self,
        target: Storage,
        directories: HadoopDirectories,
        names: tuple[str, str],
        marker: Mapping[str, Any],
    ) -> None:
        """Rename the directory of a range, and complete the range.

        Raises:
            CommitConflictError: another run is appending some of its versions.
        """
        unfinished, directory = names
        path, finished = self._path(target, unfinished), self._path(target, directory)
        content = _bytes(marker)
        # Then the directory is renamed with its marker. An object store copies file by file, so there the
        # marker is written last.
        at_once = path.partition(":")[0] in RENAMED_AT_ONCE
        if at_once:
            target.replace(f"{unfinished}/{MARKER}", content)
        found = range_directories(self._request, target)
        # Also the range's own directory: it may be empty, and then isn't listed. But no range that has been
        # completed in the meantime.
        left = {directory, *incomplete_ranges(self._request, found)} - {*complete_ranges(found)}
        for name in left:
            directories.delete(self._path(target, name))
        try:
            directories.rename(path, finished)
        except StorageError:
            _delete_own_files(target, directory, marker)
            raise
        marker_path = f"{directory}/{MARKER}"
        if not at_once and files_read_in(target, directory) == marker["files"]:
            _create_marker(target, marker_path, content)
        # A run that was thought dead may have copied files, too.
        found = range_directories(self._request, target)
        whole = directory in found and found[directory].sizes == marker["files"]
        others = overlapping(self._request, found)
        if whole and not others and target.read_many([marker_path]) == [content]:
            return
        _delete_own_files(target, directory, marker)
        raise CommitConflictError(
            f"{self._request.target_uri}: another run has written {others[0] if others else directory} "
            f"while this one wrote {directory}, whose own files are deleted again; let only one run be "
            "active at a time, and try again",
            table=self._request.table_uri,
        )

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
            allowed_outside=self._source.allowed_outside,
        )

    def _observed(self, changes: DataFrame) -> tuple[Observation, DataFrame]:
        """Count the changes by kind while they are written."""
        seen = Observation()
        return seen, changes.observe(seen, *_counts_by_kind())

    def _check(self, held: Snapshot) -> None:
        if load_table_progress(self._request, self._source, held) is None:
            raise _AlreadyAppendedError

    def _earlier_result(self, target: DeltaTable) -> FeedResult:
        """The result of an earlier call, counted in the target: the source may be gone by now."""
        request = self._request
        commit = earlier_append(request, target).committed_version
        rows = read_snapshot(
            self._spark,
            request.target_uri,
            columns=[CHANGE_TYPE],
            predicate=F.col(COMMIT_VERSION).between(request.start, request.end),
            storage_options=self._options,
        )
        (found,) = rows.agg(*_counts_by_kind()).collect()
        return FeedResult(found.asDict(), appended=False, committed_version=commit)

    def _marker(self, files: Mapping[str, int], counts: Mapping[str, int]) -> Mapping[str, Any]:
        return {
            "table_uri": self._request.table_uri,
            "table_id": self._source_id,
            "start_version": self._request.start,
            "end_version": self._request.end,
            "counts": counts,
            "files": files,
        }


def _counts_by_kind() -> list[Column]:
    """The number of changes of each kind."""
    return [F.count_if(F.col(CHANGE_TYPE) == kind).alias(kind) for kind in CHANGE_KINDS]


def _bytes(marker: Mapping[str, Any]) -> bytes:
    return json.dumps(marker).encode()


def _delete_own_files(target: Storage, directory: str, marker: Mapping[str, Any]) -> None:
    """Delete the files of this run from the directory of a range, and nothing of another run."""
    path = f"{directory}/{MARKER}"
    # The marker first: a range without it doesn't count. The names of the files are unique to this run.
    if target.read_many([path]) == [_bytes(marker)]:
        target.delete([path])
    target.delete([f"{directory}/{name}" for name in marker["files"]])


def _create_marker(target: Storage, path: str, content: bytes) -> None:
    """Write a marker, unless another run has; the caller checks whose it is."""
    if not target.capabilities.put_if_absent:
        # The checks of the caller, before and after, must be enough.
        target.replace(path, content)
        return
    with suppress(ObjectExistsError):
        target.create(path, content)
