"""Reject a row group that repeats a file action very often, before it takes gigabytes of memory.

A hostile or damaged file of some kilobytes may contain two million rows for the same data file, whose
statistics take gigabytes once they are decoded. The paths of different files can't be stored in so
little space. So if the paths of a row group take less than half a bit each, `check_distinct_rows` compares
its keys before anything else of it is decoded.
"""

from __future__ import annotations

import pyarrow as pa

from airflow_delta.engine.arrow.normalise import present_rows
from airflow_delta.engine.arrow.parquet.source import ParquetSource

__all__ = ["check_distinct_rows"]

_ROWS_PER_BYTE = 16
_FEW = 4096
"""Up to so many rows aren't checked."""

_WINDOW = 1 << 16
"""The number of rows that are compared with each other. Repetitions at a longer distance take more space
in the file."""


def check_distinct_rows(source: ParquetSource, group: int, kind: str) -> None:
    """Reject a row group whose actions repeat each other.

    A row group whose paths take a usual amount of space isn't read.

    Args:
        source: the file.
        group: the number of the row group.
        kind: ``"add"`` or ``"remove"``.

    Raises:
        CorruptLogError: two rows near each other are about the same file.
    """
    path = f"{kind}.path"
    rows = source.rows(group) - (source.nulls(group, path) or 0)
    if rows <= _FEW or rows <= _ROWS_PER_BYTE * source.stored_bytes(group, path):
        return
    columns = [path]
    if source.has(f"{kind}.deletionVector"):
        columns.append(f"{kind}.deletionVector")
    with source.damage():
        for batch in source.batches(group, columns, rows=_WINDOW, texts_once=True):
            actions = present_rows(batch.column(kind))
            keys = pa.table(_leaves(actions))
            if keys.group_by(keys.column_names).aggregate([]).num_rows < keys.num_rows:
                raise source.corrupt(
                    f"it has more than one action {kind!r} for a file, again and again"
                )


def _leaves(actions: pa.StructArray) -> dict[str, pa.Array]:
    """The leaves below structs; texts as the indexes into their dictionaries."""
    found: dict[str, pa.Array] = {}
    for field, column in zip(actions.type, actions.flatten(), strict=True):
        if pa.types.is_struct(field.type):
            found |= {f"{field.name}.{name}": leaf for name, leaf in _leaves(column).items()}
        elif pa.types.is_dictionary(field.type):
            found[field.name] = column.indices
        else:
            found[field.name] = column
    return found
