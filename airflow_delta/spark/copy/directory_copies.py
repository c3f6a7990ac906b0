"""Copies that are directories of files: Parquet, CSV or JSON.

A copy is written beside its place, at ``<place>.unfinished-<uuid>``. Then what is at the place is renamed
to ``<place>.replaced-<uuid>``, and looked at once more where nobody else writes; the new copy is renamed to
the place, and the old one deleted. A try that fails puts back what was there. One that is killed leaves:

=======================  ====================================  ==========================================
killed while             in a file system                      in an object store, which renames by
                                                               copying
=======================  ====================================  ==========================================
the copy is written      what was there; unfinished            the same
the old one is renamed   (that takes no time)                  some of the old one, the rest replaced;
                                                               unfinished
between the two          nothing; the old one replaced, the    the same
                         new one unfinished
the new one is renamed   (that takes no time)                  some of the new one, the rest unfinished;
                                                               the old one replaced
the old one is deleted   the new one; what is left of the      the same
                         old one replaced
=======================  ====================================  ==========================================

The next copy puts that right but for one case: files without a marker are nobody's, and it refuses to
replace them. Some of a copy in an object store may be such, for it copies in any order. Nobody reads what
lies beside the place. ``.unfinished-`` may be deleted, and ``.replaced-`` once there is a copy at the
place: until then it may be the only one.

**Several at once.** Of two copies that come to a place, the later one finds the other there, or in what it
has renamed, and follows the same rules. In an object store the files of two may come to lie among one
another; whoever finds that takes its own away.

What the copy is a copy of says a file in it; see `copy_marker`.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from typing import TYPE_CHECKING

from airflow_delta.copies.deletion_list import DELETING, is_unfinished
from airflow_delta.copies.formats import TEXT_FORMATS, check_columns, is_part, is_sum
from airflow_delta.copies.lease import check_not_being_deleted
from airflow_delta.copies.marker import MARKER, CopyMarker, write_marker
from airflow_delta.copies.request import (
    CopyResult,
    check_place,
    held_marker,
    now_ms,
    refusal,
)
from airflow_delta.engine.errors import StorageError
from airflow_delta.engine.model.paths import resolve
from airflow_delta.engine.model.schema import VOID
from airflow_delta.engine.storage.location import open_storage
from airflow_delta.spark.copy.text_files import write_text_files
from airflow_delta.spark.reader.columns import quoted
from airflow_delta.spark.reader.data_files import list_data_files, write_data_files
from airflow_delta.spark.reader.read import read_snapshot
from airflow_delta.spark.runtime.hadoop_directories import HadoopDirectories
from airflow_delta.spark.runtime.locations import hadoop_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from airflow_delta.copies.request import CopyRequest
    from airflow_delta.copies.source import CopySource
    from airflow_delta.engine.storage.base import Storage

__all__ = ["DirectoryCopy"]

# The list of a deletion may come at any time, and is looked for by itself.
_OWN = (MARKER, DELETING)


class DirectoryCopy:
    """One copy in the making.

    Args:
        spark: the session.
        request: the copy; its format isn't ``delta``.
        source: what is to be copied.
        storage_options: credentials and settings with which the engine reads the table, and writes the
            marker. Spark reaches both places with those of its own configuration.
    """

    def __init__(
        self,
        spark: SparkSession,
        request: CopyRequest,
        source: CopySource,
        storage_options: Mapping[str, str] | None,
    ) -> None:
        self._spark = spark
        self._request = request
        self._copied = source
        self._source = source.snapshot
        self._options = storage_options

    def make(self) -> CopyResult:
        """Put a directory of files in the place of the target.

        Raises:
            InvalidArgumentError: the format can't hold a column, or something is at the target that must
                stay.
            CopyBeingDeletedError: an expired copy is being deleted there.
            StorageError: another copy came to the target at the same time, or the store failed.
            DeltaError: the table can't be read.
            PySparkException: Spark's own errors.
        """
        check_columns(self._request.format, self._source.schema, table=self._source.table)
        target = open_storage(self._request.target_uri, self._options)
        self._check_target(target)
        place = hadoop_path(_location(target))
        directories = HadoopDirectories(self._spark, place)
        if directories.is_file(place):
            raise refusal(self._request, "it is a file")
        suffix = f".unfinished-{uuid.uuid4()}"
        unfinished = open_storage(f"{target.root}{suffix}", self._options)
        try:
            result = self._write(unfinished)
            written = {info.path for info in unfinished.walk("")}
            marker = unfinished.read(MARKER)
            # Looked at again: writing took its time, and another run may have been faster.
            self._check_target(target)
            with self._moved_away(directories, place):
                try:
                    directories.rename(f"{place}{suffix}", place)
                    self._check_alone(target, written)
                except BaseException:
                    _take_away(target, written, marker)
                    raise
        finally:
            directories.delete(f"{place}{suffix}")
        # In a store where renaming takes its time the list may have come to the place itself.
        check_not_being_deleted(self._request, target)
        return result

    def _write(self, unfinished: Storage) -> CopyResult:
        """Write the files and the marker into a directory of their own."""
        request, path = self._request, hadoop_path(_location(unfinished))
        rows = read_snapshot(
            self._spark,
            request.table_uri,
            request.version,
            storage_options=self._options,
            allowed_outside=self._copied.table.allowed_outside,
        )
        if request.format in TEXT_FORMATS:
            num_rows = write_text_files(rows, path, request.format)
            names = [info.name for info in unfinished.walk("")]
            num_files = sum(name.endswith(f".{request.format}") for name in names)
        else:
            # A void column has no values, and parquet has no type for it.
            kept = [quoted(field.name) for field in self._source.schema if field.data_type != VOID]
            write_data_files(rows.select(kept), path)
            files = list_data_files(unfinished, "")
            num_rows, num_files = sum(file.num_rows for file in files), len(files)
        made_at_ms = now_ms()
        marker = CopyMarker(
            request.table_uri,
            self._copied.id,
            request.version,
            open_storage(request.target_uri, self._options).root,
            request.format,
            num_rows,
            num_files,
            made_at_ms=made_at_ms,
            expires_at_ms=request.expires_at_ms(made_at_ms),
        )
        write_marker(unfinished, marker)
        return CopyResult(num_rows, num_files, expires_at_ms=marker.expires_at_ms)

    def _check_target(self, target: Storage) -> None:
        request = self._request
        check_not_being_deleted(request, target)
        marker = held_marker(request, target)
        if any(True for _ in target.list("_delta_log")):
            raise refusal(
                request, f"it holds a Delta table, and this is a copy as {request.format}"
            )
        check_place(request, self._copied, target, is_leftover=is_unfinished)
        if marker is None:
            return
        parts = 0
        for info in target.walk(""):
            if is_part(info.path):
                parts += 1
            elif not (info.path in _OWN or is_sum(info.path) or is_unfinished(info.path)):
                raise refusal(request, f"it holds {info.path}, which no copy has written")
        if marker.num_files is not None and parts > marker.num_files:
            raise refusal(request, f"it holds {parts} files, and the copy wrote {marker.num_files}")

    @contextmanager
    def _moved_away(self, directories: HadoopDirectories, place: str) -> Iterator[None]:
        """Have nothing at a place, and delete for good what was there; after a failure it is put back."""
        if not directories.exists(place):
            yield
            return
        suffix = f".replaced-{uuid.uuid4()}"
        old = f"{place}{suffix}"
        directories.rename(place, old)
        try:
            # What came to the place since it was looked at came with it: a newer copy, or the list of
            # somebody who has decided to delete the old one.
            root = open_storage(self._request.target_uri, self._options).root
            self._check_target(open_storage(f"{root}{suffix}", self._options))
            yield
        except BaseException as error:
            self._put_back(directories, old, place, error)
            raise
        directories.delete(old)

    def _put_back(
        self, directories: HadoopDirectories, old: str, place: str, failure: BaseException
    ) -> None:
        try:
            directories.rename(old, place)
        except StorageError as error:
            raise StorageError(
                f"the target {self._request.target_uri} isn't replaced: {failure}. What was there is at "
                f"{old} now, because something else has come to the place, or the store failed ({error}). "
                "Delete it once there is a copy at the target",
                table=self._request.table_uri,
                target=self._request.target_uri,
                path=old,
            ) from failure

    def _check_alone(self, target: Storage, written: AbstractSet[str]) -> None:
        """Check that no other copy has come to the place at the same time."""
        there = {info.path for info in target.walk("") if not is_unfinished(info.path)}
        strange = there - written - {DELETING}
        # Without any of ours it is a whole copy that has replaced this one already.
        if strange and there & written - {MARKER}:
            raise StorageError(
                f"another copy came to the target {self._request.target_uri} at the same time: it holds "
                f"{min(strange)}, which this one hasn't written; this one is taken away again. Try again",
                table=self._request.table_uri,
                target=self._request.target_uri,
            )


def _take_away(target: Storage, written: AbstractSet[str], marker: bytes) -> None:
    """Delete the files of one copy from a place, and those of no other copy that may be among them."""
    ours = {info.path for info in target.walk("")} & written
    if ours == {MARKER} or (MARKER in ours and target.read(MARKER) != marker):
        ours -= {MARKER}
    target.delete(sorted(ours))


def _location(storage: Storage) -> str:
    return resolve(storage.root, "").rstrip("/")
