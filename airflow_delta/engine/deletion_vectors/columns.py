"""Read the deletion vectors for a column of descriptors, as snapshots and change plans have it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.deletion_vectors.read import (
    OpenUri,
    describe_deletion_vector,
    read_deletion_vectors,
)
from airflow_delta.engine.errors import DeletionVectorError
from airflow_delta.engine.model.dv_descriptor import DeletionVectorDescriptor
from airflow_delta.engine.storage.base import Storage

if TYPE_CHECKING:
    from pyroaring import BitMap64

__all__ = ["read_deletion_vector_column"]


def read_deletion_vector_column(
    vectors: pa.ChunkedArray,
    storage: Storage,
    *,
    table: str,
    open_uri: OpenUri | None = None,
    num_rows: pa.ChunkedArray | None = None,
) -> dict[int, BitMap64]:
    """Read the deletion vectors of a column.

    Args:
        vectors: ``deletionVector`` or ``selectionVector``, as in the log.
        storage: the table's storage.
        table: the table's location, for messages.
        open_uri: see `read_deletion_vectors`.
        num_rows: the number of rows of each data file, null if it is unknown; None if it is unknown for
            all.

    Returns:
        The vectors by their row number in the column, without rows that have none.

    Raises:
        CorruptLogError: a descriptor lacks a field.
        DeletionVectorError: a vector doesn't match its descriptor, or contains a row that its data file
            doesn't have.
        StorageError: the store failed otherwise.
    """
    numbers = pc.indices_nonzero(vectors.is_valid())
    descriptors = [
        DeletionVectorDescriptor.from_json(descriptor, "deletionVector")
        for descriptor in vectors.take(numbers).to_pylist()
    ]
    found = read_deletion_vectors(descriptors, storage, table=table, open_uri=open_uri)
    if num_rows is not None:
        for descriptor, bitmap, rows in zip(
            descriptors, found, num_rows.take(numbers).to_pylist(), strict=True
        ):
            _check_last_row(descriptor, bitmap, rows, table)
    return dict(zip(numbers.to_pylist(), found, strict=True))


def _check_last_row(
    descriptor: DeletionVectorDescriptor, bitmap: BitMap64, num_rows: int | None, table: str
) -> None:
    if num_rows is None or not bitmap or bitmap.max() < num_rows:
        return
    raise DeletionVectorError(
        f"{describe_deletion_vector(descriptor)} names row {bitmap.max()}, and its data file has "
        f"{num_rows} rows by its statistics (numRecords), which must be exact beside a deletion vector; "
        "DeltaTable.restore() or RestoreOperator to a version before it",
        table=table,
    )
