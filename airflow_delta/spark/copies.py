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

The source is known by its table id, which stays when a table is moved.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import InvalidArgumentError, ObjectNotFoundError, RetentionError
from airflow_delta.engine.model.paths import encode_path, resolve
from airflow_delta.engine.model.schema import VOID
from airflow_delta.engine.storage.location import open_storage
from airflow_delta.spark.columns import quoted
from airflow_delta.spark.data_files import list_data_files, write_data_files
from airflow_delta.spark.locations import hadoop_path
from airflow_delta.spark.read import read_snapshot
from airflow_delta.spark.writing import write_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from airflow_delta.engine import Snapshot
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
        InvalidArgumentError: the format is unknown, or target and table lie inside one another.
        RetentionError: something is at the target that must stay; see the module.
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

    @cached_property
    def _source(self) -> Snapshot:
        table = DeltaTable(self._request.table_uri, self._options)
        return table.snapshot(version=self._request.version)

    def to_delta(self) -> CopyResult:
        request = self._request
        app_id = copy_app_id(self._source.metadata.id)
        target = DeltaTable(request.target_uri, self._options)
        if target.exists():
            if request.txn and (done := target.version_of_transaction(*request.txn)) is not None:
                return _committed(target, done)
            self._check_delta_target(target, app_id)
        else:
            self._check_no_files(target.storage)
        result = write_table(
            read_snapshot(
                self._spark, request.table_uri, request.version, storage_options=self._options
            ),
            request.target_uri,
            mode="overwrite",
            partition_by=self._source.metadata.partition_columns,
            transactions={**dict([request.txn] if request.txn else []), app_id: request.version},
            storage_options=self._options,
        )
        return CopyResult(result.num_rows, result.num_files, result.version)
