"""One Parquet file for a reader of actions: its footer, and batches of its columns.

The footer has the number of nulls of each leaf in each row group, by which row groups and leaves are
skipped. Nothing else of the statistics of the file is used.

All damage that Arrow finds, in the footer, in pages or in the checksum of a page, raises
`CorruptLogError` with the path of the file. Not all writers store such checksums; this engine does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_delta.engine.errors import CorruptLogError
from airflow_delta.engine.model.lazy import lazy_property
from airflow_delta.engine.parquet import PyarrowFallback, has_encrypted_columns, read_file_end
from airflow_delta.engine.storage.base import FileInfo, Storage

__all__ = ["ParquetSource"]

# The errors that Arrow raises for a damaged file. Errors of the storage have other types: the files that
# it opens raise no OSError.
_DAMAGE = (pa.ArrowException, OSError, IndexError, ValueError, PyarrowFallback)

_LOCAL_BUFFER = 1 << 20


class ParquetSource:
    """A Parquet file. Everything is read when it is needed, and the footer only once.

    Args:
        storage: the table's storage.
        file: the file; its known size saves a request.
        slice_rows: the most rows in a batch.
        exact_size: whether a file of another size counts as damaged. Costs the saved request.
    """

    def __init__(
        self, storage: Storage, file: FileInfo, *, slice_rows: int, exact_size: bool = False
    ) -> None:
        self._exact_size = exact_size
        self._storage = storage
        self._file = file
        self._slice_rows = slice_rows

    @property
    def footer(self) -> Any:
        """The footer, a ``pyarrow.parquet.FileMetaData``.

        Raises:
            CorruptLogError: the file is no Parquet file, or has another size than expected.
            ObjectNotFoundError: the file doesn't exist.
        """
        return self._head[0]

    @property
    def leaf_paths(self) -> dict[tuple[str, ...], int]:
        """The paths of the leaves as tuples of names, with their indexes; see `footer` for errors."""
        return self._head[1]

    @lazy_property
    def _head(self) -> tuple[Any, dict[tuple[str, ...], int]]:
        path, size = self._file.path, self._file.size
        # `open` trusts the size, so `head` checks it.
        if self._exact_size and (found := self._storage.head(path).size) != size:
            raise self.corrupt(f"it has {found} bytes, expected {size}")
        with self.damage(), self._storage.open(path, size=size) as source:
            end = read_file_end(source)
            reader = pq.ParquetFile(pa.BufferReader(end)).reader
            if has_encrypted_columns(end, reader.metadata.serialized_size):
                raise self.corrupt("it has encrypted columns, and the engine has no keys")
            paths = {tuple(path): index for index, path in enumerate(reader.column_paths)}
            return reader.metadata, paths

    @lazy_property
    def leaves(self) -> dict[str, int]:
        """The dotted paths of the leaves, with their indexes."""
        schema = self.footer.schema
        return {schema.column(index).path: index for index in range(len(schema))}

    @lazy_property
    def int96_leaves(self) -> frozenset[str]:
        """The INT96 leaves, which are in UTC by convention although their Arrow type has no zone."""
        schema = self.footer.schema
        return frozenset(
            path
            for path, index in self.leaves.items()
            if schema.column(index).physical_type == "INT96"
        )

    def has(self, column: str) -> bool:
        """Whether there is a leaf at or below a dotted path."""
        return column in self._columns

    @lazy_property
    def _columns(self) -> frozenset[str]:
        """The dotted paths of the leaves, and of all nodes above them."""
        names = (leaf.split(".") for leaf in self.leaves)
        return frozenset(
            ".".join(parts[:depth]) for parts in names for depth in range(1, len(parts) + 1)
        )

    def type_of(self, *path: str) -> pa.DataType:
        """The Arrow type of an existing column, given by its names from the top down."""
        with self.damage():
            fields = self._schema
            for name in path[:-1]:
                fields = fields.field(name).type
            return fields.field(path[-1]).type

    @lazy_property
    def _schema(self) -> pa.Schema:
        return self.footer.schema.to_arrow_schema()

    def nulls(self, group: int, leaf: str) -> int | None:
        """The number of nulls of a leaf in a row group; None if the footer lacks it."""
        chunk = self.footer.row_group(group).column(self.leaves[leaf])
        if not chunk.is_stats_set or not chunk.statistics.has_null_count:
            return None
        return int(chunk.statistics.null_count)

    def stored_bytes(self, group: int, leaf: str) -> int:
        """The number of bytes that a leaf takes in a row group of the file."""
        chunk = self.footer.row_group(group).column(self.leaves[leaf])
        return int(chunk.total_compressed_size)

    def all_null(self, group: int, leaf: str) -> bool:
        """Whether a leaf that isn't repeated is null in all rows of a row group, by the footer."""
        return self.nulls(group, leaf) == self.rows(group)

    def rows(self, group: int) -> int:
        """The number of rows of a row group."""
        return int(self.footer.row_group(group).num_rows)

    def is_large(self, group: int) -> bool:
        """Whether a row group is decoded in several slices."""
        return self.rows(group) > self._slice_rows

    def batches(
        self,
        group: int,
        columns: Sequence[str],
        *,
        rows: int | None = None,
        texts_once: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """Decode columns of a row group, in slices.

        A large row group is decoded on Arrow's threads, another one on the calling thread. Errors are
        those of Arrow: see `damage`.

        Args:
            group: the number of the row group.
            columns: dotted paths.
            rows: the number of rows in a slice; None for the usual one.
            texts_once: return texts as dictionaries, so that a text that a few bytes of the file repeat a
                million times takes its memory once.
        """
        remote, large = self._storage.capabilities.remote, self.is_large(group)
        with self._storage.open(self._file.path, size=self._file.size) as source:
            file = pq.ParquetFile(
                source,
                metadata=self.footer,
                page_checksum_verification=True,
                # Over a network one large read is faster than many; on a disk, small ones save memory.
                pre_buffer=remote,
                buffer_size=_LOCAL_BUFFER if large and not remote else 0,
                # Nanoseconds, the default, can't represent all years that occur in statistics.
                coerce_int96_timestamp_unit="us",
                read_dictionary=self._texts(columns) if texts_once else None,
            )
            yield from file.iter_batches(
                batch_size=rows or self._slice_rows,
                row_groups=[group],
                columns=list(columns),
                use_threads=large,
            )

    def _texts(self, columns: Sequence[str]) -> list[str]:
        """The leaves at or below columns that hold texts."""
        schema = self.footer.schema
        return [
            leaf
            for leaf, index in self.leaves.items()
            if any(leaf == column or leaf.startswith(f"{column}.") for column in columns)
            and schema.column(index).physical_type == "BYTE_ARRAY"
        ]

    @contextmanager
    def damage(self) -> Iterator[None]:
        """Convert the errors that Arrow raises inside the block into `CorruptLogError`."""
        try:
            yield
        except _DAMAGE as error:
            raise self.corrupt(f"it can't be read as Parquet: {error}") from error

    def corrupt(self, finding: str) -> CorruptLogError:
        """Create the error about damage of the file."""
        return CorruptLogError(
            f"{self._file.path} is damaged: {finding}. An earlier checkpoint, or the commits where "
            "they are still there, may hold what it held",
            table=self._storage.root,
            path=self._file.path,
        )
