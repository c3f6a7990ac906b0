"""Convert rows of live files, as `Snapshot.files` returns them, into the actions of a commit.

The loops make one object for each file, but only for the files of one commit. The stages of the commit look
at each action.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from airflow_delta.engine.arrow.action_schema import DELETION_VECTOR_TYPE, REMOVE_FIELDS
from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.engine.model.actions import AddFile, RemoveFile
from airflow_delta.engine.model.arguments import check_type

__all__ = ["add_actions", "check_file_rows", "remove_actions"]

_MAPS = ("partitionValues", "tags")
_OF_THE_COMMIT = frozenset({"dataChange", "deletionTimestamp", "extendedFileMetadata"})
_EXPECTED = "a pyarrow.Table of rows of Snapshot.files() or OptimisticTransaction.read_files()"


def add_actions(files: pa.Table, *, data_change: bool) -> Iterator[AddFile]:
    """Make actions that add files again, as they were.

    Args:
        files: rows of adds, with all columns.
        data_change: the ``dataChange`` of the actions.
    """
    for file in _objects(files):
        yield AddFile.from_json({**file, "dataChange": data_change}, "add")


def remove_actions(files: pa.Table, *, data_change: bool) -> Iterator[RemoveFile]:
    """Make actions that remove files, with the values of all columns.

    Args:
        files: rows of adds, with at least ``path`` and ``deletionVector``.
        data_change: the ``dataChange`` of the actions.
    """
    known = [name for name in files.column_names if name in REMOVE_FIELDS.keys() - _OF_THE_COMMIT]
    extended = {"partitionValues", "size", "tags"} <= set(known)
    common = {"dataChange": data_change, **({"extendedFileMetadata": True} if extended else {})}
    for file in _objects(files.select(known)):
        yield RemoveFile.from_json({**file, **common}, "remove")


def check_file_rows(rows: object, *, has_vectors: bool, table: str) -> None:
    """Check that rows are rows of files, with the columns that identify a file.

    Args:
        rows: the user's argument.
        has_vectors: whether files of the table may have deletion vectors.
        table: the table's location, for messages.

    Raises:
        InvalidArgumentError: this is no `pyarrow.Table`, or the column ``path`` or ``deletionVector`` is
            missing or has another type than in `Snapshot.files`.
    """
    check_type("rows", rows, pa.Table, _EXPECTED, table=table)
    assert isinstance(rows, pa.Table)
    needed = {"path": pa.string()} | (
        {"deletionVector": DELETION_VECTOR_TYPE}
        if has_vectors or "deletionVector" in rows.column_names
        else {}
    )
    for name, expected in needed.items():
        found = rows.schema.field(name).type if name in rows.column_names else None
        if found != expected:
            raise InvalidArgumentError(
                f"rows: expected {_EXPECTED} with the column {name!r} of the type {expected}, found "
                + (f"the columns {', '.join(rows.column_names)}" if found is None else str(found))
                + "; read the files without columns=, or with columns=['path', 'deletionVector']",
                table=table,
                column=name,
            )
    if rows["path"].null_count:
        raise InvalidArgumentError("rows: a path is null; every file has one", table=table)


def _objects(files: pa.Table) -> Iterator[Mapping[str, Any]]:
    """The rows as JSON objects."""
    maps = [name for name in _MAPS if name in files.column_names]
    for batch in files.to_batches():
        for row in batch.to_pylist():
            yield {**row, **{name: dict(row[name]) for name in maps if row[name] is not None}}
