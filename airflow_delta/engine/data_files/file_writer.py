"""Write rows into a Parquet file: row groups of a good size, encoded by what is in the columns.

* A column is encoded with a dictionary only if its values repeat: for other columns the dictionary is
  built, given up, and paid for. The first row group decides, by a sample.
* Row groups have up to a quarter of a million rows, and about 64 MB of decoded values, so that writing
  needs little memory. In a file that is to be small they have less, so that its size is known in time.
* Pages have checksums and an index.

Minimum and maximum in the footer leave out NaN, so the writer records which columns have one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from airflow_delta.engine.features.schema_walk import SchemaPath

__all__ = ["FileWriter"]

_GROUP_ROWS = 1 << 18
_GROUP_BYTES = 64 << 20

_SAMPLE_ROWS = 1 << 16
_REPEATED = 10
"""A dictionary is worth it if each value of the sample occurs so often, on average."""

_CODECS = {"uncompressed": "none", "lz4_raw": "lz4"}
"""pyarrow's names of codecs, where they aren't Spark's."""


class FileWriter:
    """A Parquet file in the making.

    Args:
        file: where it is written.
        schema: its schema, from `parquet_schema`.
        compression: Spark's name of a codec.
        max_file_size: the bytes that the file shall have at most, about; None for any number.

    Attributes:
        num_rows: the rows that were given so far.
    """

    def __init__(
        self,
        file: BinaryIO,
        schema: pa.Schema,
        *,
        compression: str,
        max_file_size: int | None = None,
    ) -> None:
        self._file = file
        self._schema = schema
        self._compression = _CODECS.get(compression, compression)
        self._writer: pq.ParquetWriter | None = None
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = self._waiting_bytes = self._written_bytes = 0
        self._group_bytes = min(_GROUP_BYTES, (max_file_size or 2 * _GROUP_BYTES) // 2)
        self._nan: set[SchemaPath] = set()
        self._footers: list[Any] = []
        self.num_rows = 0

    @property
    def size(self) -> int:
        """The bytes that were written so far; the rows of the current row group aren't among them."""
        return self._file.tell()

    @property
    def expected_size(self) -> int | None:
        """The size with the rows of the current row group, about; None if no row group is written yet."""
        if not self._written_bytes:
            return None
        return self.size * (self._written_bytes + self._waiting_bytes) // self._written_bytes

    @property
    def nan_columns(self) -> frozenset[SchemaPath]:
        """The columns of floats that have a NaN."""
        return frozenset(self._nan)

    def write(self, rows: pa.RecordBatch) -> None:
        """Append rows, with the columns of the schema in order.

        Raises:
            StorageError: the store failed.
        """
        self._waiting.append(rows)
        self._waiting_rows += rows.num_rows
        self._waiting_bytes += rows.nbytes
        self.num_rows += rows.num_rows
        if self._waiting_rows >= _GROUP_ROWS or self._waiting_bytes >= self._group_bytes:
            self._write_group()

    def close(self) -> Any:
        """Write the last row group and the footer.

        Returns:
            The footer, a ``pyarrow.parquet.FileMetaData``.

        Raises:
            StorageError: the store failed.
        """
        if self._waiting_rows or self._writer is None:
            self._write_group()
        assert self._writer is not None
        self._writer.close()
        return self._footers[0]

    def abandon(self) -> None:
        """Give the file up. What was written of it is no Parquet file."""
        if self._writer is not None:
            # Otherwise it would write a footer when it is collected.
            self._writer.is_open = False

    def _write_group(self) -> None:
        rows = (
            pa.Table.from_batches(
                [batch.rename_columns(self._schema.names) for batch in self._waiting]
            )
            if self._waiting
            else self._schema.empty_table()
        )
        rows = rows.cast(self._schema)
        self._waiting.clear()
        self._written_bytes += self._waiting_bytes
        self._waiting_rows = self._waiting_bytes = 0
        if self._writer is None:
            self._writer = pq.ParquetWriter(
                self._file,
                self._schema,
                compression=self._compression,
                compression_level=1 if self._compression == "zstd" else None,
                use_dictionary=_repeated_leaves(rows),
                # Dictionaries of Arrow and other types of its own aren't restored when the file is read.
                store_schema=False,
                # As Spark writes them, and several times as fast to read.
                store_decimal_as_integer=True,
                write_page_index=True,
                write_page_checksum=True,
                metadata_collector=self._footers,
            )
        self._find_nan(rows)
        self._writer.write_table(rows, row_group_size=max(1, rows.num_rows))

    def _find_nan(self, rows: pa.Table) -> None:
        for name, column in zip(rows.column_names, rows.columns, strict=True):
            for path, values in _struct_leaves((name,), column):
                if (
                    pa.types.is_floating(values.type)
                    and path not in self._nan
                    and pc.any(pc.is_nan(values)).as_py()
                ):
                    self._nan.add(path)


def _struct_leaves(
    path: SchemaPath, values: pa.ChunkedArray
) -> Iterator[tuple[SchemaPath, pa.ChunkedArray]]:
    """The columns inside structs, of those that statistics may have."""
    if not pa.types.is_struct(values.type):
        yield path, values
        return
    for index in range(values.type.num_fields):
        name = values.type.field(index).name
        yield from _struct_leaves((*path, name), pc.struct_field(values, [index]))


def _repeated_leaves(rows: pa.Table) -> list[str]:
    """The leaves whose values repeat, by their paths in Parquet."""
    found = []
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        # A row group of many small batches would show only its first rows.
        sample = column.slice(0, _SAMPLE_ROWS).combine_chunks()
        for path, values in _parquet_leaves(name, sample):
            present = len(values) - values.null_count
            if present and pc.count_distinct(values).as_py() * _REPEATED <= present:
                found.append(path)
    return found


def _parquet_leaves(path: str, values: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    types = pa.types
    if types.is_struct(values.type):
        for index in range(values.type.num_fields):
            name = values.type.field(index).name
            yield from _parquet_leaves(f"{path}.{name}", pc.struct_field(values, [index]))
    elif types.is_map(values.type):
        yield from _parquet_leaves(f"{path}.key_value.key", values.keys)
        yield from _parquet_leaves(f"{path}.key_value.value", values.items)
    elif types.is_list(values.type):
        yield from _parquet_leaves(f"{path}.list.element", values.flatten())
    elif not types.is_boolean(values.type):
        yield path, values
