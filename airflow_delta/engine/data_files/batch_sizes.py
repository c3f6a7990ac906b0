"""How many rows of a data file are decoded at once, so that batches keep to a size in memory.

The footer shows how many bytes the values take in the file, not in memory: a text of a dictionary may be in
each row, and a number that repeats takes no space. So the first batch is small if the rows could take more
than the size. Each batch shows how many rows the next one may have.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

__all__ = ["first_rows", "holdable", "most_bytes", "next_rows"]

_PROBED_ROWS = 256
"""The rows by which the memory of others is estimated."""

_WIDEST = 16
"""The bytes of the widest number, a decimal."""

_MOST_BYTES = 2**31 - 1
"""The most bytes of the texts of an array. Only an array of large texts may have more."""

# Encodings that store a text, or its start, once for several values.
_SHARED = ("DICTIONARY", "DELTA_BYTE_ARRAY")


def most_bytes(footer: Any, row_groups: Sequence[int], leaves: Sequence[int], rows: int) -> int:
    """The memory that a batch takes at most, by the footer.

    Args:
        footer: the footer, a ``pyarrow.parquet.FileMetaData``.
        row_groups: the numbers of the row groups.
        leaves: the indexes of the column chunks in a row group.
        rows: the most rows in a batch.
    """
    columns = [(leaf, footer.schema.column(leaf)) for leaf in leaves]
    total = 0
    for number in row_groups:
        group = footer.row_group(number)
        fewest = min(rows, group.num_rows)
        for leaf, column in columns:
            is_text = column.physical_type == "BYTE_ARRAY"
            if not is_text and not column.max_repetition_level:
                total += fewest * max(_WIDEST, column.length)
                continue
            chunk = group.column(leaf)
            # One row of lists may have all values.
            values = chunk.num_values if column.max_repetition_level else fewest
            if not is_text:
                total += values * max(_WIDEST, column.length)
            # Not by the offset of the dictionary, which old writers don't record.
            elif any(shared in name for name in chunk.encodings for shared in _SHARED):
                total += values * chunk.total_uncompressed_size
            else:
                total += values * _WIDEST + chunk.total_uncompressed_size
    return total


def first_rows(num_bytes: int, *, rows: int, size: int) -> int:
    """How many rows the first batch has.

    Args:
        num_bytes: the memory that it takes at most, from `most_bytes`.
        rows: the most rows in a batch.
        size: the most bytes in a batch, about.
    """
    return min(rows, _PROBED_ROWS) if num_bytes > size else rows


def next_rows(last: pa.RecordBatch | pa.Table | pa.ChunkedArray, *, rows: int, size: int) -> int:
    """How many rows the next batch has: as many as fit if they are like those of this one.

    Args:
        last: the last batch, or one column of it; it has rows.
        rows: the most rows in a batch.
        size: the most bytes in a batch, about.
    """
    fitting: int = size * len(last) // max(1, last.nbytes)
    return min(rows, max(1, fitting))


def holdable(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Split a batch whose large texts don't fit into texts of the table's type.

    Args:
        batch: the batch, as the file has it.
    """
    if batch.num_rows < 2 or batch.get_total_buffer_size() <= _MOST_BYTES:
        yield batch
        return
    half = batch.num_rows // 2
    for part in (batch.slice(0, half), batch.slice(half)):
        # A copy, because the offsets of a slice are those in the whole, and Arrow casts each of them.
        columns = [pa.concat_arrays([column]) for column in part.columns]
        yield from holdable(pa.RecordBatch.from_arrays(columns, schema=batch.schema))
