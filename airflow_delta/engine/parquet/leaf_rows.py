"""Decode the few rows of a leaf that have an action, from a column chunk that is nearly all nulls.

A row has an action of a kind where the definition level of the kind's leaves isn't 0. Rows of level 0
come in long runs, which are only counted. Of the other rows each level is kept, with its value if
there is one. `shapes` interprets the levels.

Spec: README.md of Apache Parquet, "Nested Encoding".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from airflow_delta.engine.parquet.fallback import PyarrowFallback
from airflow_delta.engine.parquet.footer import ColumnChunk, SchemaNode
from airflow_delta.engine.parquet.pages import DataPage, DictionaryPage, read_page
from airflow_delta.engine.parquet.runs import Run
from airflow_delta.engine.parquet.values import Value

__all__ = ["Entry", "LeafRows"]

Entry: TypeAlias = tuple[int, Value | None]
"""A definition level, and the value; None if the level is below the leaf's."""

# With more entries, pyarrow is faster.
_MAX_ENTRIES = 50_000


class LeafRows:
    """The rows of a leaf below a top-level struct that may be null.

    Args:
        data: the column chunk.
        chunk: its description in the footer.
        leaf: the leaf.
        num_rows: the number of rows of the row group.
        max_rows: the most rows in which the struct may have a value, for a leaf that isn't repeated; None
            for any number.

    Attributes:
        rows: the indexes of the rows in which the struct isn't null, ascending.
        entries: the entries of each of these rows. A repeated leaf has one or more, another leaf one.

    Raises:
        PyarrowFallback: the chunk is damaged, uses an unsupported part of the format, or has too many
            entries or more than ``max_rows`` rows. No value beyond the limit is decoded.
    """

    def __init__(
        self,
        data: bytes,
        chunk: ColumnChunk,
        leaf: SchemaNode,
        num_rows: int,
        *,
        max_rows: int | None = None,
    ) -> None:
        self.rows: list[int] = []
        self.entries: list[list[Entry]] = []
        self._leaf = leaf
        self._max_entries = _MAX_ENTRIES if max_rows is None else max_rows
        self._dictionary: DictionaryPage | None = None
        self._dictionary_values: Sequence[Value] | None = None
        self._row = 0
        self._num_entries = 0
        # Whether an entry with a repetition level above 0 can continue the current row.
        self._can_continue = False
        values = self._read(data, chunk)
        if values != chunk.num_values or self._row != num_rows:
            raise PyarrowFallback(
                f"{'.'.join(leaf.path)} has {values} values in {self._row} rows, expected "
                f"{chunk.num_values} in {num_rows}"
            )

    def _read(self, data: bytes, chunk: ColumnChunk) -> int:
        """Read all pages, and return the number of their values."""
        position = num_values = 0
        # Pages of nulls often follow each other by the dozen, equal to the last bit.
        nulls, null_rows = b"", 0
        while position < len(data):
            if nulls and data.startswith(nulls, position):
                self._row += null_rows
                self._can_continue = False
                num_values += null_rows
                position += len(nulls)
                continue
            page, end = read_page(data, position, leaf=self._leaf, codec=chunk.codec)
            if isinstance(page, DictionaryPage):
                if position:
                    raise PyarrowFallback("a dictionary is not the first page of its chunk")
                self._dictionary = page
            else:
                before = self._num_entries
                count = sum(times for times, _ in page.definitions)
                self._add(page)
                num_values += count
                if count and self._num_entries == before:
                    nulls, null_rows = data[position:end], count
            position = end
        return num_values

    def _add(self, page: DataPage) -> None:
        highest = self._leaf.definition
        self._num_entries += sum(times for times, level in page.definitions if level)
        if self._num_entries > self._max_entries:
            raise PyarrowFallback(
                f"{'.'.join(self._leaf.path)} has more than {self._max_entries} entries"
            )
        count = sum(times for times, level in page.definitions if level == highest)
        values = iter(self._values(page, count))
        for times, repetition, level in _merge_levels(page.repetitions, page.definitions):
            if not level:
                if repetition:
                    raise PyarrowFallback("a row that is null has another value")
                self._row += times
                self._can_continue = False
                continue
            for _ in range(times):
                entry = (level, next(values) if level == highest else None)
                self._add_entry(entry, repeated=repetition > 0)

    def _values(self, page: DataPage, count: int) -> Sequence[Value]:
        if not count:
            # The dictionary of a chunk without values needn't be decoded.
            return ()
        if self._dictionary is not None and self._dictionary_values is None:
            self._dictionary_values = self._dictionary.values()
        return page.values(count, self._dictionary_values)

    def _add_entry(self, entry: Entry, *, repeated: bool) -> None:
        if not repeated:
            self.rows.append(self._row)
            self.entries.append([entry])
            self._row += 1
            self._can_continue = True
        elif self._can_continue:
            self.entries[-1].append(entry)
        else:
            raise PyarrowFallback("a row that is null has another value")


def _merge_levels(repetitions: list[Run], definitions: list[Run]) -> Iterator[tuple[int, int, int]]:
    """Merge the runs of both kinds of levels into runs of pairs.

    Yields:
        The number of repetitions, the repetition level, and the definition level.
    """
    others = iter(repetitions)
    left = repetition = 0
    for run_times, definition in definitions:
        times = run_times
        while times:
            if not left:
                left, repetition = next(others)
            step = min(times, left)
            yield step, repetition, definition
            times -= step
            left -= step
