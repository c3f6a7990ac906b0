"""Read only the live files with certain keys: a filter for the reader of checkpoints.

For all files, the reader decodes only the columns that form the key. It decodes the other columns
only of row groups with a matching file.

Spec: PROTOCOL.md, "Action Reconciliation".
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.action_schema import DELETION_VECTOR_TYPE, FILE_KEY_COLUMNS
from airflow_delta.engine.replay.file_key import file_keys

__all__ = ["FilesAmong", "path_keys"]


class FilesAmong:
    """Keeps the files with certain keys; a `RowFilter`.

    Args:
        keys: see `file_key.file_keys`; with ``by_path``, see `path_keys`.
        table: the table's location.
        by_path: whether the keys are paths alone, without deletion vectors.
    """

    def __init__(
        self, keys: pa.Array | pa.ChunkedArray, *, table: str, by_path: bool = False
    ) -> None:
        self._keys = keys
        self._table = table
        self._by_path = by_path

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that form the key."""
        return ("path",) if self._by_path else FILE_KEY_COLUMNS

    def parsed_leaves(self, stored: pa.DataType, *, all_needed: bool) -> None:
        """None: statistics aren't needed."""

    def kept(self, adds: pa.RecordBatch) -> pa.BooleanArray:
        """Whether each row has one of the keys."""
        return pa.concat_arrays(self._mask(pa.Table.from_batches([adds])).chunks)

    def prune(self, adds: pa.Table) -> pa.Table:
        """The rows that have one of the keys."""
        return adds.filter(self._mask(adds))

    def _mask(self, adds: pa.Table) -> pa.ChunkedArray:
        if self._by_path:
            keys = path_keys(adds["path"], table=self._table)
        else:
            keys = file_keys(adds, table=self._table)
        return pc.is_in(keys, value_set=self._keys)


def path_keys(paths: pa.ChunkedArray, *, table: str) -> pa.ChunkedArray:
    """The keys of paths, without deletion vectors: all spellings of a path have the same key.

    Args:
        paths: as in the log.
        table: the table's location.
    """
    vectors = pa.chunked_array([pa.nulls(len(paths), DELETION_VECTOR_TYPE)])
    columns = pa.Table.from_arrays([paths, vectors], names=list(FILE_KEY_COLUMNS))
    return file_keys(columns, table=table)
