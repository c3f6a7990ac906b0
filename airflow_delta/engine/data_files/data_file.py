"""Open one data file: its footer, its batches, and errors that name it.

A data file is a Parquet file that an ``add`` names. It is opened through `FileAccess`, so only where the
table may read. Arrow reads it through Python, because the storage follows no links, and because it raises
typed errors where Arrow has only one.
"""

from __future__ import annotations

import os
import zlib
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.parquet.core import ParquetReader

from airflow_delta.engine.arrow.memory_pool import decoding_pool
from airflow_delta.engine.data_files.batch_sizes import first_rows, most_bytes, next_rows
from airflow_delta.engine.data_files.hybrid_calendar import HybridCalendar, calendar_of
from airflow_delta.engine.errors import (
    CorruptLogError,
    DataFileError,
    DeltaError,
    MissingFilesError,
    ObjectNotFoundError,
    UnsupportedFeatureError,
)
from airflow_delta.engine.model.lazy import lazy_property
from airflow_delta.engine.model.paths import resolve
from airflow_delta.engine.parquet import (
    ARROW_SCHEMA,
    FOOTER_END,
    PyarrowFallback,
    StoredFile,
    has_encrypted_columns,
    hide_arrow_schema,
    read_file_end,
    read_stored_file,
)
from airflow_delta.engine.storage.file_access import FileAccess

__all__ = ["DataFile"]

# The errors that Arrow raises for a damaged file. Errors of the storage have other types.
_DAMAGE = (pa.ArrowException, OSError, IndexError, KeyError, ValueError, PyarrowFallback)

_VIEWS = (
    pa.types.is_string_view,
    pa.types.is_binary_view,
    pa.types.is_list_view,
    pa.types.is_large_list_view,
)

_MAX_GAP = 64 << 10
"""Ranges with a smaller gap between them are read by one request."""

_BUFFER = 256 << 10
"""The bytes that are read at a time of each column, on a disk."""


class DataFile:
    """A data file of a version. Several threads may use it: each call opens the file for itself.

    Args:
        path: the path, as in the log.
        size: the size in bytes, as in the log; None if its writer has left it out.
        access: opens the files of the table.
        version: the version of the table, for messages.
    """

    def __init__(self, path: str, size: int | None, access: FileAccess, *, version: int) -> None:
        self.path = path
        self._size = size
        self._access = access
        self._version = version
        self._is_remote = False

    @property
    def table(self) -> str:
        """The table's location."""
        return self._access.storage.root

    @property
    def size(self) -> int:
        """The size in bytes, as in the log.

        Raises:
            CorruptLogError: the log lacks it.
        """
        if self._size is None:
            raise CorruptLogError(
                f"the add of the data file {self.path!r} in version {self._version} has no size, which "
                "the protocol requires: its writer is at fault; DeltaTable.restore() to a version "
                "without the file, and write its rows again",
                table=self.table,
                path=self.path,
                version=self._version,
            )
        return self._size

    @property
    def footer(self) -> Any:
        """The footer, a ``pyarrow.parquet.FileMetaData``.

        Raises:
            MissingFilesError: the file doesn't exist.
            DataFileError: the file is no Parquet file, or has another size than in the log.
            CorruptLogError: the log lacks its size.
            UnsupportedFeatureError: the file has encrypted columns.
            OutsidePathError: the table may not read there.
            StorageError: the store failed.
        """
        return self._head[0]

    @property
    def schema(self) -> pa.Schema:
        """The schema, in the types of the batches, with field ids as metadata; see `footer` for errors."""
        return self._head[1]

    @property
    def calendar(self) -> HybridCalendar | None:
        """What the file counts in the hybrid calendar; see `footer` for errors."""
        return self._head[2]

    @lazy_property
    def _head(self) -> tuple[Any, pa.Schema, HybridCalendar | None]:
        with self._source() as source, self.errors():
            end = read_file_end(source)
            file = self._open(pa.BufferReader(end), None)
            if has_encrypted_columns(end, file.metadata.serialized_size):
                raise self._encrypted()
            calendar = calendar_of(file.metadata)
            if any(_is_unsuitable(type_) for type_ in file.schema_arrow.types):
                # Arrow can't select rows of views, nor read inner dictionaries in several pieces, and each
                # batch would hold the whole of an outer dictionary. Without its own schema Arrow takes them
                # for texts and lists.
                file = self._open(source, self._plain_footer(source, file.metadata))
            # Not the schema of the footer, where INT96 is in nanoseconds.
            return file.metadata, file.schema_arrow, calendar

    def batches(
        self, row_groups: Sequence[int], columns: Sequence[str], *, rows: int, size: int
    ) -> Iterator[pa.RecordBatch]:
        """Decode columns of some row groups.

        Args:
            row_groups: the numbers of the row groups, ascending.
            columns: names of columns at the top of the schema, at least one.
            rows: the most rows in a batch.
            size: the most decoded bytes in a batch, about.

        Raises:
            DataFileError: the file is damaged.
            MissingFilesError, StorageError: as `footer`.
        """
        footer = self.footer
        wanted = set(columns)
        with self._source() as source, self.errors():
            reader = self._open(source, footer)
            leaves = [
                number for number, path in enumerate(reader.column_paths) if path[0] in wanted
            ]
            largest = most_bytes(footer, row_groups, leaves, rows)
            batches = reader.iter_batches(
                first_rows(largest, rows=rows, size=size),
                row_groups=list(row_groups),
                column_indices=leaves,
                # A thread of Arrow would wait for Python with each read.
                use_threads=False,
            )
            for batch in batches:
                reader.set_batch_size(next_rows(batch, rows=rows, size=size))
                yield batch

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Read some ranges; those that lie close together by one request.

        Args:
            ranges: the start and the length of each.

        Raises:
            DataFileError: a range isn't in the file.
            MissingFilesError, OutsidePathError, StorageError: see `footer`.
        """
        blocks: list[tuple[int, int]] = []
        for start, length in sorted(ranges):
            if blocks and start - blocks[-1][1] <= _MAX_GAP:
                blocks[-1] = blocks[-1][0], max(blocks[-1][1], start + length)
            else:
                blocks.append((start, start + length))
        with self._source() as source:
            found = [(start, self._read(source, start, end - start)) for start, end in blocks]
        starts = [start for start, _ in found]
        contents = []
        for start, length in ranges:
            first, data = found[bisect_right(starts, start) - 1]
            contents.append(data[start - first : start - first + length])
        return contents

    def open_extract(self, data: bytes) -> ParquetReader:
        """Open a Parquet file in memory, made of pages of this file, as this file is opened.

        Args:
            data: the bytes.

        Raises:
            DataFileError: they are damaged.
        """
        with self.errors():
            return self._open(pa.BufferReader(data), None)

    def stored(self) -> StoredFile:
        """The row groups of the file, for copying.

        Raises:
            PyarrowFallback: they can't be copied; see `read_stored_file`.
            MissingFilesError, DataFileError, OutsidePathError, StorageError: see `footer`.
        """
        with self._source() as source:
            return read_stored_file(source, size=self.size)

    def read_groups(self, stored: StoredFile) -> Iterator[bytes]:
        """Read the bytes of the row groups of the file, each when it is needed.

        Args:
            stored: the row groups, from `stored`.

        Raises:
            DataFileError: the file was replaced since its footer was read, even by one of the same size.
            MissingFilesError, OutsidePathError, StorageError: see `footer`.
        """
        with self._source() as source:
            for group in stored.groups:
                yield self._read(source, group.start, group.length)
            # The row groups are those of the footer only if it is still the same after the last of them.
            footer = self._read(source, stored.footer_start, stored.footer_length)
            if zlib.crc32(footer) != stored.footer_checksum:
                raise self.error("it was changed while it was copied")

    def _plain_footer(self, source: BinaryIO, footer: Any) -> Any:
        """The footer without Arrow's own schema."""
        length = footer.serialized_size + FOOTER_END
        data = hide_arrow_schema(self._read(source, self.size - length, length))
        plain = pq.read_metadata(pa.BufferReader(data))
        if ARROW_SCHEMA in plain.metadata:
            raise PyarrowFallback("Arrow's schema in its footer isn't where it should be")
        return plain

    def _read(self, source: BinaryIO, start: int, length: int) -> bytes:
        source.seek(start, os.SEEK_SET)
        data = source.read(length)
        if len(data) != length:
            raise self.error(f"it ends after {start + len(data)} bytes")
        return data

    @contextmanager
    def _source(self) -> Iterator[BinaryIO]:
        """Open the file, and check its size if that needs no request."""
        storage, path = self._access.locate(resolve(self.table, self.path))
        try:
            with storage.open(path, size=self.size) as source:
                self._is_remote = storage.capabilities.remote
                if not self._is_remote and source.seek(0, os.SEEK_END) != self.size:
                    raise self.error(f"it has {source.tell()} bytes, and {self.size} in the log")
                yield source
        except ObjectNotFoundError as error:
            raise self._missing() from error

    def _open(self, source: BinaryIO, footer: Any) -> ParquetReader:
        # Not a `ParquetFile`, which takes all memory from the default pool.
        reader = ParquetReader(decoding_pool())
        reader.open(
            source,
            metadata=footer,
            page_checksum_verification=True,
            # Over a network one large read is faster than many; on a disk small ones save memory.
            pre_buffer=self._is_remote,
            buffer_size=0 if self._is_remote else _BUFFER,
            # In nanoseconds, the default, the year 9999 becomes 1816.
            coerce_int96_timestamp_unit="us",
            arrow_extensions_enabled=False,
        )
        return reader

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Turn the errors of Arrow inside the block into `DataFileError`."""
        try:
            yield
        except (DeltaError, MemoryError):
            raise
        except _DAMAGE as error:
            raise self.error(f"it can't be read as Parquet: {error}") from error

    def error(self, finding: str) -> DataFileError:
        """Make the error about the file.

        Args:
            finding: what is wrong with it.
        """
        return DataFileError(
            f"the data file {self.path!r} of version {self._version} is damaged, or was changed after it "
            f"was added: {finding}; put back the file as it was, or DeltaTable.restore() to a version "
            "without it",
            table=self.table,
            path=self.path,
            version=self._version,
        )

    def old_time(self, column: str) -> UnsupportedFeatureError:
        """Make the error about a time whose value depends on a time zone.

        Args:
            column: its column.
        """
        return UnsupportedFeatureError(
            f"the data file {self.path!r} of version {self._version}: the column {column!r} has a time "
            "before 1900, which Spark has written in the hybrid calendar (LEGACY), where its value depends "
            "on a time zone: read the rows with Spark, or let Spark rewrite the file, by OptimizeOperator "
            'with engine="spark", or OPTIMIZE of Delta Spark',
            table=self.table,
            path=self.path,
            column=column,
            version=self._version,
        )

    def _encrypted(self) -> UnsupportedFeatureError:
        return UnsupportedFeatureError(
            f"the data file {self.path!r} of version {self._version} has encrypted columns, and the engine "
            "has no keys: read the table with Spark, in a session that has them",
            table=self.table,
            path=self.path,
            version=self._version,
        )

    def _missing(self) -> MissingFilesError:
        return MissingFilesError(
            f"the data file {self.path!r} of version {self._version} doesn't exist, perhaps because of a "
            "vacuum: read a newer version, put back the file, or DeltaTable.restore() to a version "
            "without it",
            table=self.table,
            path=self.path,
            paths=(self.path,),
            num_missing=1,
            version=self._version,
        )


def _is_unsuitable(type_: pa.DataType) -> bool:
    """Whether a type of Arrow's own schema is a view or a dictionary, or has one inside."""
    return (
        pa.types.is_dictionary(type_)
        or any(is_view(type_) for is_view in _VIEWS)
        or any(_is_unsuitable(type_.field(index).type) for index in range(type_.num_fields))
    )
