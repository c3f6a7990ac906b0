"""Rows of live files, as `Snapshot.files` returns them, as the actions of a commit.

A loop over files, and objects for them, though not for all of the table's: a commit is made of its actions
one by one, and its stages look at each.
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
    """The actions that bring files back: as they were, with whether they change data.

    Args:
        files: rows of adds, all columns.
        data_change: what the actions say.
    """
    for file in _objects(files):
        yield AddFile.from_json({**file, "dataChange": data_change}, "add")


def remove_actions(files: pa.Table, *, data_change: bool) -> Iterator[RemoveFile]:
    """The actions that take files out, with all that the columns say.

    Args:
        files: rows of adds, with the columns that make the key of a file at least.
        data_change: what the actions say.
    """
    known = [name for name in files.column_names if name in REMOVE_FIELDS.keys() - _OF_THE_COMMIT]
    extended = {"partitionValues", "size", "tags"} <= set(known)
    told = {"dataChange": data_change, **({"extendedFileMetadata": True} if extended else {})}
    for file in _objects(files.select(known)):
        yield RemoveFile.from_json({**file, **told}, "remove")


def check_file_rows(rows: object, *, has_vectors: bool, table: str) -> None:
    """Make sure that rows are those of files, with the columns that tell files apart.

    Args:
        rows: what was given.
        has_vectors: whether files of the table may have deletion vectors.
        table: the table's location, for messages.

    Raises:
        InvalidArgumentError: they aren't, or the column ``path`` or ``deletionVector`` is missing or of
            another type than in `Snapshot.files`.
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
                + "; ask for files without columns=, or for columns=['path', 'deletionVector']",
                table=table,
                column=name,
            )
    if rows["path"].null_count:
        raise InvalidArgumentError("rows: a path is null; every file has one", table=table)


def _objects(files: pa.Table) -> Iterator[Mapping[str, Any]]:
    """The rows as the JSON objects that they stand for."""
    maps = [name for name in _MAPS if name in files.column_names]
    for batch in files.to_batches():
        for row in batch.to_pylist():
            yield {**row, **{name: dict(row[name]) for name in maps if row[name] is not None}}
