"""Write the actions of a checkpoint to a Parquet file: the rows of V1 and V2, and of sidecars.

The file is laid out for readers who want a part of it:

* the few actions that aren't files have a row group to themselves, so that opening a table reads
  some kilobytes whatever its size;
* adds and removes never share a row group, so that one kind is read without decoding the other;
* footers carry statistics of the leaves that tell row groups apart, pages carry checksums.

Adds and removes are streamed: a row group of each is in memory at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from airflow_delta.engine.checkpoint.layout import (
    DICTIONARY_LEAVES,
    STATISTICS_LEAVES,
    file_structs,
    null_structs,
    small_structs,
)
from airflow_delta.engine.checkpoint.typed_columns import TypedColumns
from airflow_delta.engine.errors import CorruptLogError

__all__ = ["ActionRows", "FileActionTable", "new_action_file"]

FileActionTable: TypeAlias = tuple[str, pa.Table]
"""``"add"`` or ``"remove"``, and a table of such actions, columns as in `action_schema`."""

_GROUP_ROWS = 100_000
_GROUP_BYTES = 256 << 20
"""A row group ends at whichever comes first. Bytes are those in memory, before encoding."""


class ActionRows:
    """A file of actions in the making: actions in, row groups out, totals kept.

    Args:
        stream: where the file goes.
        schema: its columns, a struct for each kind of action; see `layout`.
        table: the table's location, for errors.
        version: the version of the table, for errors.

    Attributes:
        num_actions: how many actions of any kind have been written.
        num_adds: how many of them are adds.
        adds_size_sum: the sum of the sizes of the files added, in bytes.
    """

    def __init__(self, stream: Any, schema: pa.Schema, *, table: str, version: int) -> None:
        self.num_actions = 0
        self.num_adds = 0
        self.adds_size_sum = 0
        self._table = table
        self._version = version
        self._schema = schema
        self._writer = pq.ParquetWriter(
            stream,
            schema,
            # The fastest level is also the smallest here, and every reader of today knows zstd.
            compression="zstd",
            compression_level=1,
            use_dictionary=list(DICTIONARY_LEAVES),
            write_statistics=_statistics(schema),
            write_page_checksum=True,
            store_schema=False,
        )

    def write_small(self, actions: Mapping[str, list[Mapping[str, Any]]]) -> None:
        """Write the actions that aren't files, as one row group."""
        columns = []
        total = sum(map(len, actions.values()))
        before = 0
        for field in self._schema:
            given = actions.get(field.name, [])
            after = total - before - len(given) if given else total - before
            parts = [null_structs(before, field.type)]
            if given:
                parts.append(small_structs(given, field.type))
                before += len(given)
            parts.append(null_structs(after, field.type))
            columns.append(pa.chunked_array(parts, type=field.type))
        self._write(pa.Table.from_arrays(columns, schema=self._schema))

    def write_files(
        self, files: Iterable[FileActionTable], typed: TypedColumns | None = None
    ) -> None:
        """Write adds and removes, in any order, as row groups that hold one kind each.

        Args:
            files: tables of any size with the kind that they hold.
            typed: makes the typed columns of adds.

        Raises:
            CorruptLogError: an action lacks what the protocol requires of it.
        """
        gathered = {kind: _Gathered() for kind in ("add", "remove")}
        for kind, table in files:
            for group in gathered[kind].full(table):
                self._write_group(kind, group, typed)
        for kind, rest in gathered.items():
            if rest.rows:
                self._write_group(kind, rest.taken(), typed)

    def _write_group(self, kind: str, group: pa.Table, typed: TypedColumns | None) -> None:
        type_ = self._schema.field(kind).type
        rows = typed.added_to(group) if typed and kind == "add" else group
        try:
            structs = file_structs(rows, type_)
        except ValueError as error:
            raise CorruptLogError(
                f"version {self._version} can't be checkpointed: its actions {kind!r} lack "
                f"what the protocol requires: {error}",
                table=self._table,
                version=self._version,
            ) from error
        columns = [
            structs if field.name == kind else null_structs(len(structs), field.type)
            for field in self._schema
        ]
        self._write(pa.Table.from_arrays(columns, schema=self._schema))
        if kind == "add":
            self.num_adds += group.num_rows
            self.adds_size_sum += pc.sum(group["size"]).as_py()

    def close(self) -> None:
        """Write the footer."""
        self._writer.close()

    def _write(self, rows: pa.Table) -> None:
        self._writer.write_table(rows, row_group_size=max(rows.num_rows, 1))
        self.num_actions += rows.num_rows


def _statistics(schema: pa.Schema) -> list[str]:
    add = schema.field("add").type
    both = add.get_field_index("stats") >= 0 and add.get_field_index("stats_parsed") >= 0
    # Where the footer shows that the text is never missing, the typed form needn't be read.
    return [*STATISTICS_LEAVES, "add.stats"] if both else list(STATISTICS_LEAVES)


@contextmanager
def new_action_file(
    stream: Any, schema: pa.Schema, *, table: str, version: int
) -> Iterator[ActionRows]:
    """A file of actions that is finished where the block ends well.

    Args:
        stream: see `ActionRows`.
        schema: likewise.
        table: likewise.
        version: likewise.
    """
    rows = ActionRows(stream, schema, table=table, version=version)
    try:
        yield rows
    except BaseException:
        # The writer must be closed; what that writes, or fails to, is thrown away with the rest.
        with suppress(Exception):
            rows.close()
        raise
    rows.close()


class _Gathered:
    """Rows of one kind on their way to a row group."""

    def __init__(self) -> None:
        self._tables: list[pa.Table] = []
        self.rows = self._size = 0

    def full(self, table: pa.Table) -> Iterator[pa.Table]:
        """Take in a table, and give out the row groups that it fills."""
        start = 0
        while start < table.num_rows:
            average = max(table.nbytes // table.num_rows, 1)
            room = min(_GROUP_ROWS - self.rows, max((_GROUP_BYTES - self._size) // average, 1))
            piece = table.slice(start, room)
            self._tables.append(piece)
            start += piece.num_rows
            self.rows += piece.num_rows
            self._size += piece.nbytes
            if self.rows >= _GROUP_ROWS or self._size >= _GROUP_BYTES:
                yield self.taken()

    def taken(self) -> pa.Table:
        """What has been gathered; begins anew."""
        tables, self._tables, self.rows, self._size = self._tables, [], 0, 0
        return pa.concat_tables(tables)
