"""File actions that repeat each other so often that they take next to no room in their file.

A file of some kilobytes may hold two million rows for one data file, whose statistics take gigabytes when
they are decoded. Paths of different files can't be stored in so little. So where there is less than a bit
or so for each of them, the keys are compared before anything else of the row group is decoded, and a text
that comes again and again takes its memory once.
"""

from __future__ import annotations

import pyarrow as pa

from airflow_delta.engine.arrow.normalise import present_rows
from airflow_delta.engine.arrow.parquet.source import ParquetSource

__all__ = ["check_distinct_rows"]

_ROWS_PER_BYTE = 16
_FEW = 4096
"""So many rows are decoded without a look: they may well be small."""

_WINDOW = 1 << 16
"""Rows that are compared with each other; what repeats at longer distances takes room in the file."""


def check_distinct_rows(source: ParquetSource, group: int, kind: str) -> None:
    """Refuse a row group of actions that repeat each other, before they are decoded.

    One whose paths take a usual room is passed without a look.

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
    """The leaves of structs in structs, texts as the numbers of their dictionaries."""
    found: dict[str, pa.Array] = {}
    for field, column in zip(actions.type, actions.flatten(), strict=True):
        if pa.types.is_struct(field.type):
            found |= {f"{field.name}.{name}": leaf for name, leaf in _leaves(column).items()}
        elif pa.types.is_dictionary(field.type):
            found[field.name] = column.indices
        else:
            found[field.name] = column
    return found
