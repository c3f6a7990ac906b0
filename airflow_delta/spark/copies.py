"""Copies of one version of a table, at a place of their own: as parquet, or as a Delta table.

A copy replaces what an earlier copy of the same table has left at its place, and nothing else. So a
copy says what it is a copy of: a parquet copy in a file of its own, `MARKER`, which readers skip for
its name; a Delta copy by a transaction identifier, `copy_app_id`, whose version is that of the
source. What is there already decides:

=======================================  ========================================================
nothing, or an empty directory           the copy is made
a copy of the same table and version,    it is replaced
or of an earlier version
a copy of a later version                refused, unless asked for: a late run of a DAG must not
                                         undo the work of the run after it
anything else                            refused
=======================================  ========================================================

A parquet copy is written beside its place and put there by renaming, so that the place never holds
half of one. (Object stores rename by copying; there readers may find the place empty for a while.)
A run that is killed may leave ``<place>.unfinished-<uuid>`` or ``<place>.replaced-<uuid>`` beside it,
which nobody reads and anybody may delete.

The source is known by its table id, which stays when a table is moved.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import InvalidArgumentError, ObjectNotFoundError
from airflow_delta.engine.model.paths import resolve
from airflow_delta.engine.model.schema import VOID
from airflow_delta.engine.storage.location import open_storage
from airflow_delta.spark.columns import quoted
from airflow_delta.spark.data_files import list_data_files, write_data_files
from airflow_delta.spark.hadoop_directories import HadoopDirectories
from airflow_delta.spark.locations import hadoop_path
from airflow_delta.spark.read import read_snapshot
from airflow_delta.spark.writing import is_in_write_directory, write_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from airflow_delta.engine.storage.base import Storage

__all__ = ["FORMATS", "MARKER", "CopyRequest", "CopyResult", "copy_app_id", "copy_snapshot"]

FORMATS = ("parquet", "delta")
"""What a copy can be."""

MARKER = "_airflow_delta_copy.json"
"""The file of a parquet copy that says what it is a copy of."""


@dataclass(frozen=True, slots=True)
class CopyRequest:
    """A copy to be made.

    Attributes:
        table_uri: the table.
        version: its version.
        target_uri: where the copy goes.
        format: one of `FORMATS`.
        txn: application id and version of a Delta copy, by which a retry finds its commit.
        replace_newer: whether to replace a copy of a later version, too.
    """

    table_uri: str
    version: int
    target_uri: str
    format: str = "parquet"
    txn: tuple[str, int] | None = None
    replace_newer: bool = False


@dataclass(frozen=True, slots=True)
class CopyResult:
    """A copy that was made.

    Attributes:
        num_rows: how many rows it has.
        num_files: how many files.
        committed_version: of a Delta copy, the version of the target that has the rows.
    """

    num_rows: int
    num_files: int
    committed_version: int | None = None


def copy_snapshot(
    spark: SparkSession,
    request: CopyRequest,
    *,
    storage_options: Mapping[str, str] | None = None,
) -> CopyResult:
    """Copy a version of a table.

    Raises:
        InvalidArgumentError: the format is unknown, table and target lie inside one another, or
            something is at the target that must stay; see the module.
        DeltaError: the table can't be read, or a Delta copy can't be committed.
        PySparkException: Spark's own errors.
    """
    if request.format not in FORMATS:
        raise InvalidArgumentError(
            f"unknown format {request.format!r} of a copy: expected one of {', '.join(FORMATS)}"
        )
    _check_apart(request, storage_options)
    copy = _Copy(spark, request, storage_options)
    return copy.to_parquet() if request.format == "parquet" else copy.to_delta()


def copy_app_id(table_id: str) -> str:
    """The application id that marks a Delta copy of a table, whose id this is."""
    return f"airflow-delta:copy-of:{table_id}"


class _Copy:
    """One copy in the making."""

    def __init__(
        self,
        spark: SparkSession,
        request: CopyRequest,
        storage_options: Mapping[str, str] | None,
    ) -> None:
        self._spark = spark
        self._request = request
        self._options = storage_options
        self._source = DeltaTable(request.table_uri, storage_options).snapshot(request.version)

    def to_delta(self) -> CopyResult:
        """Overwrite the Delta table at the target, or create it."""
        request = self._request
        app_id = copy_app_id(self._source.metadata.id)
        target = DeltaTable(request.target_uri, self._options)
        if target.exists():
            earlier = target.version_of_transaction(*request.txn) if request.txn else None
            if earlier is not None:
                done = target.snapshot(earlier)
                return CopyResult(done.num_rows or 0, done.num_files, earlier)
            held = target.snapshot().transactions.get(app_id)
            self._check_held(None if held is None else held.version)
        else:
            self._check_empty(target.storage)
        result = write_table(
            self._rows(),
            request.target_uri,
            mode="overwrite",
            partition_by=self._source.metadata.partition_columns,
            txn=request.txn,
            marks={app_id: request.version},
            storage_options=self._options,
        )
        return CopyResult(result.num_rows, result.num_files, result.version)

    def to_parquet(self) -> CopyResult:
        """Put a directory of parquet files in the place of the target."""
        target = open_storage(self._request.target_uri, self._options)
        self._check_parquet_target(target)
        place = hadoop_path(_location(target))
        directories = HadoopDirectories(self._spark, place)
        suffix = f".unfinished-{uuid.uuid4()}"
        try:
            result = self._write_parquet(open_storage(f"{target.root}{suffix}", self._options))
            # Looked at again: writing took its time, and another run may have been faster.
            self._check_parquet_target(target)
            _exchange(directories, place, f"{place}{suffix}")
        finally:
            directories.delete(f"{place}{suffix}")
        return result

    def _write_parquet(self, unfinished: Storage) -> CopyResult:
        # A void column has no values, and parquet has no type for it.
        kept = [quoted(field.name) for field in self._source.schema if field.data_type != VOID]
        write_data_files(self._rows().select(kept), hadoop_path(_location(unfinished)))
        files = list_data_files(unfinished, "")
        result = CopyResult(sum(file.num_rows for file in files), len(files))
        marker = {
            "table_uri": self._request.table_uri,
            "table_id": self._source.metadata.id,
            "version": self._request.version,
            "num_rows": result.num_rows,
        }
        unfinished.replace(MARKER, json.dumps(marker).encode())
        return result

    def _rows(self) -> DataFrame:
        request = self._request
        return read_snapshot(
            self._spark, request.table_uri, request.version, storage_options=self._options
        )

    def _check_parquet_target(self, target: Storage) -> None:
        try:
            marker = json.loads(target.read(MARKER))
            ours = marker["table_id"] == self._source.metadata.id
            held = int(marker["version"]) if ours else None
        except ObjectNotFoundError:
            self._check_empty(target)
            return
        except (ValueError, LookupError, TypeError) as error:
            raise self._refusal(f"its {MARKER} can't be read") from error
        self._check_held(held)

    def _check_empty(self, target: Storage) -> None:
        for info in target.walk(""):
            if is_in_write_directory(info.path):
                # Left by an earlier try of a Delta copy, which was killed before its first commit.
                continue
            raise self._refusal(f"it holds {info.path}, which no earlier copy has written")

    def _check_held(self, version: int | None) -> None:
        """Check the version that the target is a copy of; None where it is no copy of this table."""
        if version is None:
            raise self._refusal("it holds no copy of this table")
        if version > self._request.version and not self._request.replace_newer:
            raise self._refusal(
                f"it holds a copy of version {version}, which is newer than version "
                f"{self._request.version} (replace_newer replaces it all the same)"
            )

    def _refusal(self, reason: str) -> InvalidArgumentError:
        return InvalidArgumentError(
            f"the target {self._request.target_uri} isn't replaced: {reason}; empty it, or choose "
            "another",
            table=self._request.table_uri,
            target=self._request.target_uri,
        )


def _exchange(directories: HadoopDirectories, place: str, finished: str) -> None:
    """Put a finished directory in the place of what is there."""
    old = f"{place}.replaced-{uuid.uuid4()}"
    replaces = directories.exists(place)
    if replaces:
        directories.rename(place, old)
    try:
        directories.rename(finished, place)
    except BaseException:
        if replaces:
            directories.rename(old, place)
        raise
    if replaces:
        directories.delete(old)


def _check_apart(request: CopyRequest, storage_options: Mapping[str, str] | None) -> None:
    table, target = (
        _real_location(open_storage(uri, storage_options))
        for uri in (request.table_uri, request.target_uri)
    )
    if f"{table}/".startswith(f"{target}/") or f"{target}/".startswith(f"{table}/"):
        raise InvalidArgumentError(
            f"the target {request.target_uri} of the copy and the table lie inside one another; "
            "choose a target elsewhere",
            table=request.table_uri,
            target=request.target_uri,
        )


def _location(storage: Storage) -> str:
    return resolve(storage.root, "").rstrip("/")


def _real_location(storage: Storage) -> str:
    """A location by which two spellings of one place are equal, as far as that can be told."""
    path = hadoop_path(_location(storage))
    local = path.removeprefix("file:")
    return f"file:{os.path.realpath(local)}" if local != path else path
