"""The deletion vectors of the files of a scan, read when the scan comes to them.

Vectors of several files are often in one file, so they are read some hundred at a time.

Spec: PROTOCOL.md, "Deletion Vectors".
"""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.numpy_arrays import Int64Vector
from airflow_delta.engine.deletion_vectors.columns import read_deletion_vector_column
from airflow_delta.engine.deletion_vectors.roaring import to_positions
from airflow_delta.engine.storage.file_access import FileAccess

if TYPE_CHECKING:
    from pyroaring import BitMap64

__all__ = ["ScanVectors"]

_AT_A_TIME = 256
_KEPT_PARTS = 2
"""Files are read nearly in order, so the vectors before these are no longer needed."""


class ScanVectors:
    """Reads the deletion vectors of some files. Several threads may use it.

    Args:
        vectors: ``deletionVector`` of the files.
        access: opens the files of the table.
    """

    def __init__(self, vectors: pa.ChunkedArray, access: FileAccess) -> None:
        self._vectors = vectors
        self._access = access
        self._has_vector = pc.is_valid(vectors).combine_chunks()
        self._parts: OrderedDict[int, dict[int, BitMap64]] = OrderedDict()
        self._lock = Lock()

    def positions(self, index: int) -> Int64Vector | None:
        """The deleted rows of a file, ascending; None if it has no deletion vector.

        Args:
            index: the number of the file.

        Raises:
            CorruptLogError: a descriptor lacks a field.
            DeletionVectorError: a vector can't be read as its descriptor says.
            OutsidePathError: the table may not read where it is.
            StorageError: the store failed.
        """
        if not self._has_vector[index].as_py():
            return None
        part, number = divmod(index, _AT_A_TIME)
        with self._lock:
            if part not in self._parts:
                self._parts[part] = self._read(part)
                while len(self._parts) > _KEPT_PARTS:
                    self._parts.popitem(last=False)
            bitmap = self._parts[part][number]
        return to_positions(bitmap)

    def _read(self, part: int) -> dict[int, BitMap64]:
        return read_deletion_vector_column(
            self._vectors.slice(part * _AT_A_TIME, _AT_A_TIME),
            self._access.storage,
            table=self._access.storage.root,
            open_uri=self._access.locate,
        )
