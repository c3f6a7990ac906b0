"""Sort rows in bounded memory, and divide them into new files.

Rows are read once, in any order, into buckets: ranges of keys of some 32 MB. If all rows take no more than
64 MB, the buckets are in memory; otherwise they are temporary files. A new file consists of several
neighbouring buckets, which are sorted one after the other.

If there are more buckets than files may be open, each bucket first has the rows of several, of one new file
or of several, and is split before these are written.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

import numpy as np
import pyarrow as pa

from airflow_delta.engine.arrow.numpy_arrays import Int64Vector
from airflow_delta.engine.maintenance.optimize.sorting.buckets import (
    Buckets,
    check_free_space,
    keys_of,
    spill_errors,
    with_keys,
)
from airflow_delta.engine.maintenance.optimize.sorting.keys import Keys, SortKeys

__all__ = ["CountFiles", "ExternalSort"]

_FITS_IN_MEMORY = 64 << 20
"""The decoded bytes of rows that are sorted without temporary files."""

_BUCKET_BYTES = 32 << 20
_MOST_OPEN = 128
"""The most temporary files that are written to at once while rows are read."""

_MOST_SPLIT = 64
"""Into how many temporary files each thread splits one of these."""

CountFiles = Callable[[Sequence[pa.RecordBatch]], int]
"""Chooses the number of new files by some of the rows."""


@dataclass(frozen=True, slots=True)
class _Division:
    """How sorted rows are divided into pieces. A piece is sorted at once.

    Attributes:
        bounds: the lowest key of each piece but the first.
        per_file: how many neighbouring pieces become a file.
        per_bucket: how many share a bucket at first. One of both is a multiple of the other.
    """

    bounds: Keys
    per_file: int
    per_bucket: int

    @property
    def num_pieces(self) -> int:
        """The number of pieces."""
        return len(self.bounds) + 1

    @property
    def num_buckets(self) -> int:
        """The number of buckets."""
        return -(-self.num_pieces // self.per_bucket)

    @property
    def per_run(self) -> int:
        """How many pieces one thread writes: those of a file, or of a bucket with several files."""
        return max(self.per_file, self.per_bucket)

    def pieces(self, rows: pa.RecordBatch) -> Int64Vector:
        """The number of the piece of each row."""
        return np.searchsorted(self.bounds, keys_of(rows), side="right")


class ExternalSort:
    """The rows of some files in the order of their keys, divided into new files.

    Args:
        keys: computes the keys.
        sample: the keys of a sample of the rows, ascending.
        num_rows: the number of rows.
        count_files: chooses the number of new files.
        stack: closes and deletes the temporary files at its end.

    Attributes:
        num_read: how many rows were read. If none were, there are no files.
    """

    def __init__(
        self,
        keys: SortKeys,
        sample: Keys,
        num_rows: int,
        count_files: CountFiles,
        stack: ExitStack,
    ) -> None:
        self._keys = keys
        self._sample = sample
        self._num_rows = num_rows
        self._count_files = count_files
        self._stack = stack
        self._chance = np.random.default_rng(num_rows)
        self._folder: Path | None = None
        self.num_read = 0

    def read(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Read all rows into buckets; call this once, and first.

        Args:
            batches: the rows: a `Scan`, or its batches.

        Raises:
            DeltaError: the rows can't be read; see `Scan`.
            StorageError: the temporary files can't be written.
        """
        held: list[pa.RecordBatch] = []
        held_bytes = 0
        buckets: Buckets | None = None
        for batch in batches:
            rows = with_keys(batch, self._keys.of_rows(batch, self._chance))
            self.num_read += rows.num_rows
            if buckets is not None:
                self._append(rows, buckets)
                continue
            held.append(rows)
            held_bytes += rows.nbytes
            if held_bytes > _FITS_IN_MEMORY:
                buckets = self._divide(held, held_bytes, spills=True)
                held.clear()
        if self.num_read:
            self._buckets = buckets or self._divide(held, held_bytes, spills=False)
            self._buckets.finish()

    @property
    def num_runs(self) -> int:
        """The number of runs: files, or groups of files, that may be written at the same time."""
        return -(-self._division.num_pieces // self._division.per_run)

    def files(self, run: int) -> Iterator[Iterator[pa.Table]]:
        """The rows of the files of a run, in order; take those of a file before the next one.

        Args:
            run: its number. It can be read only once.

        Raises:
            StorageError: the temporary files can't be read or written.
        """
        division = self._division
        first = run * division.per_run
        end = min(first + division.per_run, division.num_pieces)
        pieces = self._pieces(first, end)
        for _ in range(first, end, division.per_file):
            yield chain.from_iterable(islice(pieces, division.per_file))

    def _pieces(self, first: int, end: int) -> Iterator[Iterator[pa.Table]]:
        """The sorted rows of some neighbouring pieces, whose buckets are split when their turn comes."""
        per_bucket = self._division.per_bucket
        for start in range(first, end, per_bucket):
            number = start // per_bucket
            if per_bucket == 1:
                yield self._buckets.sorted(number)
                continue
            split = self._split(number)
            for piece in range(min(per_bucket, end - start)):
                yield split.sorted(piece)

    def _divide(self, held: list[pa.RecordBatch], held_bytes: int, *, spills: bool) -> Buckets:
        """Decide how to divide the rows, by the first of them, and make the buckets with those."""
        size = held_bytes * self._num_rows // max(1, sum(rows.num_rows for rows in held))
        files = self._count_files(held)
        per_file, per_bucket = _counts(files, -(-size // (files * _BUCKET_BYTES)))
        num_pieces = files * per_file
        positions = np.arange(1, num_pieces) * len(self._sample) // num_pieces
        self._division = _Division(self._sample[positions], per_file, per_bucket)
        if spills:
            self._folder = self._make_folder(size)
        buckets = self._make_buckets(self._division.num_buckets, held[0].schema, self._folder)
        for rows in held:
            self._append(rows, buckets)
        return buckets

    def _append(self, rows: pa.RecordBatch, buckets: Buckets) -> None:
        buckets.append(rows, self._division.pieces(rows) // self._division.per_bucket)

    def _split(self, number: int) -> Buckets:
        """Split a bucket into its pieces."""
        folder = None if self._folder is None else self._folder / f"bucket-{number}"
        if folder is not None:
            with spill_errors(folder):
                folder.mkdir()
        per_bucket = self._division.per_bucket
        found = self._make_buckets(per_bucket, self._buckets.schema, folder)
        for rows in self._buckets.read(number):
            found.append(rows, self._division.pieces(rows) - number * per_bucket)
        self._buckets.delete(number)
        found.finish()
        return found

    def _make_folder(self, size: int) -> Path:
        parent = Path(tempfile.gettempdir())
        check_free_space(parent, size)
        with spill_errors(parent):
            made = tempfile.TemporaryDirectory(
                prefix="airflow-delta-sort-", ignore_cleanup_errors=True
            )
        return Path(self._stack.enter_context(made))

    def _make_buckets(self, count: int, schema: pa.Schema, folder: Path | None) -> Buckets:
        made = Buckets(count, schema, folder)
        self._stack.callback(made.abandon)
        return made


def _counts(files: int, wanted: int) -> tuple[int, int]:
    """How many pieces a file has, and how many a bucket.

    Args:
        files: the number of new files.
        wanted: how many pieces a file should have. It gets fewer, larger ones if too many temporary files
            would be open otherwise. A bucket of more than `_MOST_SPLIT` whole files is left so.
    """
    wanted = max(1, wanted)
    if files * wanted <= _MOST_OPEN:
        return wanted, 1
    if files > _MOST_OPEN:
        shared = -(-files // _MOST_OPEN)
        per_file = min(wanted, max(1, _MOST_SPLIT // shared))
        return per_file, per_file * shared
    buckets = _MOST_OPEN // files
    per_bucket = min(_MOST_SPLIT, -(-wanted // buckets))
    return per_bucket * min(buckets, -(-wanted // per_bucket)), per_bucket
