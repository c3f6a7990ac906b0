"""Row ids and row commit versions as columns of a DataFrame.

A row that was copied from another file has its values in hidden columns of its file. For other rows
they are ``baseRowId`` plus the row's index, and ``defaultRowCommitVersion``, from the file's
``add`` action.

Spec: PROTOCOL.md, "Reader Requirements for Row Tracking".
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from airflow_delta.engine import Snapshot
from airflow_delta.engine.errors import InvalidArgumentError, InvalidTableError
from airflow_delta.spark.reader.file_rows import FILE_ROW_INDEX, Facts, stored_column

__all__ = ["ROW_COMMIT_VERSION", "ROW_ID", "TrackedRows", "check_tracked", "tracked_rows"]

ROW_ID = "_row_id"
"""The column with a row's stable id."""

ROW_COMMIT_VERSION = "_row_commit_version"
"""The column with the version that last inserted or updated a row."""

_DEFAULTS = ("baseRowId", "defaultRowCommitVersion")


@dataclass(frozen=True, slots=True)
class TrackedRows:
    """The sources of a table's row ids and row commit versions.

    Attributes:
        table: the table's location.
        row_id_column: the hidden column of data files with row ids, or None.
        row_commit_version_column: the hidden column with row commit versions, or None.
    """

    table: str
    row_id_column: str | None
    row_commit_version_column: str | None

    @property
    def stored(self) -> list[T.StructField]:
        """The hidden columns to read from the files."""
        names = (self.row_id_column, self.row_commit_version_column)
        return [T.StructField(name, T.LongType()) for name in names if name]

    def facts(self, adds: pa.Table) -> Facts:
        """The per-file values to join to the rows.

        Args:
            adds: the files, with ``baseRowId`` and ``defaultRowCommitVersion``.

        Raises:
            InvalidTableError: a file lacks one of them.
        """
        check_tracked(adds, table=self.table)
        return {name: (T.LongType(), adds[name]) for name in _DEFAULTS}

    def columns(self) -> list[Column]:
        """The two columns, for rows of `file_rows` that have the facts."""
        base, default = map(F.col, _DEFAULTS)
        row_id, version = base + F.col(FILE_ROW_INDEX), default
        if self.row_id_column:
            row_id = F.coalesce(stored_column(self.row_id_column), row_id)
        if self.row_commit_version_column:
            version = F.coalesce(stored_column(self.row_commit_version_column), version)
        return [row_id.alias(ROW_ID), version.alias(ROW_COMMIT_VERSION)]


def check_tracked(adds: pa.Table, *, table: str) -> None:
    """Make sure that files have what row ids and commit versions are computed from.

    Args:
        adds: the files of a table with row tracking, with ``baseRowId`` and ``defaultRowCommitVersion``.
        table: the table's location, for errors.

    Raises:
        InvalidTableError: a file lacks one of them.
    """
    for name in _DEFAULTS:
        missing = adds.filter(adds[name].is_null())
        if missing.num_rows:
            path = missing["path"][0].as_py()
            raise InvalidTableError(
                f"the file {path!r} has no {name}, and delta.enableRowTracking is true: its writer "
                "broke the protocol; set the property to false, and to true again once all files "
                "have ids",
                table=table,
                path=path,
            )


def tracked_rows(snapshot: Snapshot) -> TrackedRows:
    """Find the sources of a table's row ids.

    Raises:
        InvalidArgumentError: the table doesn't have row tracking enabled.
        InvalidTableError: its high water mark can't be read.
    """
    found = snapshot.row_tracking
    if found is None or not found.enabled:
        raise InvalidArgumentError(
            "with_row_tracking=True: the table has no row ids to rely on at version "
            f"{snapshot.version}, where delta.enableRowTracking isn't true",
            table=snapshot.table,
        )
    return TrackedRows(snapshot.table, found.row_id_column, found.row_commit_version_column)
