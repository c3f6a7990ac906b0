"""Read neighbouring rows of a row group by the pages of its columns.

Each column has pages of other rows, so the pages of a column become a small file in memory, and rows before
the wanted ones are decoded and dropped. The columns are decoded side by side, a batch at a time.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from airflow_delta.engine.data_files.batch_sizes import first_rows, most_bytes, next_rows
from airflow_delta.engine.data_files.data_file import DataFile
from airflow_delta.engine.parquet import ARROW_SCHEMA, ChunkPages, IndexedFooter, column_file

__all__ = ["RowGroupPages"]


@dataclass(frozen=True, slots=True)
class RowGroupPages:
    """Reads rows of a row group by their pages; a `PageReader`.

    Attributes:
        file: the file.
        footer: its footer.
        group: the number of the row group.
        start: the position of its first row in the file.
        pages: the pages of the columns, by the names in the file.
    """

    file: DataFile
    footer: IndexedFooter
    group: int
    start: int
    pages: Mapping[str, ChunkPages]

    def batches(
        self, start: int, num_rows: int, names: Sequence[str], *, rows: int, size: int
    ) -> Iterator[pa.RecordBatch]:
        """Read rows; see `PageReader`.

        Raises:
            DataFileError: the file is damaged.
            MissingFilesError, StorageError: see `DataFile.batches`.
        """
        first, end = start - self.start, start - self.start + num_rows
        among = {name: self.pages[name].among(first, end) for name in names}
        found = self.file.read_ranges(
            [each for name in names for each in self.pages[name].ranges(*among[name])]
        )
        columns = []
        for number, name in enumerate(names):
            first_of, end_of = among[name]
            positions = self.pages[name].first_rows[first_of : end_of + 1]
            columns.append(self._open(name, positions, found[2 * number : 2 * number + 2]))
        del found  # The columns have copies.
        for column in columns:
            column.skip(first - column.first, rows=rows, size=size)
        fitting = first_rows(sum(c.most_bytes(rows) for c in columns), rows=rows, size=size)
        while first < end:
            taken = min(fitting, end - first)
            table = pa.Table.from_arrays([c.take(taken) for c in columns], names=list(names))
            yield from table.to_batches()
            first += taken
            fitting = next_rows(table, rows=rows, size=size)

    def _open(self, name: str, first_rows: Sequence[int], contents: Sequence[bytes]) -> _Column:
        """Open some neighbouring pages of a column."""
        key_values = {}
        if ARROW_SCHEMA in (self.file.footer.metadata or {}):
            schema = pa.schema([self.file.schema.field(name)]).serialize().to_pybytes()
            key_values[ARROW_SCHEMA] = base64.b64encode(schema)
        with self.file.errors():
            data = column_file(self.footer, self.group, name, first_rows, contents, key_values)
        return _Column(self.file, name, data, first_rows[0])


class _Column:
    """Decodes neighbouring pages of a column, some rows at a time.

    Args:
        file: the file.
        name: the column.
        data: a Parquet file with the pages.
        first: the first row of the pages in the row group.
    """

    def __init__(self, file: DataFile, name: str, data: bytes, first: int) -> None:
        self.first = first
        self._file = file
        self._name = name
        self._reader = file.open_extract(data)
        self._batches: Iterator[pa.RecordBatch] | None = None

    def most_bytes(self, rows: int) -> int:
        """The memory that a batch takes at most; see `most_bytes` of `batch_sizes`."""
        return most_bytes(self._reader.metadata, [0], [0], rows)

    def skip(self, num_rows: int, *, rows: int, size: int) -> None:
        """Decode rows, and drop them.

        Args:
            num_rows: their number.
            rows: the most rows to decode at once.
            size: the most bytes to decode at once, about.

        Raises:
            DataFileError: see `take`.
        """
        fitting = first_rows(self.most_bytes(rows), rows=rows, size=size)
        while num_rows:
            found = self.take(min(fitting, num_rows))
            num_rows -= len(found)
            fitting = next_rows(found, rows=rows, size=size)

    def take(self, num_rows: int) -> pa.ChunkedArray:
        """Decode the next rows, of which an array can't hold more than 2 GiB of texts.

        Args:
            num_rows: their number.

        Raises:
            DataFileError: the pages are damaged, or have fewer rows.
        """
        found: list[pa.Array] = []
        missing = num_rows
        with self._file.errors():
            while missing:
                if self._batches is None:
                    # A generator, which sets the size of its batches when it yields the first one.
                    self._batches = self._reader.iter_batches(missing, [0], use_threads=False)
                else:
                    self._reader.set_batch_size(missing)
                batch = next(self._batches, None)
                if batch is None:
                    raise self._file.error(
                        f"pages of the column {self._name!r} have {missing} rows less than by its page "
                        "index"
                    )
                found.append(batch.column(0))
                missing -= batch.num_rows
        return pa.chunked_array(found)
