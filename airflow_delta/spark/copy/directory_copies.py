"""Write a copy as a directory of files: Parquet, CSV or JSON.

1. Write the copy, with its marker, to ``<target>.unfinished-<uuid>``.
2. Rename the old copy at the target to ``<target>.replaced-<uuid>``, and check it again there.
3. Rename the new copy to the target, and check that no other run wrote there.
4. Delete the old copy. If step 2 or 3 fails, rename it back.

An object store renames by copying file by file, in any order. A run that is killed while it does leaves
some files of the old or the new copy at the target. The next copy repairs that, unless the marker is
missing. docs/how-to/copy-a-version.md says which directories may be deleted then.
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
    check_location,
    load_target_marker,
    refusal,
)
from airflow_delta.engine.clock import now_ms
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

# A deletion may create its list at any time; `check_not_being_deleted` looks for it.
_OWN = (MARKER, DELETING)


class DirectoryCopy:
    """Makes one copy.

    Args:
        spark: the session.
        request: the copy; its format isn't ``delta``.
        source: the version to be copied.
        storage_options: credentials and settings with which the engine reads the table and writes
            the marker. Spark reads and writes the files with those of its own configuration.
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
        """Replace the target with a directory of files.

        Raises:
            InvalidArgumentError: the format can't hold a column, or the target holds something that
                a copy may not replace.
            CopyBeingDeletedError: an expired copy is being deleted there.
            StorageError: another run copied to the target at the same time, or the store failed.
            DeltaError: the table can't be read.
            PySparkException: Spark's own errors.
        """
        check_columns(self._request.format, self._source.schema, table=self._source.table)
        target = open_storage(self._request.target_uri, self._options)
        self._check_target(target)
        path = hadoop_path(_location(target))
        directories = HadoopDirectories(self._spark, path)
        if directories.is_file(path):
            raise refusal(self._request, "it is a file")
        suffix = f".unfinished-{uuid.uuid4()}"
        unfinished = open_storage(f"{target.root}{suffix}", self._options)
        try:
            result = self._write(unfinished)
            written = {info.path for info in unfinished.walk("")}
            marker = unfinished.read(MARKER)
            # Checked again: another run may have finished while this one wrote.
            self._check_target(target)
            with self._old_copy_moved(directories, path):
                try:
                    directories.rename(f"{path}{suffix}", path)
                    self._check_alone(target, written)
                except BaseException:
                    _delete_own_files(target, written, marker)
                    raise
        finally:
            directories.delete(f"{path}{suffix}")
        # An object store renames slowly: a deletion may have created its list in the meantime.
        check_not_being_deleted(self._request, target)
        return result

    def _write(self, unfinished: Storage) -> CopyResult:
        """Write the files and the marker into the unfinished directory."""
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
            # A void column has no values, and Parquet has no type for it.
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
        marker = load_target_marker(request, target)
        if any(True for _ in target.list("_delta_log")):
            raise refusal(
                request, f"it holds a Delta table, and this is a copy as {request.format}"
            )
        check_location(request, self._copied, target, is_leftover=is_unfinished)
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
    def _old_copy_moved(self, directories: HadoopDirectories, path: str) -> Iterator[None]:
        """Move the old copy away, and delete it at the end; after a failure move it back."""
        if not directories.exists(path):
            yield
            return
        suffix = f".replaced-{uuid.uuid4()}"
        old = f"{path}{suffix}"
        directories.rename(path, old)
        try:
            # Since the last check a newer copy, or the list of a deletion, may have arrived at the
            # target and been renamed with it.
            root = open_storage(self._request.target_uri, self._options).root
            self._check_target(open_storage(f"{root}{suffix}", self._options))
            yield
        except BaseException as error:
            self._move_back(directories, old, path, error)
            raise
        directories.delete(old)

    def _move_back(
        self, directories: HadoopDirectories, old: str, path: str, failure: BaseException
    ) -> None:
        try:
            directories.rename(old, path)
        except StorageError as error:
            raise StorageError(
                f"the target {self._request.target_uri} isn't replaced: {failure}. What was there is at "
                f"{old} now, because something else was written to the target, or the store failed "
                f"({error}). Delete it once there is a copy at the target",
                table=self._request.table_uri,
                target=self._request.target_uri,
                path=old,
            ) from failure

    def _check_alone(self, target: Storage, written: AbstractSet[str]) -> None:
        """Check that no other run has copied to the target at the same time."""
        there = {info.path for info in target.walk("") if not is_unfinished(info.path)}
        foreign = there - written - {DELETING}
        # If no file of ours is there, a whole other copy has replaced this one already.
        if foreign and there & written - {MARKER}:
            raise StorageError(
                f"another run copied to the target {self._request.target_uri} at the same time: it holds "
                f"{min(foreign)}, which this run hasn't written. This run's files are deleted again. Try "
                "again",
                table=self._request.table_uri,
                target=self._request.target_uri,
            )


def _delete_own_files(target: Storage, written: AbstractSet[str], marker: bytes) -> None:
    """Delete the files of this copy from the target, but not those of another copy."""
    ours = {info.path for info in target.walk("")} & written
    if ours == {MARKER} or (MARKER in ours and target.read(MARKER) != marker):
        ours -= {MARKER}
    target.delete(sorted(ours))


def _location(storage: Storage) -> str:
    return resolve(storage.root, "").rstrip("/")
