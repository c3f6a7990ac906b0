"""Fill in the optional fields of removes from the adds of their files.

Most fields of a ``remove`` are optional, but others need them: readers of changes need ``partitionValues``
for the partitions of deleted rows, and other writers need ``size`` to update a version checksum. So missing
fields are filled in from the live file. Fields that are present must agree with it.

PROTOCOL.md, "Add File and Remove File".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.action_schema import REMOVE_FIELDS
from airflow_delta.engine.arrow.python_arrays import array_of, scalar_of
from airflow_delta.engine.model.file_actions import RemoveFile
from airflow_delta.engine.transaction.context import CommitContext

__all__ = ["REPEATED_COLUMNS", "complete_removes"]

_MAPS = ("partitionValues", "tags")
_NUMBERS = ("size", "baseRowId", "defaultRowCommitVersion")
_OF_VECTORS = ("sizeInBytes", "cardinality")

REPEATED_COLUMNS = ("path", "deletionVector", *_MAPS, *_NUMBERS, "stats")
"""The columns that an ``add`` and its ``remove`` have in common."""


def complete_removes(
    removes: Sequence[RemoveFile], live: pa.Table, context: CommitContext
) -> tuple[RemoveFile, ...]:
    """Complete removes with the values from the adds of their files, even with the path's spelling.

    Args:
        removes: the removes of a commit.
        live: the `REPEATED_COLUMNS` of the live files, in the order of the removes.
        context: the table.

    Raises:
        ConstraintViolationError: a remove contradicts the add.
    """
    given = _columns_of(removes)
    for name, differs in _contradictions(given, live):
        row = pc.index(differs, scalar_of(True, pa.bool_())).as_py()
        if row >= 0:
            found, expected = (_value(table, name, row) for table in (given, live))
            raise context.violation(
                f"the remove of the file {removes[row].path!r} has {name}={found!r}, but the file's add "
                f"has {expected!r}; repeat that, or omit it"
            )
    # A loop over incomplete removes only. Those of the engine's own operations are complete.
    rows = pc.indices_nonzero(_incomplete(given, live))
    completed = list(removes)
    for row, add in zip(rows.to_pylist(), live.take(rows).to_pylist(), strict=True):
        completed[row] = _complete(removes[row], add)
    return tuple(completed)


def _columns_of(removes: Sequence[RemoveFile]) -> pa.Table:
    """The removes as columns, named as in the log."""
    names = {field.key: name for name, field in RemoveFile.log_fields.items()}
    columns = {}
    for key in (*REPEATED_COLUMNS, "extendedFileMetadata"):
        values = [getattr(file, names[key]) for file in removes]
        if key == "deletionVector":
            values = [None if vector is None else vector.to_json() for vector in values]
        columns[key] = array_of(values, REMOVE_FIELDS[key])
    return pa.table(columns)


def _contradictions(given: pa.Table, live: pa.Table) -> Iterator[tuple[str, Any]]:
    """The columns that both have, each with the rows in which both have a value, but not the same."""
    for name in _NUMBERS:
        yield name, pc.not_equal(given[name], live[name])
    for name in _OF_VECTORS:
        vectors = (table["deletionVector"] for table in (given, live))
        yield "deletionVector", pc.not_equal(*(pc.struct_field(v, name) for v in vectors))
    for name in _MAPS:
        # Compared as a whole first: usually the maps are missing, or are as they were read.
        if not given[name].equals(live[name]):
            yield name, _differing_maps(given[name], live[name])


def _differing_maps(given: pa.ChunkedArray, live: pa.ChunkedArray) -> pa.BooleanArray:
    """The rows in which both have a map, but not the same. A missing value, a null and "" mean the same."""
    # A loop over files of the commit: Arrow doesn't compare the maps of two arrays row by row.
    pairs = zip(given.to_pylist(), live.to_pylist(), strict=True)
    differs = [None not in pair and len({_entries(item) for item in pair}) > 1 for pair in pairs]
    return array_of(differs, pa.bool_())


def _entries(items: Iterable[tuple[str, str | None]]) -> frozenset[tuple[str, str]]:
    """The entries of a map that have a value."""
    return frozenset((key, value) for key, value in items if value)


def _incomplete(given: pa.Table, live: pa.Table) -> pa.ChunkedArray:
    """The rows in which a remove lacks a value that the add has, or spells the path in another way."""
    lacking = pc.or_(
        pc.not_equal(given["path"], live["path"]),
        pc.invert(pc.coalesce(given["extendedFileMetadata"], scalar_of(False, pa.bool_()))),
    )
    for name in (*_MAPS, *_NUMBERS, "stats"):
        lacking = pc.or_(lacking, pc.and_(given[name].is_null(), live[name].is_valid()))
    return lacking


def _complete(file: RemoveFile, add: dict[str, Any]) -> RemoveFile:
    maps = {name: None if add[name] is None else dict(add[name]) for name in _MAPS}
    known = {name: value for name, value in {**add, **maps}.items() if value is not None}
    whole = RemoveFile.from_json({**known, "dataChange": file.data_change}, "remove")
    has_all = whole.partition_values is not None and whole.size is not None
    return replace(
        whole,
        deletion_timestamp=file.deletion_timestamp,
        extended_file_metadata=has_all or file.extended_file_metadata,
    )


def _value(table: pa.Table, name: str, row: int) -> Any:
    value = table[name][row].as_py()
    return dict(value) if name in _MAPS else value
