"""A ``remove`` repeats what the ``add`` of its file says.

Spec: PROTOCOL.md, "Add File and Remove File". All but the path and ``dataChange`` is optional in a
``remove``, and missed where it is left out: readers of changes can't tell the partition of the deleted
rows without ``partitionValues``, and other writers can't carry a version checksum on without ``size``.
So what a writer leaves out is filled in from the live file. What it does say must agree with that.
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
    """The removes with all that the adds of their files say, the spelling of the path included.

    Args:
        removes: the removes of a commit.
        live: for each of them, in their order, the `REPEATED_COLUMNS` of the live file.
        context: the table.

    Raises:
        ConstraintViolationError: a remove says otherwise than the add.
    """
    given = _columns_of(removes)
    for name, differs in _contradictions(given, live):
        row = pc.index(differs, scalar_of(True, pa.bool_())).as_py()
        if row >= 0:
            told, known = (_shown(table, name, row) for table in (given, live))
            raise context.violation(
                f"the remove of the file {removes[row].path!r} says {name}={told!r}, and the file's "
                f"add says {known!r}; repeat that, or leave it out"
            )
    # Objects for those that lack something. Our own operations leave nothing out.
    rows = pc.indices_nonzero(_incomplete(given, live))
    completed = list(removes)
    for row, told in zip(rows.to_pylist(), live.take(rows).to_pylist(), strict=True):
        completed[row] = _complete(removes[row], told)
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
    """The columns in which both may say something, and where they say something else."""
    for name in _NUMBERS:
        yield name, pc.not_equal(given[name], live[name])
    for name in _OF_VECTORS:
        vectors = (table["deletionVector"] for table in (given, live))
        yield "deletionVector", pc.not_equal(*(pc.struct_field(v, name) for v in vectors))
    for name in _MAPS:
        # The usual case: nothing is told, or as it was read.
        if not given[name].equals(live[name]):
            yield name, _differing_maps(given[name], live[name])


def _differing_maps(given: pa.ChunkedArray, live: pa.ChunkedArray) -> pa.BooleanArray:
    """Where both have a map, and another one. A missing value, a null and "" mean the same."""
    # A loop over files of the commit: Arrow doesn't compare the maps of two arrays row by row.
    pairs = zip(given.to_pylist(), live.to_pylist(), strict=True)
    differs = [None not in pair and len({_present(told) for told in pair}) > 1 for pair in pairs]
    return array_of(differs, pa.bool_())


def _present(told: Iterable[tuple[str, str | None]]) -> frozenset[tuple[str, str]]:
    return frozenset((key, value) for key, value in told if value)


def _incomplete(given: pa.Table, live: pa.Table) -> pa.ChunkedArray:
    """Where a remove leaves out what the add says, or spells the path in another way."""
    lacking = pc.or_(
        pc.not_equal(given["path"], live["path"]),
        pc.invert(pc.coalesce(given["extendedFileMetadata"], scalar_of(False, pa.bool_()))),
    )
    for name in (*_MAPS, *_NUMBERS, "stats"):
        lacking = pc.or_(lacking, pc.and_(given[name].is_null(), live[name].is_valid()))
    return lacking


def _complete(file: RemoveFile, told: dict[str, Any]) -> RemoveFile:
    maps = {name: None if told[name] is None else dict(told[name]) for name in _MAPS}
    known = {name: value for name, value in {**told, **maps}.items() if value is not None}
    whole = RemoveFile.from_json({**known, "dataChange": file.data_change}, "remove")
    has_all = whole.partition_values is not None and whole.size is not None
    return replace(
        whole,
        deletion_timestamp=file.deletion_timestamp,
        extended_file_metadata=has_all or file.extended_file_metadata,
    )


def _shown(table: pa.Table, name: str, row: int) -> Any:
    value = table[name][row].as_py()
    return dict(value) if name in _MAPS else value
