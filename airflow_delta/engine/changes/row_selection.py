"""The rows of a file that a difference of two deletion vectors tells.

See `file_changes`: an entry with a ``selectionVector`` stands for the rows in it, less those in its
``deletionVector``. Positions count all rows of the data file, in physical order, from 0. An entry
without a selection is an ordinary file with a deletion vector, and needs nothing of this.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow_delta.engine.deletion_vectors.read import OpenUri, read_deletion_vector
from airflow_delta.engine.model.dv_descriptor import DeletionVectorDescriptor
from airflow_delta.engine.storage.base import Storage

if TYPE_CHECKING:
    from pyroaring import BitMap64

__all__ = ["selected_rows"]


def selected_rows(
    selection: Mapping[str, Any],
    deleted: Mapping[str, Any] | None,
    storage: Storage,
    *,
    table: str,
    open_uri: OpenUri | None = None,
) -> BitMap64:
    """The positions that an entry of a change plan selects; none, where it turns out to be empty.

    Args:
        selection: the entry's ``selectionVector``.
        deleted: the entry's ``deletionVector``.
        storage: the table's storage.
        table: the table's location, for messages.
        open_uri: as in `read_deletion_vector`.

    Raises:
        DeletionVectorError: one of the two can't be read as it is described.
        StorageError: the store failed otherwise.
    """
    rows = _read(selection, storage, table, open_uri)
    return rows if deleted is None else rows - _read(deleted, storage, table, open_uri)


def _read(
    vector: Mapping[str, Any], storage: Storage, table: str, open_uri: OpenUri | None
) -> BitMap64:
    descriptor = DeletionVectorDescriptor.from_json(vector, "deletionVector")
    return read_deletion_vector(descriptor, storage, table=table, open_uri=open_uri)
