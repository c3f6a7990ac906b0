"""Write the actions of a checkpoint to a Parquet file: V1 and V2 checkpoints, and sidecars.

The layout serves readers that need only a part of the file:

* the non-file actions have a row group of their own, so opening a table reads some kilobytes;
* adds and removes never share a row group, so one kind is read without decoding the other;
* footers carry statistics of the leaves by which row groups are skipped, pages carry checksums;
* only adds and removes are compressed, so the others can be read without a library (``engine/parquet``).

Adds and removes are streamed: row groups are encoded on threads, while the next ones are gathered. `stitch`
combines them, together with row groups that are copied from an earlier file of the same schema. At the end
the footer, as read by pyarrow, is compared with what was written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from airflow_delta.engine.arrow.parallel import map_ordered
from airflow_delta.engine.checkpoint.layout import file_structs
from airflow_delta.engine.checkpoint.row_encoder import FILE_KINDS, EncodedFiles, RowEncoder
from airflow_delta.engine.checkpoint.typed_columns import TypedColumns
from airflow_delta.engine.errors import CorruptLogError, InvalidTableError
from airflow_delta.engine.parquet import PyarrowFallback, StitchedFile, StoredFile, StoredGroup
from airflow_delta.engine.progress import Reporter

__all__ = ["ActionRows", "FileActionTable", "new_action_file"]

FileActionTable: TypeAlias = tuple[str, pa.Table]
"""``"add"`` or ``"remove"``, and a table of such actions with the columns of `action_schema`."""

_GROUP_ROWS = 50_000
_GROUP_BYTES = 64 << 20
"""A row group ends at the first of these two limits. Bytes are those in memory, before encoding."""

_TYPED = ("stats_parsed", "partitionValues_parsed")
_VALUE_BYTES = 8
_MOST_TYPED_BYTES = _GROUP_BYTES >> 11
"""The most that the typed columns of a row count. They may have thousands of leaves, each of which
costs time and footer space in every row group. So some thousand rows should share a row group."""

_ENCODERS = 2
"""Row groups that are encoded at once. More would only wait for rows."""
_GROUPS_AHEAD = 2
"""Row groups in memory, besides the one that is being gathered."""


class ActionRows:
    """Writes a file of actions as row groups, and counts the actions.

    Args:
        stream: the file.
        schema: its columns, a struct for each kind of action; see `layout`.
        table: the table's location, for errors.
        version: the version of the table, for errors.
        reporter: counts the adds; only if its thread writes them.

    Attributes:
        num_actions: the number of actions written so far.
        num_adds: the number of adds among them.
        num_removes: the number of removes among them.
        adds_size_sum: the sum of the sizes of the files added, in bytes.
    """

    def __init__(
        self,
        stream: Any,
        schema: pa.Schema,
        *,
        table: str,
        version: int,
        reporter: Reporter | None = None,
    ) -> None:
        self.num_actions = 0
        self.num_adds = 0
        self.num_removes = 0
        self.adds_size_sum = 0
        self._table = table
        self._version = version
        self._schema = schema
        self._encoder = RowEncoder(schema)
        self._typed_bytes = _typed_bytes(schema)
        self._file = StitchedFile(stream)
        self._stream = stream
        self._reporter = reporter or Reporter()

    def write_non_file_actions(self, actions: Mapping[str, list[Mapping[str, Any]]]) -> None:
        """Write the non-file actions, as one row group. Its columns are small without compression."""
        self._file.append_file(self._encoder.non_file_actions(actions))
        self.num_actions += sum(map(len, actions.values()))

    def write_files(
        self, files: Iterable[FileActionTable], typed: TypedColumns | None = None
    ) -> None:
        """Write adds and removes, in any order, as row groups of one kind each.

        Args:
            files: tables of any size with the kind of their actions. They are drawn on the calling
                thread, which may call `append` in between.
            typed: makes the typed columns of adds.

        Raises:
            CorruptLogError: an action lacks a field that the protocol requires.
        """
        encode = partial(self._encoded_group, typed=typed)
        groups = _row_groups(files, typed_bytes=self._typed_bytes)
        for encoded in map_ordered(encode, groups, workers=_ENCODERS, ahead=_GROUPS_AHEAD):
            self.append(encoded)

    def is_small(self, kind: str, num_rows: int, size: int) -> bool:
        """Whether a row group is far from full, so that it should get more rows.

        Args:
            kind: ``"add"`` or ``"remove"``.
            num_rows: the number of its rows.
            size: the size of its encoded values before compression, in bytes.
        """
        # Encoded values need at least half the space of those in Arrow's memory. Typed columns
        # don't, because in a wide table most of their values are missing.
        if kind == "add":
            size = max(size, num_rows * self._typed_bytes)
        return num_rows < _GROUP_ROWS // 2 and size < _GROUP_BYTES // 4

    def can_append(self, file: StoredFile, group: StoredGroup) -> bool:
        """Whether a row group of another file can be appended unchanged.

        It can if it was written in the same way as the row groups that are already here. So the
        non-file actions must be written first.
        """
        try:
            self._file.check(file, [group])
        except PyarrowFallback:
            return False
        return True

    def encoded(self, kind: str, structs: pa.ChunkedArray, *, adds_size: int) -> EncodedFiles:
        """Encode a row group of adds or removes. Several threads may do so at any time.

        Args:
            kind: ``"add"`` or ``"remove"``.
            structs: rows of its column, none of them null.
            adds_size: see `EncodedFiles`.
        """
        return self._encoder.files(kind, structs, adds_size=adds_size)

    def append(self, files: EncodedFiles) -> None:
        """Write a row group that is already encoded."""
        self._file.append(files.file, files.group, files.data)
        self.num_actions += files.group.num_rows
        if files.kind == "add":
            self.num_adds += files.group.num_rows
            self.adds_size_sum += files.adds_size
            self._reporter.advance(files.group.num_rows)
        else:
            self.num_removes += files.group.num_rows

    def close(self) -> None:
        """Write the footer, and compare it with what was written.

        Raises:
            InvalidTableError: they differ.
        """
        if not self.num_actions:
            self._file.append_file(self._encoder.empty())
        end = self._file.close()
        size = self._stream.tell()
        counted = {"any": self.num_actions, "add": self.num_adds, "remove": self.num_removes}
        finding = _finding(end, size=size, counted=counted)
        if finding is not None:
            raise InvalidTableError(
                f"the checkpoint of version {self._version} was not written: {finding}. Try again",
                table=self._table,
                version=self._version,
            )

    def _encoded_group(self, files: FileActionTable, *, typed: TypedColumns | None) -> EncodedFiles:
        kind, group = files
        rows = typed.added_to(group) if typed and kind == "add" else group
        try:
            structs = file_structs(rows, self._schema.field(kind).type)
        except ValueError as error:
            raise CorruptLogError(
                f"version {self._version} can't be checkpointed: its actions {kind!r} lack "
                f"what the protocol requires: {error}",
                table=self._table,
                version=self._version,
            ) from error
        adds_size = pc.sum(group["size"]).as_py() if kind == "add" else 0
        return self.encoded(kind, structs, adds_size=adds_size)


@contextmanager
def new_action_file(
    stream: Any,
    schema: pa.Schema,
    *,
    table: str,
    version: int,
    reporter: Reporter | None = None,
) -> Iterator[ActionRows]:
    """Open a file of actions, and finish it if the block succeeds.

    Args:
        stream: see `ActionRows`.
        schema: likewise.
        table: likewise.
        version: likewise.
        reporter: likewise.

    Raises:
        InvalidTableError: the footer differs from what was written.
    """
    rows = ActionRows(stream, schema, table=table, version=version, reporter=reporter)
    yield rows
    rows.close()


def _typed_bytes(schema: pa.Schema) -> int:
    """The size assumed for the typed columns of an add. They don't exist yet when rows are gathered."""
    add = schema.field("add").type
    leaves = sum(_num_leaves(field.type) for field in add if field.name in _TYPED)
    return min(leaves * _VALUE_BYTES, _MOST_TYPED_BYTES)


def _num_leaves(type_: pa.DataType) -> int:
    return sum(_num_leaves(field.type) for field in type_) if pa.types.is_struct(type_) else 1


def _row_groups(files: Iterable[FileActionTable], *, typed_bytes: int) -> Iterator[FileActionTable]:
    gathered = {kind: _Gathered(typed_bytes if kind == "add" else 0) for kind in FILE_KINDS}
    for kind, table in files:
        for group in gathered[kind].add(table):
            yield kind, group
            del group  # It may be written before the next one is full.
    for kind, rest in gathered.items():
        if rest.rows:
            yield kind, rest.take()


class _Gathered:
    """Gathers rows of one kind into row groups.

    Args:
        further_bytes: bytes to add for each row.
    """

    def __init__(self, further_bytes: int = 0) -> None:
        self._further_bytes = further_bytes
        self._tables: list[pa.Table] = []
        self.rows = self._size = 0

    def add(self, table: pa.Table) -> Iterator[pa.Table]:
        """Add a table; give the row groups that are full."""
        start = 0
        while start < table.num_rows:
            average = max(table.nbytes // table.num_rows + self._further_bytes, 1)
            room = min(_GROUP_ROWS - self.rows, max((_GROUP_BYTES - self._size) // average, 1))
            piece = table.slice(start, room)
            self._tables.append(piece)
            start += piece.num_rows
            self.rows += piece.num_rows
            self._size += piece.nbytes + piece.num_rows * self._further_bytes
            if self.rows >= _GROUP_ROWS or self._size >= _GROUP_BYTES:
                yield self.take()

    def take(self) -> pa.Table:
        """The rows gathered so far; gathering starts again."""
        tables, self._tables, self.rows, self._size = self._tables, [], 0, 0
        return pa.concat_tables(tables)


def _finding(end: bytes, *, size: int, counted: Mapping[str, int]) -> str | None:
    """The fault of a file according to its footer; None if there is none.

    Args:
        end: the end of the file, from the footer on.
        size: its size in bytes.
        counted: the number of rows of each kind, and of all kinds as ``"any"``.
    """
    try:
        footer = pq.read_metadata(pa.BufferReader(end))
    except (pa.ArrowException, OSError) as error:
        return f"its footer can't be read: {error}"
    leaves = {footer.schema.column(i).path: i for i in range(footer.num_columns)}
    found = dict.fromkeys(counted, 0)
    position = 0
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        found["any"] += group.num_rows
        for kind in FILE_KINDS:
            paths = group.column(leaves[f"{kind}.path"])
            found[kind] += group.num_rows - paths.statistics.null_count
        for leaf in range(footer.num_columns):
            chunk = group.column(leaf)
            start = chunk.dictionary_page_offset or chunk.data_page_offset
            if start < position:
                return f"a chunk begins at {start}, before the end of another one at {position}"
            position = start + chunk.total_compressed_size
    if position > size - len(end):
        return f"its row groups end at {position}, and its footer begins at {size - len(end)}"
    return None if found == counted else f"its footer has {found} rows, and {counted} were written"
