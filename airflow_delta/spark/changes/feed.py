"""`append_changes`: the changes of a range of versions, appended to a target once.

A Delta target gets them in one commit, with the identifiers that say which versions it tells the
changes of (`airflow_delta.change_feeds.progress`). Whoever commits another range meanwhile sets one of the
same identifiers, which is a conflict.

A parquet target gets a directory for the range, which is written beside its place, and put there by
renaming. Where that happens at once, in file systems, the range has its marker by then, and is whole or
isn't there. Object stores rename by copying file by file, in any order: there the marker comes last, and
a range is to be read once it has it. What a run that was killed between the two has left without a marker
is deleted before any of its versions are appended again. Beside the ranges such a run may leave a directory
``_unfinished-<uuid>``, which readers skip and anybody may delete.

No run can tell a dead one from one that still copies. So what it deletes may be the work of another run
that goes on; and whose range is complete looks afterwards whether the files are its own, all of them and no
others, and whether no other complete range has some of its versions. Of runs that meet so one gives way or
both do: it takes its marker and its files back, and fails with a conflict; a retry finds what is there.

Either way a run that is killed or fails leaves the target as it was, for readers, and a retry does what
is still to be done.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, Observation, SparkSession
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
    identifiers_of,
    told_before,
    told_before_table,
)
from airflow_delta.change_feeds.request import (
    CHANGE_KINDS,
    FeedRequest,
    check_apart,
    check_feed_format,
)
from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import CommitConflictError, ObjectExistsError, StorageError
from airflow_delta.engine.model.paths import resolve
from airflow_delta.engine.model.schema import VOID
from airflow_delta.spark.changes.read import CHANGE_COLUMNS, read_changes
from airflow_delta.spark.reader.columns import quoted
from airflow_delta.spark.reader.data_files import write_data_files
from airflow_delta.spark.reader.read import read_snapshot
from airflow_delta.spark.runtime.hadoop_directories import HadoopDirectories
from airflow_delta.spark.runtime.locations import hadoop_path
from airflow_delta.spark.writer.write import write_table

if TYPE_CHECKING:
    from airflow_delta.engine import Snapshot
    from airflow_delta.engine.storage.base import Storage

__all__ = ["FeedResult", "append_changes"]

_CHANGE_TYPE, _COMMIT_VERSION, _ = CHANGE_COLUMNS

_RENAMED_AT_ONCE = frozenset({"file", "hdfs"})
"""The schemes of the file systems in which a directory is renamed in one step, files and all.

Not ``viewfs``, which may have an object store behind it.
"""


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
    allowed_outside: Sequence[str] = (),
) -> FeedResult:
    """Append the changes of a range to a target that doesn't have them yet.

    A Delta target that isn't there is created, with the columns of the changes, and keeps these
    columns: a range with other ones is refused, until they are added to it. Parquet targets follow any.

    Raises:
        InvalidArgumentError: the format is unknown or not that of the target, table and target lie inside
            one another, or the target tells a part of the range or the changes of another table, may
            forget what it tells, or is a Delta table with other columns.
        CommitConflictError: another run appends to the target at the same time.
        DeltaError: the changes can't be read, see `read_changes`, or can't be committed.
        PySparkException: Spark's own errors.
    """
    check_feed_format(request.format)
    source = DeltaTable(request.table_uri, storage_options, allowed_outside=allowed_outside)
    target = DeltaTable(request.target_uri, storage_options)
    check_apart(request, source.storage, target.storage)
    feed = _Feed(spark, request, source, storage_options)
    return feed.to_files(target) if request.format == "parquet" else feed.to_table(target)


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
        self._options = storage_options

    @cached_property
    def _source_id(self) -> str:
        """As of the range: a table that is replaced has another one from there on.

        Not asked for where nothing is appended: cleanup may have taken the version by then.
        """
        return self._source.snapshot(self._request.end).metadata.id

    def to_table(self, target: DeltaTable) -> FeedResult:
        """Append to a Delta table, or create it."""
        request = self._request
        try:
            told = told_before(request, self._source, target)
            if told is None:
                return self._told(target)
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

    def to_files(self, table: DeltaTable) -> FeedResult:
        """Add a directory to a directory of parquet files."""
        request, target = self._request, table.storage
        directory = range_directory(request.start, request.end)
        if told_before(request, self._source, table) is None:
            return FeedResult(earlier_append(request, table).counts, appended=False)
        unfinished = f"{UNFINISHED}{uuid.uuid4()}"
        place = self._path(target, unfinished)
        directories = HadoopDirectories(self._spark, place)
        # A void column has no values, and parquet has no type for it.
        changes = self._changes()
        kept = [f.name for f in changes.schema.fields if f.dataType.typeName() != VOID.name]
        seen, rows = self._observed(changes.select([quoted(name) for name in kept]))
        try:
            write_data_files(rows, place)
            files = files_read_in(target, unfinished)
            # Looked at again: writing took its time, and another run may have been faster.
            if told_before(request, self._source, table) is None:
                return self.to_files(table)
            self._put(target, directories, (unfinished, directory), self._marker(files, seen.get))
        finally:
            directories.delete(place)
        return FeedResult(seen.get, len(files))

    def _put(
        self,
        target: Storage,
        directories: HadoopDirectories,
        names: tuple[str, str],
        marker: Mapping[str, Any],
    ) -> None:
        """Rename the directory of a range, so that it is complete.

        Raises:
            CommitConflictError: another run appends some of its versions at the same time.
        """
        unfinished, directory = names
        place, finished = self._path(target, unfinished), self._path(target, directory)
        content = _bytes(marker)
        at_once = place.partition(":")[0] in _RENAMED_AT_ONCE
        if at_once:
            target.replace(f"{unfinished}/{MARKER}", content)
        found = range_directories(self._request, target)
        # Also an empty one, which isn't listed; but no range that has become complete meanwhile.
        left = {directory, *incomplete_ranges(self._request, found)} - {*complete_ranges(found)}
        for name in left:
            directories.delete(self._path(target, name))
        try:
            directories.rename(place, finished)
        except StorageError:
            _take_back(target, directory, marker)
            raise
        path = f"{directory}/{MARKER}"
        if not at_once and files_read_in(target, directory) == marker["files"]:
            _create(target, path, content)
        found = range_directories(self._request, target)
        whole = directory in found and found[directory].sizes == marker["files"]
        others = overlapping(self._request, found)
        if whole and not others and target.read_many([path]) == [content]:
            return
        _take_back(target, directory, marker)
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
        """The changes, which are counted by kind while they are written."""
        seen = Observation()
        kinds = [F.count_if(F.col(_CHANGE_TYPE) == kind).alias(kind) for kind in CHANGE_KINDS]
        return seen, changes.observe(seen, *kinds)

    def _check(self, held: Snapshot) -> None:
        if told_before_table(self._request, self._source, held) is None:
            raise _AlreadyToldError

    def _told(self, target: DeltaTable) -> FeedResult:
        """What an earlier call has appended, counted where it is: its source may be gone by now."""
        request = self._request
        commit = earlier_append(request, target).committed_version
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

    def _marker(self, files: Mapping[str, int], counts: Mapping[str, int]) -> Mapping[str, Any]:
        return {
            "table_uri": self._request.table_uri,
            "table_id": self._source_id,
            "start_version": self._request.start,
            "end_version": self._request.end,
            "counts": counts,
            "files": files,
        }


def _bytes(marker: Mapping[str, Any]) -> bytes:
    return json.dumps(marker).encode()


def _take_back(target: Storage, directory: str, marker: Mapping[str, Any]) -> None:
    """Delete what one run has put into the directory of a range, and nothing of another run."""
    path = f"{directory}/{MARKER}"
    # The marker first: what has none isn't told. Files have names that no other run gives.
    if target.read_many([path]) == [_bytes(marker)]:
        target.delete([path])
    target.delete([f"{directory}/{name}" for name in marker["files"]])


def _create(target: Storage, path: str, content: bytes) -> None:
    """Write a marker, unless another run has: whose it is, is looked at by the caller."""
    if not target.capabilities.put_if_absent:
        # What the caller has looked at, and looks at again, has to do.
        target.replace(path, content)
        return
    with suppress(ObjectExistsError):
        target.create(path, content)
