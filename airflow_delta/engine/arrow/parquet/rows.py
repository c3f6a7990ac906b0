"""Read the adds or removes of one row group: the wanted columns, and perhaps only some rows.

`FileRows` reads all rows. A writer may have stored a column, its typed form, or both, and `FileRows`
decides which of them to read. `FilteredRows` reads the adds that a `RowFilter` keeps. It first decodes the
columns that the filter needs, slice by slice, and the others only if the filter kept a row. So memory
holds one slice of statistics, and the kept rows.

Spec: PROTOCOL.md, "Checkpoint Schema".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.action_schema import ADD_FIELDS
from airflow_delta.engine.arrow.normalise import conform, present_rows
from airflow_delta.engine.arrow.parallel import map_ordered
from airflow_delta.engine.arrow.parquet.source import ParquetSource
from airflow_delta.engine.arrow.statistics.parse import STATS_ROWS
from airflow_delta.engine.arrow.statistics.parsed import (
    partition_values_from_parsed,
    stats_from_parsed,
)

__all__ = ["FileRows", "FilteredRows", "RowFilter"]


class RowFilter(Protocol):
    """Decides which adds are wanted. Several threads may use it."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of ``add`` that it needs, at least one."""
        ...

    def parsed_leaves(
        self, stored: pa.DataType, *, all_needed: bool
    ) -> tuple[tuple[str, ...], ...] | None:
        """The leaves of ``stats_parsed`` that it needs instead of ``stats``; None if it needs ``stats``.

        Args:
            stored: the type of ``stats_parsed`` in the file.
            all_needed: whether the texts may contain a leaf that ``stats_parsed`` lacks.
        """
        ...

    def kept(self, adds: pa.RecordBatch) -> pa.BooleanArray:
        """Whether each row is wanted; without nulls.

        Args:
            adds: its `columns`. ``stats`` has texts, or structs with the `parsed_leaves`.
        """
        ...

    def prune(self, adds: pa.Table) -> pa.Table:
        """The wanted rows of a table, which has the `columns` in the types of the protocol."""
        ...


class FileRows:
    """The adds or the removes of one row group.

    Args:
        source: the file.
        group: the number of the row group.
        kind: ``"add"`` or ``"remove"``.
        schema: the wanted columns, in the types of ``action_schema``.
        stats_leaves: the leaves of ``stats_parsed`` to return as ``stats``, as they are stored; None to
            return texts.
    """

    def __init__(
        self,
        source: ParquetSource,
        group: int,
        kind: str,
        schema: pa.Schema,
        *,
        stats_leaves: tuple[tuple[str, ...], ...] | None = None,
    ) -> None:
        self._source = source
        self._group = group
        self._kind = kind
        self._schema = schema
        self._leaves = stats_leaves
        self._stored = {name: self._stored_as(name) for name in schema.names}

    def load(self) -> list[pa.Table]:
        """Decode all rows, on the calling thread."""
        return list(self.stream())

    def stream(self, *, rows: int | None = None) -> Iterator[pa.Table]:
        """Decode slice by slice, while the caller consumes.

        Args:
            rows: the number of rows in a slice; None for the usual one.
        """
        columns = [column for names in self._stored.values() for column in self._read_as(names)]
        with self._source.damage():
            # At least one column is read, to find out which rows are actions.
            columns = columns or [f"{self._kind}.path"]
            for batch in self._source.batches(self._group, columns, rows=rows):
                actions = present_rows(batch.column(self._kind))
                if len(actions):
                    yield self._table(actions)

    def _read_as(self, stored: tuple[str, ...]) -> list[str]:
        """The columns of the file to decode for some fields of the action."""
        if self._leaves is not None and stored == ("stats_parsed",):
            return [".".join((self._kind, "stats_parsed", *leaf)) for leaf in self._leaves]
        return [f"{self._kind}.{name}" for name in stored]

    def _stored_as(self, name: str) -> tuple[str, ...]:
        """The fields of the action in the file that give a wanted column; empty if it is null."""
        if name == "stats" and self._leaves is not None:
            return ("stats_parsed",) if self._leaves else ()
        source, column = self._source, f"{self._kind}.{name}"
        parsed = source.has(f"{column}_parsed")
        if name == "partitionValues":
            # Null counts don't decide here: the map of an unpartitioned table is empty, not null.
            stored, parsed = source.has(column), parsed and not source.has(column)
        else:
            leaf = f"{column}.storageType" if name == "deletionVector" else column
            stored = source.has(column) and not (
                leaf in source.leaves and source.all_null(self._group, leaf)
            )
            parsed = parsed and not (stored and self._as_often_null_as_path(column))
        return ((name,) if stored else ()) + ((f"{name}_parsed",) if parsed else ())

    def _as_often_null_as_path(self, column: str) -> bool:
        """Whether every action of the row group has a value in a column, by the footer."""
        without_path = self._source.nulls(self._group, f"{self._kind}.path")
        return without_path is not None and without_path == self._source.nulls(self._group, column)

    def _table(self, rows: pa.StructArray) -> pa.Table:
        given = {field.name: index for index, field in enumerate(rows.type)}
        arrays = []
        for field in self._schema:
            forms = [
                self._converted(stored, rows.field(given[stored]), field.type)
                for stored in self._stored[field.name]
            ]
            if len(forms) > 1:
                forms = [pc.coalesce(*forms)]
            arrays.append(forms[0] if forms else pa.nulls(len(rows), field.type))
        table = pa.table(arrays, names=self._schema.names)
        if "path" in self._schema.names and table["path"].null_count:
            raise self._source.corrupt(f"it holds an action {self._kind!r} without a path")
        return table

    def _converted(self, stored: str, array: pa.Array, target: pa.DataType) -> pa.Array:
        if not stored.endswith("_parsed"):
            return conform(array, target)
        if not pa.types.is_struct(array.type):
            raise self._source.corrupt(f"its column {stored!r} is no struct, but {array.type}")
        if stored == "stats_parsed":
            if self._leaves is not None:
                return array
            return stats_from_parsed(array, utc=self._source.int96_leaves)
        try:
            return partition_values_from_parsed(array)
        except pa.ArrowInvalid as error:  # bytes that aren't UTF-8
            raise self._source.corrupt(f"a value in its column {stored!r} has no text") from error


class FilteredRows:
    """The adds of one row group that a filter keeps.

    Args:
        source: the file.
        group: the number of the row group.
        schema: the columns wanted.
        row_filter: the filter.
        workers: the number of threads that apply it; None for one per core.
    """

    def __init__(
        self,
        source: ParquetSource,
        group: int,
        schema: pa.Schema,
        row_filter: RowFilter,
        *,
        workers: int | None,
    ) -> None:
        self._source = source
        self._group = group
        self._filter = row_filter
        self._workers = workers
        self._rows = FileRows(source, group, "add", schema)
        needed = pa.schema([(name, ADD_FIELDS[name]) for name in row_filter.columns])
        leaves = self._stats_leaves()
        self._filter_rows = FileRows(source, group, "add", needed, stats_leaves=leaves)
        # Texts are large, and parsing them takes a few times their memory.
        self._slice_rows = STATS_ROWS if leaves is None else None

    def load(self) -> list[pa.Table]:
        """Decode all kept rows, on the calling thread."""
        return list(self.stream())

    def stream(self) -> Iterator[pa.Table]:
        """Decode the kept rows slice by slice, while the caller consumes."""
        tables = self._filter_rows.stream(rows=self._slice_rows)
        batches = (batch for table in tables for batch in table.to_batches())
        masks = list(map_ordered(self._filter.kept, batches, workers=self._workers))
        kept = pa.chunked_array(masks, pa.bool_())
        if not pc.any(kept).as_py():
            return
        first = 0
        for table in self._rows.stream():
            yield table.filter(kept.slice(first, table.num_rows))
            first += table.num_rows

    def _stats_leaves(self) -> tuple[tuple[str, ...], ...] | None:
        """The leaves of ``stats_parsed`` to filter by; None to filter by texts."""
        source = self._source
        if "stats" not in self._filter.columns or not source.has("add.stats_parsed"):
            return None
        text = "add.stats" in source.leaves and not source.all_null(self._group, "add.stats")
        return self._filter.parsed_leaves(source.type_of("add", "stats_parsed"), all_needed=text)
