"""Copy one version of a table to another location: as files, or as a Delta table.

A copy replaces an earlier copy of the same table, and nothing else; docs/how-to/copy-a-version.md ("What a
copy replaces") has the rules. So each copy records what it is a copy of (`airflow_delta.copies.request`).

A Delta copy is one commit (`clones`), which copies only the files that the target lacks. Any other
copy is written to a directory that is then renamed (`directory_copies`).

The source table is recognised by its table id, even after it was moved, and by its log, even after
it was replaced (`airflow_delta.change_feeds.table_identity`).
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
        storage_options: credentials and settings of the engine for table and target.
        allowed_outside: locations outside of the table below which it may read files; see
            `DeltaTable`.

    Raises:
        InvalidArgumentError: the format is unknown or can't hold the table, one of table and target
            lies inside the other, or the target holds something that a copy may not
            replace.
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
            "choose another target",
            table=request.table_uri,
            target=request.target_uri,
        )


def _real_location(storage: Storage) -> str:
    """The location in a normal form, so that different spellings of it usually compare equal."""
    path = hadoop_path(resolve(storage.root, "").rstrip("/"))
    local = path.removeprefix("file:")
    return f"file:{os.path.realpath(local)}" if local != path else path
