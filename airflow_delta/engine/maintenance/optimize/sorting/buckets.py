"""Rows by ranges of their sort keys, in memory or in temporary files.

A bucket is a range of keys. Rows come in any order; a bucket is read, sorted and deleted as a whole. Files
are streams of Arrow's IPC format, uncompressed: writing them is cheaper than compressing them.
"""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pyarrow as pa

from airflow_delta.engine.arrow.numpy_arrays import Int64Vector, bool_array, int64_array
from airflow_delta.engine.errors import StorageError
from airflow_delta.engine.maintenance.optimize.sorting.keys import Keys
from airflow_delta.engine.model.sizes import size_text

__all__ = ["Buckets", "check_free_space", "keys_of", "spill_errors", "with_keys"]

_LARGEST = 512 << 20
"""A bucket with more bytes, which a sample hasn't foreseen, is sorted in several parts."""

_BUFFER = 64 << 10

_KEY = pa.field("", pa.uint64())


class Buckets:
    """Rows by the number of their bucket. One thread appends them, then several may read.

    Args:
        count: the number of buckets.
        schema: the schema of the rows; the last column has their keys.
        folder: the folder of their files, which exists; None to keep them in memory.

    Attributes:
        schema: the schema.
    """

    def __init__(self, count: int, schema: pa.Schema, folder: Path | None) -> None:
        self.schema = schema
        self._folder = folder
        self._in_memory: list[list[pa.RecordBatch]] = [[] for _ in range(count)]
        self._writers: dict[int, tuple[pa.NativeFile, pa.RecordBatchWriter]] = {}
        self._bytes = [0] * count

    def append(self, rows: pa.RecordBatch, numbers: Int64Vector) -> None:
        """Append rows.

        Args:
            rows: the rows.
            numbers: the number of the bucket of each.

        Raises:
            StorageError: the temporary files can't be written, perhaps because the disk is full.
        """
        small = numbers.astype(np.uint16)
        # Of 16 bits numpy sorts in linear time.
        order = np.argsort(small, kind="stable")
        rows = rows.take(int64_array(order))
        counts = np.bincount(small)
        ends = np.cumsum(counts)
        # A loop over buckets, of which there are a few hundred at most.
        for number in np.flatnonzero(counts).tolist():
            part = rows.slice(ends[number] - counts[number], counts[number])
            self._bytes[number] += part.nbytes
            if self._folder is None:
                self._in_memory[number].append(part)
            else:
                with spill_errors(self._folder):
                    self._writer(number).write_batch(part)

    def finish(self) -> None:
        """Complete the files; see `append` for the errors."""
        if self._folder is not None:
            with spill_errors(self._folder):
                for file, writer in self._writers.values():
                    writer.close()
                    file.close()
        self._writers.clear()

    def abandon(self) -> None:
        """Close the files without completing them."""
        for file, _ in self._writers.values():
            with suppress(OSError, pa.ArrowException):
                file.close()
        self._writers.clear()

    def read(self, number: int) -> Iterator[pa.RecordBatch]:
        """The rows of a bucket.

        Raises:
            StorageError: its file can't be read.
        """
        if self._folder is None:
            yield from self._in_memory[number]
        elif self._bytes[number]:
            with (
                spill_errors(self._folder),
                pa.OSFile(self._path(number), "rb") as file,
                pa.ipc.open_stream(file) as reader,
            ):
                yield from reader

    def sorted(self, number: int) -> Iterator[pa.Table]:
        """The rows of a bucket in the order of their keys, as tables without the keys; then delete it.

        Raises:
            StorageError: its file can't be read.
        """
        parts = -(-self._bytes[number] // _LARGEST)
        if parts == 1:
            yield _sorted(list(self.read(number)))
        elif parts:
            for low, high in self._key_ranges(number, parts):
                yield _sorted([_between(rows, low, high) for rows in self.read(number)])
        self.delete(number)

    def delete(self, number: int) -> None:
        """Delete the rows of a bucket."""
        self._in_memory[number] = []
        if self._folder is not None:
            Path(self._path(number)).unlink(missing_ok=True)

    def _key_ranges(self, number: int, parts: int) -> list[tuple[int, int]]:
        """Ranges with equally many keys of a bucket: the lowest key of each, and the highest one."""
        keys = np.sort(np.concatenate([keys_of(rows) for rows in self.read(number)]))
        starts = np.unique(keys[np.arange(parts) * len(keys) // parts])
        ends = np.append(starts[1:] - np.uint64(1), keys[-1])
        return list(zip(starts.tolist(), ends.tolist(), strict=True))

    def _writer(self, number: int) -> pa.RecordBatchWriter:
        if number not in self._writers:
            file = pa.BufferedOutputStream(pa.OSFile(self._path(number), "wb"), _BUFFER)
            self._writers[number] = (file, pa.ipc.new_stream(file, self.schema))
        return self._writers[number][1]

    def _path(self, number: int) -> str:
        assert self._folder is not None
        return str(self._folder / f"{number}.arrows")


def with_keys(rows: pa.RecordBatch, keys: Keys) -> pa.RecordBatch:
    """Rows with their keys as a last column."""
    array = pa.Array.from_buffers(_KEY.type, len(keys), [None, pa.py_buffer(keys)], 0)
    # By position: a column of the table may have any name.
    return pa.RecordBatch.from_arrays([*rows.columns, array], schema=rows.schema.append(_KEY))


def keys_of(rows: pa.RecordBatch) -> Keys:
    """The keys of rows, over the same memory."""
    return _unsigned(rows.column(rows.num_columns - 1))


def _sorted(batches: list[pa.RecordBatch]) -> pa.Table:
    """Rows in the order of their keys, without the keys."""
    rows = pa.Table.from_batches(batches).combine_chunks()
    last = rows.num_columns - 1
    without = rows.remove_column(last)
    if not rows.num_rows:
        return without
    keys = np.concatenate([_unsigned(chunk) for chunk in rows.column(last).chunks])
    return without.take(int64_array(_order(keys)))


def _order(keys: Keys) -> Int64Vector:
    """The order of keys. Keys that differ little may be in either order."""
    low = keys.min()
    index_bits = len(keys).bit_length()
    # The key and, below it, the index: to sort numbers is several times as fast as to sort indexes.
    excess = max(0, int(keys.max() - low).bit_length() + index_bits - 64)
    shifted = ((keys - low) >> np.uint64(excess)) << np.uint64(index_bits)
    ordered = np.sort(shifted | np.arange(len(keys), dtype=np.uint64))
    return np.asarray(ordered & np.uint64((1 << index_bits) - 1), np.int64)


def _unsigned(array: pa.Array) -> Keys:
    return np.frombuffer(array.buffers()[1], np.uint64, len(array), array.offset * 8)


def _between(rows: pa.RecordBatch, low: int, high: int) -> pa.RecordBatch:
    keys = keys_of(rows)
    return rows.filter(bool_array((keys >= np.uint64(low)) & (keys <= np.uint64(high))))


def check_free_space(folder: Path, needed: int) -> None:
    """Check that a folder has space for some bytes.

    Raises:
        StorageError: it has less.
    """
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise StorageError(
            f"sorting needs about {size_text(needed)} for temporary files, and the folder {str(folder)!r} "
            f"has {size_text(free)} left: choose another by the environment variable TMPDIR, or sort less "
            "at once (where, max_bytes)",
            path=str(folder),
            operation="sort",
        )


@contextmanager
def spill_errors(folder: Path) -> Iterator[None]:
    """Turn the errors of temporary files inside the block into `StorageError`."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        why = "perhaps because the disk is full"
        remedy = "choose another folder by the environment variable TMPDIR"
        if getattr(error, "errno", None) in (errno.EMFILE, errno.ENFILE):
            why, remedy = "because too many files are open", "raise that limit (ulimit -n)"
        raise StorageError(
            f"the temporary files of the sort in {str(folder)!r} can't be written or read, {why}: {error}; "
            f"{remedy}, or sort less at once (where, max_bytes)",
            path=str(folder),
            operation="sort",
        ) from error
