"""The rows of files that a difference of two deletion vectors tells.

See `file_changes`: an entry with a ``selectionVector`` stands for the rows in it, less those in its
``deletionVector``. Positions count all rows of the data file, in physical order, from 0. An entry
without a selection is an ordinary file, with or without a deletion vector.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from airflow_delta.engine.deletion_vectors.columns import read_deletion_vector_column
from airflow_delta.engine.deletion_vectors.read import OpenUri
from airflow_delta.engine.storage.base import Storage

if TYPE_CHECKING:
    from pyroaring import BitMap64

__all__ = ["named_rows"]


def named_rows(
    deleted: pa.ChunkedArray,
    selected: pa.ChunkedArray,
    storage: Storage,
    *,
    table: str,
    open_uri: OpenUri | None = None,
    num_rows: pa.ChunkedArray | None = None,
) -> dict[int, BitMap64]:
    """The positions that the entries of a change plan name, by the numbers of the entries.

    Of an entry with a selection they are those that it selects, if there are any; of one that has
    a deletion vector only, those that are deleted. Entries without either aren't there.

    Args:
        deleted: the entries' ``deletionVector``.
        selected: their ``selectionVector``.
        storage: the table's storage.
        table: the table's location, for messages.
        open_uri: as in `read_deletion_vectors`.
        num_rows: as in `read_deletion_vector_column`, of the entries.

    Raises:
        CorruptLogError: a descriptor lacks a field.
        DeletionVectorError: a vector can't be read as it is described.
        StorageError: the store failed otherwise.
    """
    both = pa.chunked_array([*deleted.chunks, *selected.chunks], deleted.type)
    counts = None
    if num_rows is not None:
        counts = pa.chunked_array([*num_rows.chunks, *num_rows.chunks], num_rows.type)
    rows = read_deletion_vector_column(
        both, storage, table=table, open_uri=open_uri, num_rows=counts
    )
    # A loop over vectors, each of which is a set of its own.
    for place in [place for place in rows if place >= len(deleted)]:
        number, selection = place - len(deleted), rows.pop(place)
        rows[number] = selection - rows[number] if number in rows else selection
    return rows
