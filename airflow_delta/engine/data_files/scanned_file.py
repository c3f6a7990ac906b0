"""One file of a scan: where the values of its columns come from, and the parts in which it is read.

The values come from the file itself, from the log (partition values), or from both (row ids). A file is
split into parts of whole row groups; tiny neighbours share a part.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.numpy_arrays import Int64Vector, bool_array, int64_array
from airflow_delta.engine.arrow.python_arrays import scalar_of
from airflow_delta.engine.data_files.batch_sizes import holdable
from airflow_delta.engine.data_files.data_file import DataFile
from airflow_delta.engine.data_files.file_columns import FileColumn
from airflow_delta.engine.data_files.request import TrackingColumns

__all__ = ["FilePart", "PageReader", "RowIds", "ScannedFile", "split_file"]

_PART_ROWS = 100_000
"""Neighbouring row groups share a part up to so many rows."""

_BATCH_BYTES = 32 << 20
"""The decoded bytes of a batch, about: of wide rows it has fewer."""


@dataclass(frozen=True, slots=True)
class RowIds:
    """The sources of the row ids and row commit versions of a file.

    Attributes:
        base: the default row id of the first row.
        version: the default row commit version.
        stored: the hidden columns that the file has.
    """

    base: int
    version: int
    stored: TrackingColumns

    @property
    def names(self) -> list[str]:
        """The hidden columns to read."""
        return [name for name in (self.stored.row_id, self.stored.row_commit_version) if name]

    def columns(self, rows: pa.RecordBatch, positions: Int64Vector) -> list[pa.Array]:
        """The row ids and the row commit versions of some rows.

        Args:
            rows: the rows, as the file has them.
            positions: their positions in the file.
        """
        ids = int64_array(positions + self.base)
        versions = pa.repeat(scalar_of(self.version, pa.int64()), len(positions))
        return [
            default if name is None else pc.coalesce(rows.column(name).cast(pa.int64()), default)
            for name, default in (
                (self.stored.row_id, ids),
                (self.stored.row_commit_version, versions),
            )
        ]


@dataclass(frozen=True, slots=True)
class ScannedFile:
    """A file of a scan.

    Attributes:
        file: the file.
        columns: its columns by the names in the table.
        constants: the values that all of its rows share: those of partition columns.
        deleted: the deleted rows, ascending; None for none.
        row_ids: the sources of row ids; None if they aren't requested.
    """

    file: DataFile
    columns: Mapping[str, FileColumn]
    constants: Mapping[str, pa.Scalar]
    deleted: Int64Vector | None
    row_ids: RowIds | None

    def stored(self, names: Sequence[str]) -> list[str]:
        """The names in the file of those columns that it has."""
        found = (self.columns[name].stored for name in names if name in self.columns)
        return list(dict.fromkeys(name for name in found if name is not None))

    def column(self, name: str, rows: pa.RecordBatch) -> pa.Array:
        """A column of the table for rows of the file."""
        if name in self.constants:
            return pa.repeat(self.constants[name], rows.num_rows)
        return self.columns[name].convert(rows, self.file)

    def kept(self, start: int, num_rows: int) -> pa.BooleanArray | None:
        """Which of some rows aren't deleted; None if none is."""
        if self.deleted is None:
            return None
        first, end = np.searchsorted(self.deleted, (start, start + num_rows))
        if first == end:
            return None
        kept = np.ones(num_rows, np.bool_)
        kept[self.deleted[first:end] - start] = False
        return bool_array(kept)


class PageReader(Protocol):
    """Reads neighbouring rows of a row group, by their pages."""

    def batches(
        self, start: int, num_rows: int, names: Sequence[str], *, rows: int, size: int
    ) -> Iterator[pa.RecordBatch]:
        """Read the rows.

        Args:
            start: the position of the first row in the file.
            num_rows: the number of rows.
            names: the columns to read, by their names in the file.
            rows: the most rows in a batch.
            size: the most decoded bytes in a batch, about.
        """


@dataclass(frozen=True, slots=True)
class FilePart:
    """Neighbouring row groups of a file, or neighbouring rows of a row group.

    Attributes:
        source: the file.
        row_groups: the numbers of the row groups.
        start: the position of the first row in the file.
        num_rows: the number of rows.
        batch_rows: the most rows in a batch.
        pages: reads the rows of a part of a row group; None for whole row groups.
    """

    source: ScannedFile
    row_groups: tuple[int, ...]
    start: int
    num_rows: int
    batch_rows: int
    pages: PageReader | None = None

    def stored_batches(self, names: Sequence[str]) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The rows as the file has them, with the position of the first row of each batch.

        Args:
            names: the columns to read, by their names in the file; may be none.

        Raises:
            DataFileError: the file is damaged.
            MissingFilesError, StorageError: as `DataFile.batches`.
        """
        file, position, end = self.source.file, self.start, self.start + self.num_rows
        if not names:  # Only the number of rows counts.
            while position < end:
                num_rows = min(self.batch_rows, end - position)
                yield position, pa.RecordBatch.from_arrays([pa.nulls(num_rows)], names=[""])
                position += num_rows
            return
        if self.pages is None:
            batches = file.batches(self.row_groups, names, rows=self.batch_rows, size=_BATCH_BYTES)
        else:
            batches = self.pages.batches(
                position, self.num_rows, names, rows=self.batch_rows, size=_BATCH_BYTES
            )
        for batch in batches:
            for rows in holdable(batch):
                yield position, rows
                position += rows.num_rows
        if position != end:
            raise file.error(
                f"its row groups {list(self.row_groups)} have {position - self.start} rows, and "
                f"{self.num_rows} by the footer"
            )


def split_file(
    source: ScannedFile,
    sizes: Sequence[tuple[int, int]],
    kept: set[int] | None,
    batch_rows: int,
    pages: Mapping[int, Sequence[FilePart]] | None = None,
) -> Iterator[FilePart]:
    """Split a file into parts.

    Args:
        source: the file.
        sizes: the number of rows, and of decoded bytes, of each row group.
        kept: the row groups to read; None for all.
        batch_rows: the most rows in a batch.
        pages: the parts of row groups of which only some rows are read.
    """
    groups: list[int] = []
    start = end = size = 0
    pages = pages or {}
    for number, (num_rows, num_bytes) in enumerate(sizes):
        is_kept = num_rows and (kept is None or number in kept) and number not in pages
        if groups and (not is_kept or end - start + num_rows > _PART_ROWS):
            yield FilePart(
                source, tuple(groups), start, end - start, _rows(batch_rows, end - start, size)
            )
            groups = []
        yield from pages.get(number, ())
        if is_kept:
            if not groups:
                start, size = end, 0
            groups.append(number)
            size += num_bytes
        end += num_rows
    if groups:
        yield FilePart(
            source, tuple(groups), start, end - start, _rows(batch_rows, end - start, size)
        )


def _rows(most: int, num_rows: int, num_bytes: int) -> int:
    """The rows of a batch, so that it isn't too large."""
    return min(most, max(1, _BATCH_BYTES * num_rows // max(1, num_bytes)))
