"""Copies that are directories of files: Parquet, CSV or JSON.

A copy is written beside its place and put there by renaming, so that the place never holds half of one.
(Object stores rename by copying; there readers may find the place empty for a while.) A run that is
killed may leave ``<place>.unfinished-<uuid>`` or ``<place>.replaced-<uuid>`` beside it, which nobody reads
and anybody may delete.

What the copy is a copy of says a file in it; see `copy_marker`.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING

from airflow_delta.engine.model.paths import resolve
from airflow_delta.engine.model.schema import VOID
from airflow_delta.engine.storage.location import open_storage
from airflow_delta.spark.columns import quoted
from airflow_delta.spark.copy_formats import TEXT_FORMATS, check_columns, is_part, is_sum
from airflow_delta.spark.copy_marker import MARKER, CopyMarker, write_marker
from airflow_delta.spark.copy_rules import (
    CopyResult,
    check_place,
    held_marker,
    now_ms,
    refusal,
)
from airflow_delta.spark.copy_watch import check_not_being_deleted
from airflow_delta.spark.data_files import list_data_files, write_data_files
from airflow_delta.spark.hadoop_directories import HadoopDirectories
from airflow_delta.spark.locations import hadoop_path
from airflow_delta.spark.read import read_snapshot
from airflow_delta.spark.text_files import write_text_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from airflow_delta.engine.storage.base import Storage
    from airflow_delta.spark.copy_rules import CopyRequest
    from airflow_delta.spark.copy_source import CopySource

__all__ = ["DirectoryCopy"]


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
            DeltaError: the table can't be read.
            PySparkException: Spark's own errors.
        """
        check_columns(self._request.format, self._source.schema, table=self._source.table)
        target = open_storage(self._request.target_uri, self._options)
        self._check_target(target)
        place = hadoop_path(_location(target))
        directories = HadoopDirectories(self._spark, place)
        suffix = f".unfinished-{uuid.uuid4()}"
        try:
            result = self._write(open_storage(f"{target.root}{suffix}", self._options))
            # Looked at again: writing took its time, and another run may have been faster.
            self._check_target(target)
            self._exchange(directories, place, f"{place}{suffix}")
        finally:
            directories.delete(f"{place}{suffix}")
        return result

    def _write(self, unfinished: Storage) -> CopyResult:
        """Write the files and the marker into a directory of their own."""
        request, path = self._request, hadoop_path(_location(unfinished))
        rows = read_snapshot(
            self._spark, request.table_uri, request.version, storage_options=self._options
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
        check_place(request, self._copied, target)
        for info in target.walk("") if marker is not None else ():
            if not (info.path == MARKER or is_part(info.path) or is_sum(info.path)):
                raise refusal(request, f"it holds {info.path}, which no copy has written")

    def _exchange(self, directories: HadoopDirectories, place: str, finished: str) -> None:
        """Put a finished directory in the place of what is there."""
        target = open_storage(self._request.target_uri, self._options)
        suffix = f".replaced-{uuid.uuid4()}"
        old = f"{place}{suffix}"
        replaces = directories.exists(place)
        if replaces:
            directories.rename(place, old)
        try:
            if replaces:
                # Whoever decides meanwhile to delete the old copy has put his list there.
                moved = open_storage(f"{target.root}{suffix}", self._options)
                check_not_being_deleted(self._request, moved)
            directories.rename(finished, place)
        except BaseException:
            if replaces:
                directories.rename(old, place)
            raise
        if replaces:
            directories.delete(old)
        # In a store where renaming takes its time the list may have come to the place itself.
        check_not_being_deleted(self._request, target)


def _location(storage: Storage) -> str:
    return resolve(storage.root, "").rstrip("/")
