"""The rows of one leaf that hold something, out of a column chunk that is nearly all nulls.

A row of a checkpoint has an action of a kind where the definition level isn't 0, whatever is null
below the kind's struct. Rows of level 0 are counted in runs and passed over; of the others every
level is handed out, with its value if there is one. Which levels mean what is up to `shapes`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from airflow_delta.engine.parquet.footer import ColumnChunk, SchemaNode
from airflow_delta.engine.parquet.pages import DataPage, DictionaryPage, read_page
from airflow_delta.engine.parquet.refusals import NotReadHere
from airflow_delta.engine.parquet.runs import Run
from airflow_delta.engine.parquet.values import Value

__all__ = ["Entry", "LeafRows"]

Entry: TypeAlias = tuple[int, Value | None]
"""A definition level, and the value, which is None below the leaf's own level."""

# With more, pyarrow is faster.
_MOST_ENTRIES = 50_000


class LeafRows:
    """The rows of a leaf below a top-level struct that may be null.

    Args:
        data: the column chunk.
        chunk: what the footer says about it.
        leaf: the leaf.
        num_rows: how many rows the row group has.
        most: how many rows there may be that hold something, of a leaf that isn't repeated; None for any
            number.

    Attributes:
        rows: the numbers of the rows where the struct isn't null, ascending.
        entries: for each of them its entries: one, or where the leaf is repeated at least one.

    Raises:
        NotReadHere: the chunk is damaged, not to be read here, or has very many entries, or more than
            ``most`` rows; no value beyond that was decoded.
    """

    def __init__(
        self,
        data: bytes,
        chunk: ColumnChunk,
        leaf: SchemaNode,
        num_rows: int,
        *,
        most: int | None = None,
    ) -> None:
        self.rows: list[int] = []
        self.entries: list[list[Entry]] = []
        self._leaf = leaf
        self._most = _MOST_ENTRIES if most is None else most
        self._dictionary: DictionaryPage | None = None
        self._words: Sequence[Value] | None = None
        self._row = 0
        self._num_entries = 0
        # Whether the row before goes on where a repetition level isn't 0.
        self._open = False
        values = self._read(data, chunk)
        if values != chunk.num_values or self._row != num_rows:
            raise NotReadHere(
                f"{'.'.join(leaf.path)} has {values} values in {self._row} rows, expected "
                f"{chunk.num_values} in {num_rows}"
            )

    def _read(self, data: bytes, chunk: ColumnChunk) -> int:
        """Read all pages, and give the number of values in them."""
        position = num_values = 0
        # Pages of nulls follow each other, often by the dozen and equal to the last bit.
        nulls, null_rows = b"", 0
        while position < len(data):
            if nulls and data.startswith(nulls, position):
                self._row += null_rows
                self._open = False
                num_values += null_rows
                position += len(nulls)
                continue
            page, end = read_page(data, position, leaf=self._leaf, codec=chunk.codec)
            if isinstance(page, DictionaryPage):
                if position:
                    raise NotReadHere("a dictionary is not the first page of its chunk")
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
        if self._num_entries > self._most:
            raise NotReadHere(f"{'.'.join(self._leaf.path)} has more than {self._most} entries")
        count = sum(times for times, level in page.definitions if level == highest)
        values = iter(self._values(page, count))
        for times, repetition, level in _merged(page.repetitions, page.definitions):
            if not level:
                if repetition:
                    raise NotReadHere("a row that is null goes on")
                self._row += times
                self._open = False
                continue
            for _ in range(times):
                entry = (level, next(values) if level == highest else None)
                self._add_entry(entry, repeated=repetition > 0)

    def _values(self, page: DataPage, count: int) -> Sequence[Value]:
        if not count:
            # The dictionary of a chunk without values needn't be decoded.
            return ()
        if self._dictionary is not None and self._words is None:
            self._words = self._dictionary.values()
        return page.values(count, self._words)

    def _add_entry(self, entry: Entry, *, repeated: bool) -> None:
        if not repeated:
            self.rows.append(self._row)
            self.entries.append([entry])
            self._row += 1
            self._open = True
        elif self._open:
            self.entries[-1].append(entry)
        else:
            raise NotReadHere("a row that is null goes on")


def _merged(repetitions: list[Run], definitions: list[Run]) -> Iterator[tuple[int, int, int]]:
    """Runs of both levels, of as many numbers, as runs of pairs."""
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
