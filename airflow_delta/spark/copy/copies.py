"""Copies of one version of a table, at a place of their own: as files, or as a Delta table.

A copy replaces what an earlier copy of the same table has left at its place, and nothing else. So a
copy says what it is a copy of; see `copy_rules`. What is there already decides:

=======================================  ========================================================
nothing, or an empty directory           the copy is made
a copy of the same table and version,    it is replaced
or of an earlier version
a copy of a later version                refused, unless asked for: a late run of a DAG must not
                                         undo the work of the run after it
a copy of any version that has expired   it is replaced
a Delta copy that others have written    refused
to since
a copy of files with other files, or     refused
more of them than it wrote
a Delta copy, and the new one is none,   refused
or the other way round
anything else                            refused
=======================================  ========================================================

A Delta copy is a clone, one commit (`clones`); repeated it copies just the files that it lacks. Any other
copy is a directory that is put into its place when it is whole (`directory_copies`).

The source is known by its table id, which stays when a table is moved, and by its log, which goes on when
it is replaced (`table_identity`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from airflow_delta.copies.formats import DELTA, check_format
from airflow_delta.copies.request import CopyResult
from airflow_delta.copies.source import CopySource
from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.engine.model.paths import resolve
from airflow_delta.engine.storage.location import open_storage
from airflow_delta.spark.copy.clones import Clone
from airflow_delta.spark.copy.directory_copies import DirectoryCopy
from airflow_delta.spark.runtime.locations import hadoop_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from airflow_delta.copies.request import CopyRequest
    from airflow_delta.engine.storage.base import Storage

__all__ = ["CopyResult", "copy_snapshot"]


def copy_snapshot(
    spark: SparkSession,
    request: CopyRequest,
    *,
    storage_options: Mapping[str, str] | None = None,
    allowed_outside: Sequence[str] = (),
) -> CopyResult:
    """Copy a version of a table.

    Args:
        spark: the session. Spark writes files with the credentials of its own configuration.
        request: the copy.
        storage_options: credentials and settings with which the engine reaches table and target.
        allowed_outside: locations outside of the table below which it may read files; see `DeltaTable`.

    Raises:
        InvalidArgumentError: the format is unknown or can't hold the table, table and target lie inside one
            another, or something is at the target that must stay; see the module.
        DeltaError: the table can't be read, or a Delta copy can't be committed.
        PySparkException: Spark's own errors.
    """
    check_format(request.format)
    _check_apart(request, storage_options)
    table = DeltaTable(request.table_uri, storage_options, allowed_outside=allowed_outside)
    source = CopySource(table, table.snapshot(request.version))
    if request.format == DELTA:
        return Clone(spark, request, source, storage_options).make()
    return DirectoryCopy(spark, request, source, storage_options).make()


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


def _real_location(storage: Storage) -> str:
    """A location by which two spellings of one place are equal, as far as that can be told."""
    path = hadoop_path(resolve(storage.root, "").rstrip("/"))
    local = path.removeprefix("file:")
    return f"file:{os.path.realpath(local)}" if local != path else path
