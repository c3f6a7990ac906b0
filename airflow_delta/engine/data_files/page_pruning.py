"""Skip the pages of a row group that can't have matching rows, by the page index of the file.

The columns of a row group have pages of different rows. So the predicate is evaluated for each stretch of
rows between two page boundaries of its columns. The stretches that may match become parts of the scan. A
part reads the pages that have a row of it, column by column: pyarrow can't read single pages, and gets them
as a small file in memory (`engine.parquet.page_index`).

Whatever is missing or doesn't fit in an index leaves the row group whole. So do columns of lists, maps and
structs, and row groups that would be read almost completely. Whether a page is as in the index shows only
when it is read; if not, that is an error.

Spec: PageIndex.md of Apache Parquet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.numpy_arrays import bool_array
from airflow_delta.engine.arrow.python_arrays import array_of
from airflow_delta.engine.data_files.data_file import DataFile
from airflow_delta.engine.data_files.file_columns import FileColumn
from airflow_delta.engine.data_files.page_rows import RowGroupPages
from airflow_delta.engine.data_files.row_group_bounds import bounds_in_table_type
from airflow_delta.engine.data_files.scanned_file import FilePart, ScannedFile
from airflow_delta.engine.features.schema_walk import SchemaPath
from airflow_delta.engine.parquet import (
    ChunkPages,
    IndexedFooter,
    PyarrowFallback,
    index_range,
    read_page_bounds,
    read_pages,
)
from airflow_delta.engine.scan.bounds import Bounds
from airflow_delta.engine.scan.expressions import Node, useful_columns
from airflow_delta.engine.scan.masks import as_array
from airflow_delta.engine.scan.may_match import may_be

__all__ = ["PagePruner"]

_FEWEST_BYTES = 1 << 20
"""Row groups with fewer bytes in the columns to read are read as a whole: an index costs two reads."""

_LONGEST_FOOTER = 256 << 10
"""Longer footers aren't parsed here, in Python."""

_MOST_READ = 0.5
"""The share of the bytes, or of the values, of a row group above which it is read as a whole."""

_PART_ROWS = 100_000
_PART_BYTES = 32 << 20
"""Neighbouring stretches share a part up to so many rows and decoded bytes."""


class PagePruner:
    """Finds the rows of row groups that may match a predicate.

    Args:
        root: the predicate, over the logical columns of the table.
    """

    def __init__(self, root: Node) -> None:
        self._root = root
        self._names = sorted({path[0] for path in useful_columns(root) if len(path) == 1})

    def parts(
        self, source: ScannedFile, groups: Sequence[int], names: Sequence[str], batch_rows: int
    ) -> dict[int, list[FilePart]]:
        """The parts of those row groups of a file of which only some pages are read.

        Args:
            source: the file.
            groups: the numbers of the row groups that may have matching rows.
            names: the columns to read, by their names in the file.
            batch_rows: the most rows in a batch.

        Raises:
            DataFileError: the file ends before its index, or its footer is damaged.
            MissingFilesError, StorageError: see `DataFile.batches`.
        """
        file = source.file
        tested = [column for name in self._names if (column := source.columns.get(name))]
        with file.errors():
            suitable = _suitable_groups(file, groups, tested, names)
            if not suitable:
                return {}
            footer = _indexed_footer(file)
        if footer is None:
            return {}
        found = {}
        for group in suitable:
            try:
                parts = self._parts(source, footer, group, tested, names, batch_rows)
            except PyarrowFallback:
                continue  # The index doesn't fit the file, and the file may be sound without it.
            if parts is not None:
                found[group] = parts
        return found

    def _parts(
        self,
        source: ScannedFile,
        footer: IndexedFooter,
        group: int,
        tested: Sequence[FileColumn],
        names: Sequence[str],
        batch_rows: int,
    ) -> list[FilePart] | None:
        file = source.file
        described = file.footer.row_group(group)
        num_rows = described.num_rows
        index = _read_index(file, footer, group, tested, names, num_rows)
        bounds, edges = _stretches(file, tested, index, num_rows)
        kept = as_array(may_be(True, self._root, bounds), len(edges) - 1)
        wanted = pc.indices_nonzero(kept).to_pylist()
        fitting = _PART_BYTES * num_rows // max(1, described.total_byte_size)
        ranges = _ranges(edges, wanted, min(_PART_ROWS, fitting))
        pages = {name: index.pages[name] for name in names}
        sizes = [
            length
            for first, end in ranges
            for each in pages.values()
            for _, length in each.ranges(*each.among(first, end))
        ]
        whole = sum(each.positions[-1] - each.start for each in pages.values())
        # Each part decodes the whole of its pages.
        decoded = sum(
            each.first_rows[stop] - each.first_rows[at]
            for first, end in ranges
            for each in pages.values()
            for at, stop in [each.among(first, end)]
        )
        most_decoded = num_rows * len(pages) * _MOST_READ
        if sum(sizes) > whole * _MOST_READ or decoded > most_decoded:
            return None
        start = sum(file.footer.row_group(number).num_rows for number in range(group))
        reader = RowGroupPages(file, footer, group, start, pages)
        return [
            FilePart(source, (group,), start + first, end - first, batch_rows, reader)
            for first, end in ranges
        ]


@dataclass(frozen=True, slots=True)
class _Index:
    """The page indexes of a row group: the pages by the name of the column, and the bytes of the bounds."""

    pages: Mapping[str, ChunkPages]
    chunks: Mapping[str, Any]
    bounds: Mapping[str, bytes]


def _suitable_groups(
    file: DataFile, groups: Sequence[int], tested: Sequence[FileColumn], names: Sequence[str]
) -> list[int]:
    """The row groups that have an index of a column of the predicate, and are large enough."""
    footer = file.footer
    if not tested or footer.serialized_size > _LONGEST_FOOTER:
        return []
    leaves = {footer.schema.column(n).path: n for n in range(len(footer.schema))}
    if any(
        name not in leaves or footer.schema.column(leaves[name]).max_repetition_level
        for name in names
    ):
        return []
    bounded = [leaves[column.stored] for column in tested if column.stored in leaves]
    found = []
    for number in groups:
        group = footer.row_group(number)
        if not any(group.column(leaf).has_column_index for leaf in bounded):
            continue
        if sum(group.column(leaves[name]).total_compressed_size for name in names) >= _FEWEST_BYTES:
            found.append(number)
    return found


def _indexed_footer(file: DataFile) -> IndexedFooter | None:
    length = file.footer.serialized_size
    (data,) = file.read_ranges([(file.size - 8 - length, length + 8)])
    if int.from_bytes(data[-8:-4], "little") != length:
        # Other bytes follow the struct of the footer.
        return None
    try:
        return IndexedFooter(data[:-8])
    except PyarrowFallback:
        return None


def _read_index(
    file: DataFile,
    footer: IndexedFooter,
    group: int,
    tested: Sequence[FileColumn],
    names: Sequence[str],
    num_rows: int,
) -> _Index:
    """Read the indexes of the columns of a row group.

    Raises:
        PyarrowFallback: a column has none, or one that doesn't fit.
    """
    chunks: dict[str, Any] = {}
    wanted: dict[tuple[str, bool], tuple[int, int]] = {}
    with_bounds = {column.stored for column in tested}
    for name in names:
        chunk = footer.chunk(group, name)
        found_at = None if chunk is None else index_range(chunk, of_bounds=False)
        if chunk is None or found_at is None:
            raise PyarrowFallback(f"the column {name} has no page index")
        chunks[name], wanted[name, False] = chunk, found_at
        found_at = index_range(chunk, of_bounds=True)
        if name in with_bounds and found_at is not None and footer.has_order(name):
            wanted[name, True] = found_at
    if any(start + length > file.size for start, length in wanted.values()):
        raise PyarrowFallback("a page index lies outside of the file")
    contents = dict(zip(wanted, file.read_ranges([*wanted.values()]), strict=True))
    pages = {
        name: read_pages(chunks[name], contents[name, False], num_rows=num_rows) for name in names
    }
    bounds = {name: data for (name, is_bounds), data in contents.items() if is_bounds}
    return _Index(pages, chunks, bounds)


def _stretches(
    file: DataFile, tested: Sequence[FileColumn], index: _Index, num_rows: int
) -> tuple[dict[SchemaPath, Bounds], list[int]]:
    """The bounds of the columns in each stretch of rows, and the first row of each, and the last one."""
    found = {}
    edges = np.array([0, num_rows], np.int64)
    for column in tested:
        name = column.stored
        if name is not None and name in index.bounds and not pa.types.is_nested(column.field.type):
            pages = index.pages[name]
            num_pages = len(pages.first_rows) - 1
            known = read_page_bounds(index.chunks[name], index.bounds[name], num_pages=num_pages)
            found[column.field.name] = column, pages, known
            edges = np.union1d(edges, pages.first_rows)
    bounds: dict[SchemaPath, Bounds] = {}
    for name, (column, pages, known) in found.items():
        stored = file.schema.field(column.stored).type
        low, high = bounds_in_table_type(known.bounds, stored, column.field.type, file.calendar)
        of = np.searchsorted(pages.first_rows, edges[:-1], side="right") - 1
        has_value = ~np.array(known.is_null, np.bool_)
        counts = [None] * len(has_value) if known.null_counts is None else known.null_counts
        has_null = np.array([count != 0 for count in counts], np.bool_) | ~has_value
        taken = array_of(of.tolist(), pa.int64())
        bounds[name,] = Bounds(
            None if low is None else low.take(taken),
            None if high is None else high.take(taken),
            has_value=bool_array(has_value[of]),
            has_null=bool_array(has_null[of]),
            has_nan=pa.types.is_floating(column.field.type),
        )
    for column in tested:
        if column.stored is None:
            nothing = pa.nulls(len(edges) - 1, column.field.type)
            bounds[column.field.name,] = Bounds(nothing, nothing, has_value=False)
    return bounds, edges.tolist()


def _ranges(edges: Sequence[int], wanted: Sequence[int], most: int) -> list[tuple[int, int]]:
    """The first row of each part, and the one after its last.

    Args:
        edges: the edges of the stretches.
        wanted: the numbers of the stretches to read.
        most: neighbouring stretches share a part up to so many rows.
    """
    found: list[tuple[int, int]] = []
    for number in wanted:
        first, end = edges[number], edges[number + 1]
        if found and found[-1][1] == first and end - found[-1][0] <= most:
            found[-1] = found[-1][0], end
        else:
            found.append((first, end))
    return found
