"""Copies of one version of a table, at a place of their own: as parquet, or as a Delta table.

A copy replaces what an earlier copy of the same table has left at its place, and nothing else. So a
copy says what it is a copy of: a parquet copy in a file of its own, `MARKER`, which readers skip for
its name; a Delta copy by a transaction identifier, see `copy_rules`. What is there already decides:

=======================================  ========================================================
nothing, or an empty directory           the copy is made
a copy of the same table and version,    it is replaced
or of an earlier version
a copy of a later version                refused, unless asked for: a late run of a DAG must not
                                         undo the work of the run after it
a Delta copy, and the source has other   refused: a Delta copy keeps what it began with; parquet
columns or partition columns by now      copies follow any schema
anything else                            refused
=======================================  ========================================================

A parquet copy is written beside its place and put there by renaming, so that the place never holds
half of one. (Object stores rename by copying; there readers may find the place empty for a while.)
A run that is killed may leave ``<place>.unfinished-<uuid>`` or ``<place>.replaced-<uuid>`` beside it,
which nobody reads and anybody may delete.

A Delta copy is one commit. What the target holds is judged by the version that the commit is based
on; a copy that another run commits meanwhile is a conflict. A retry with the transaction identifier
of an earlier try finds that try's commit, and makes none if that one copied the same version.

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
from airflow_delta.spark.copy_rules import (
    check_delta_target,
    check_format,
    check_held,
    copied_by,
    copy_app_id,
    refusal,
)
from airflow_delta.spark.data_files import list_data_files, write_data_files
from airflow_delta.spark.hadoop_directories import HadoopDirectories
from airflow_delta.spark.locations import hadoop_path
from airflow_delta.spark.read import read_snapshot
from airflow_delta.spark.writing import is_in_write_directory, write_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from airflow_delta.engine.storage.base import Storage
    from airflow_delta.spark.copy_rules import CopyRequest

__all__ = ["MARKER", "CopyResult", "copy_snapshot"]

MARKER = "_airflow_delta_copy.json"
"""The file of a parquet copy that says what it is a copy of."""


@dataclass(frozen=True, slots=True)
class CopyResult:
    """A copy that was made, by this call or by an earlier try of it.

    Attributes:
        num_rows: how many rows it has; None where the statistics of an earlier try's don't tell.
        num_files: how many files.
        committed_version: of a Delta copy, the version of the target that has the rows.
    """

    num_rows: int | None
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
    check_format(request.format)
    _check_apart(request, storage_options)
    copy = _Copy(spark, request, storage_options)
    return copy.to_parquet() if request.format == "parquet" else copy.to_delta()


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
        request, source = self._request, self._source
        target = DeltaTable(request.target_uri, self._options)
        txn = request.txn
        if not target.exists():
            self._check_empty(target.storage)
        elif txn and (commit := target.version_of_transaction(*txn)) is not None:
            done = copied_by(request, source, target, commit)
            if done is not None:
                return CopyResult(done.num_rows, done.num_files, commit)
            # An earlier run of the task has copied another version. Its identifier is taken; the
            # mark still keeps this copy apart from older and newer ones.
            txn = None
        result = write_table(
            self._rows(),
            request.target_uri,
            mode="overwrite",
            partition_by=source.metadata.partition_columns,
            txn=txn,
            marks={copy_app_id(source.metadata.id): request.version},
            check=lambda held: check_delta_target(request, source, held),
            storage_options=self._options,
        )
        if not result.written:
            # Another try was faster, after the look above. What it has copied is to be looked at.
            return self.to_delta()
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
            raise refusal(self._request, f"its {MARKER} can't be read") from error
        check_held(self._request, held)

    def _check_empty(self, target: Storage) -> None:
        for info in target.walk(""):
            if is_in_write_directory(info.path):
                # Left by an earlier try of a Delta copy, which was killed before its first commit.
                continue
            raise refusal(self._request, f"it holds {info.path}, which no earlier copy has written")


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
