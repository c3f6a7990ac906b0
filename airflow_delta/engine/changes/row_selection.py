"""Read the deletion vectors of a change plan, and compute the rows of its entries.

An entry with a ``selectionVector`` stands for the rows in it that aren't in its ``deletionVector``; see
`file_changes`. An entry without one is an ordinary file, with or without a deletion vector. Positions count
all rows of the data file, in physical order, from 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from airflow_delta.engine.deletion_vectors.columns import read_deletion_vector_column
from airflow_delta.engine.deletion_vectors.read import OpenUri
from airflow_delta.engine.storage.base import Storage

if TYPE_CHECKING:
    from pyroaring import BitMap64

__all__ = ["read_entry_rows"]


def read_entry_rows(
    deleted: pa.ChunkedArray,
    selected: pa.ChunkedArray,
    storage: Storage,
    *,
    table: str,
    open_uri: OpenUri | None = None,
    num_rows: pa.ChunkedArray | None = None,
) -> dict[int, BitMap64]:
    """Read row positions for the entries of a change plan.

    Args:
        deleted: the entries' ``deletionVector``.
        selected: their ``selectionVector``.
        storage: the table's storage.
        table: the table's location, for messages.
        open_uri: as in `read_deletion_vectors`.
        num_rows: as in `read_deletion_vector_column`, of the entries.

    Returns:
        The selected rows of entries with a selection, and the deleted rows of others with a deletion
        vector, by the number of the entry. Entries with neither are missing.

    Raises:
        CorruptLogError: a descriptor lacks a field.
        DeletionVectorError: a deletion vector can't be read, or contradicts its descriptor.
        StorageError: the store failed otherwise.
    """
    both = pa.chunked_array([*deleted.chunks, *selected.chunks], deleted.type)
    counts = None
    if num_rows is not None:
        counts = pa.chunked_array([*num_rows.chunks, *num_rows.chunks], num_rows.type)
    rows = read_deletion_vector_column(
        both, storage, table=table, open_uri=open_uri, num_rows=counts
    )
    # A loop over deletion vectors: each is a set of its own.
    for index in [index for index in rows if index >= len(deleted)]:
        number, selection = index - len(deleted), rows.pop(index)
        rows[number] = selection - rows[number] if number in rows else selection
    return rows
