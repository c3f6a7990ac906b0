"""Read the actions of one Parquet file of the log: a checkpoint, a part of one, or a sidecar.

Each row of such a file holds one action: the struct column of its kind is set, the other columns
are null (PROTOCOL.md, "Checkpoints"). So a reader that wants the protocol meets a million rows of
which one matters, and one that wants paths meets columns of statistics that are ten times larger.
`ActionFile` decodes only what was asked for:

* columns: only the leaves of the kinds and fields wanted; a column that the file lacks is null;
* row groups: none whose footer says that they hold no action of the kind, by the null count of a
  field that each such action must have;
* fields that are null all through a row group, as the footer tells, are made instead of decoded.

Row groups are decoded on several threads and handed out in order, as tables of the types of
`action_schema`. A row group of another writer that holds all of a large table is read in slices.

Damage shows as `CorruptLogError`, with the file, wherever Arrow meets it. Checksums of pages, which
our own checkpoints carry, are verified.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from airflow_delta.engine.arrow.action_schema import add_schema, remove_schema
from airflow_delta.engine.arrow.normalise import conform, present_rows
from airflow_delta.engine.arrow.parsed_columns import (
    partition_values_from_parsed,
    stats_from_parsed,
)
from airflow_delta.engine.arrow.read_ahead import read_ahead
from airflow_delta.engine.errors import CorruptLogError
from airflow_delta.engine.storage.base import FileInfo, Storage

__all__ = ["SMALL_KINDS", "ActionFile", "Piece", "reader_threads"]

Piece: TypeAlias = Callable[[], Iterable[pa.Table]]
"""A part of the file actions of a file, that can be read on a thread of its own."""

SMALL_KINDS = ("protocol", "metaData", "txn", "domainMetadata", "sidecar", "checkpointMetadata")
"""The actions of checkpoints that aren't about files."""

# A field that every action of the kind has: where it is null, there is no such action.
_REQUIRED_FIELD = {
    "protocol": "minReaderVersion",
    "metaData": "id",
    "txn": "appId",
    "domainMetadata": "domain",
    "sidecar": "path",
    "checkpointMetadata": "version",
    "add": "path",
    "remove": "path",
}

# Above this many rows a row group is streamed in slices of as many rows. Twice our own row groups.
_SLICE_ROWS = 200_000

_REMOTE_READS = 8

_DAMAGE = (pa.ArrowException, OSError, IndexError, ValueError)
"""What Arrow raises over a damaged file; errors of the storage are no OSError, and pass."""


def reader_threads(storage: Storage) -> int:
    """How many parts of files to read at once: more where reading means waiting for a network."""
    cores = os.cpu_count() or 1
    return max(cores, _REMOTE_READS) if storage.capabilities.remote else cores


class ActionFile:
    """The actions of one Parquet file.

    Nothing is read before a method asks for it; the footer is read once.

    Args:
        storage: the table's storage.
        file: the file; its size spares a request.
    """

    def __init__(self, storage: Storage, file: FileInfo) -> None:
        self._storage = storage
        self._file = file

    @property
    def path(self) -> str:
        """The path of the file below the table's root."""
        return self._file.path

    @cached_property
    def footer(self) -> Any:
        """The Parquet footer (``pyarrow.parquet.FileMetaData``).

        Raises:
            CorruptLogError: the file is no Parquet file.
            ObjectNotFoundError: there is no such file.
        """
        with self._damage(), self._storage.open(self.path, size=self._file.size) as source:
            return pq.read_metadata(source)

    def has(self, kind: str) -> bool:
        """Whether the file has a column for a kind of action.

        Raises:
            CorruptLogError: it has, but without the field that every such action must have.
        """
        if any(path.startswith(f"{kind}.") for path in self._leaves):
            if f"{kind}.{_REQUIRED_FIELD[kind]}" not in self._leaves:
                raise self._corrupt(
                    f"its column {kind!r} lacks the field {_REQUIRED_FIELD[kind]!r}"
                )
            return True
        return False

    def small_actions(self) -> list[tuple[str, dict[str, Any]]]:
        """The actions that aren't about files, as (kind, JSON object) in the order of the rows.

        Fields that are null are left out, as they would be in JSON.

        Raises:
            CorruptLogError: the file is damaged.
        """
        found: list[tuple[str, dict[str, Any]]] = []
        for group in range(self.footer.num_row_groups):
            kinds = [kind for kind in SMALL_KINDS if self._may_hold(group, kind)]
            if not kinds:
                continue
            with self._damage():
                for batch in self._batches(group, kinds, threads=True):
                    for kind in kinds:
                        rows = present_rows(batch.column(kind))
                        found.extend((kind, _plain(row, rows.type)) for row in rows.to_pylist())
        return found

    def adds(self, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """The adds, in tables with the columns asked for (None: all) and those of the file's key.

        Raises:
            CorruptLogError: the file is damaged, or an add has no path.
        """
        return self._file_actions("add", columns)

    def removes(self, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """The removes; see `adds`."""
        return self._file_actions("remove", columns)

    def pieces(self, kind: str, columns: Sequence[str] | None = None) -> list[Piece]:
        """The work of reading adds or removes, in independent pieces for `read_ahead`.

        Args:
            kind: ``"add"`` or ``"remove"``.
            columns: the columns wanted, None for all.

        Raises:
            CorruptLogError: the footer is damaged.
        """
        schema = (add_schema if kind == "add" else remove_schema)(
            None if columns is None else tuple(columns)
        )
        pieces: list[Piece] = []
        for group in range(self.footer.num_row_groups):
            if self._may_hold(group, kind):
                piece = _RowGroup(self, group, kind, schema)
                # A large row group is decoded while it is consumed, else on a thread before.
                large = self.footer.row_group(group).num_rows > _SLICE_ROWS
                pieces.append(piece.stream if large else piece.load)
        return pieces

    def _file_actions(self, kind: str, columns: Sequence[str] | None) -> Iterator[pa.Table]:
        pieces = self.pieces(kind, columns)
        for tables in read_ahead(pieces, threads=reader_threads(self._storage)):
            yield from tables

    @cached_property
    def _leaves(self) -> dict[str, int]:
        schema = self.footer.schema
        return {schema.column(index).path: index for index in range(len(schema))}

    @cached_property
    def _utc_leaves(self) -> frozenset[str]:
        """The INT96 leaves: instants by convention, which their type in Arrow doesn't say."""
        schema = self.footer.schema
        return frozenset(
            path
            for path, index in self._leaves.items()
            if schema.column(index).physical_type == "INT96"
        )

    def _may_hold(self, group: int, kind: str) -> bool:
        return self.has(kind) and not self._all_null(group, f"{kind}.{_REQUIRED_FIELD[kind]}")

    def _nulls(self, group: int, leaf: str) -> int | None:
        """How many values of a leaf are null in a row group, None where the footer doesn't tell."""
        chunk = self.footer.row_group(group).column(self._leaves[leaf])
        if not chunk.is_stats_set or not chunk.statistics.has_null_count:
            return None
        return int(chunk.statistics.null_count)

    def _all_null(self, group: int, leaf: str) -> bool:
        """Whether a leaf that isn't repeated is known to be null in all rows of a row group."""
        return self._nulls(group, leaf) == self.footer.row_group(group).num_rows

    def _batches(
        self, group: int, columns: Sequence[str], *, threads: bool
    ) -> Iterator[pa.RecordBatch]:
        """Decode columns of a row group; on Arrow's threads, or on the caller's alone."""
        with self._storage.open(self.path, size=self._file.size) as source:
            file = pq.ParquetFile(
                source,
                metadata=self.footer,
                page_checksum_verification=True,
                # Nanoseconds, the default, can't hold the years that statistics mention.
                coerce_int96_timestamp_unit="us",
            )
            yield from file.iter_batches(
                batch_size=_SLICE_ROWS,
                row_groups=[group],
                columns=list(columns),
                use_threads=threads,
            )

    @contextmanager
    def _damage(self) -> Iterator[None]:
        try:
            yield
        except _DAMAGE as error:
            raise self._corrupt(f"it can't be read as Parquet: {error}") from error

    def _corrupt(self, finding: str) -> CorruptLogError:
        return CorruptLogError(
            f"{self.path} is damaged: {finding}. An earlier checkpoint, or the commits where they "
            "are still there, may hold what it held",
            table=self._storage.root,
            path=self.path,
        )


class _RowGroup:
    """The adds or the removes of one row group."""

    def __init__(self, file: ActionFile, group: int, kind: str, schema: pa.Schema) -> None:
        self._file = file
        self._group = group
        self._kind = kind
        self._schema = schema
        self._stored = {name: self._stored_as(name) for name in schema.names}

    def load(self) -> list[pa.Table]:
        """Decode on the calling thread."""
        return list(self._tables(threads=False))

    def stream(self) -> Iterator[pa.Table]:
        """Decode slice by slice, while the caller consumes, on Arrow's threads."""
        return self._tables(threads=True)

    def _tables(self, *, threads: bool) -> Iterator[pa.Table]:
        leaves = [f"{self._kind}.{name}" for names in self._stored.values() for name in names]
        with self._file._damage():
            for batch in self._file._batches(self._group, leaves, threads=threads):
                rows = present_rows(batch.column(self._kind))
                if len(rows):
                    yield self._table(rows)

    def _stored_as(self, name: str) -> tuple[str, ...]:
        """The columns of the file that a wanted column is made from; none: it is null."""
        leaves, prefix = self._file._leaves, f"{self._kind}.{name}"
        parsed = f"{name}_parsed"
        has_parsed = any(leaf.startswith(f"{prefix}_parsed.") for leaf in leaves)
        if name == "stats" and has_parsed and self._kind == "add":
            if prefix not in leaves or self._file._all_null(self._group, prefix):
                return (parsed,)
            return (name,) if self._stats_complete() else (name, parsed)
        if name == "partitionValues" and has_parsed:
            if not any(leaf.startswith(f"{prefix}.") for leaf in leaves):
                return (parsed,)
        # An all-null leaf needn't be decoded, unless it is repeated: an empty list isn't null.
        witness = f"{prefix}.storageType" if name == "deletionVector" else prefix
        if witness in leaves:
            return () if self._file._all_null(self._group, witness) else (name,)
        return (name,) if any(leaf.startswith(f"{prefix}.") for leaf in leaves) else ()

    def _stats_complete(self) -> bool:
        """Whether the footer shows that every add of the row group has its statistics as JSON."""
        without_path = self._file._nulls(self._group, "add.path")
        return without_path is not None and without_path == self._file._nulls(
            self._group, "add.stats"
        )

    def _table(self, rows: pa.StructArray) -> pa.Table:
        given = {field.name: index for index, field in enumerate(rows.type)}
        arrays = []
        for field in self._schema:
            column = None
            for stored in self._stored[field.name]:
                array = self._converted(stored, rows.field(given[stored]), field.type)
                column = array if column is None else pc.coalesce(column, array)
            arrays.append(pa.nulls(len(rows), field.type) if column is None else column)
        table = pa.table(arrays, schema=self._schema)
        if table["path"].null_count:
            raise self._file._corrupt(f"it holds an action {self._kind!r} without a path")
        return table

    def _converted(self, stored: str, array: pa.Array, target: pa.DataType) -> pa.Array:
        if stored == "stats_parsed":
            return stats_from_parsed(array, utc=self._file._utc_leaves)
        if stored == "partitionValues_parsed":
            return partition_values_from_parsed(array)
        return conform(array, target)


def _plain(value: Any, type_: pa.DataType) -> Any:
    """A value as its JSON form: maps as objects, null fields of structs left out."""
    if value is None:
        return None
    if pa.types.is_map(type_):
        return dict(value)
    if pa.types.is_struct(type_):
        return {
            field.name: _plain(value[field.name], field.type)
            for field in type_
            if value[field.name] is not None
        }
    return value
