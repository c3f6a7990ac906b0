"""Read the actions of one Parquet file of the log: a checkpoint, a part of one, or a sidecar.

Each row has one action: the struct column of its kind is set, and the others are null (PROTOCOL.md,
"Checkpoint Schema"). `ActionFile` decodes only

* the columns of the requested kinds and fields; a column that the file lacks is null;
* the row groups that may have an action of the kind, by the null count of a required field;
* fields that aren't null in all rows of a row group.

Row groups are decoded on several threads and returned in order, as tables of the types of
`action_schema`. A large row group is read in slices.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.action_schema import add_schema, remove_schema
from airflow_delta.engine.arrow.normalise import present_rows
from airflow_delta.engine.arrow.parallel import map_ordered
from airflow_delta.engine.arrow.parquet.repeated_rows import check_distinct_rows
from airflow_delta.engine.arrow.parquet.rows import FileRows, FilteredRows, RowFilter
from airflow_delta.engine.arrow.parquet.source import ParquetSource
from airflow_delta.engine.model.checkpoint_kinds import (
    CHECKPOINT_KINDS,
    SINGLE_KINDS,
    describe_repetition,
)
from airflow_delta.engine.storage.base import FileInfo, Storage

__all__ = ["ActionFile", "Piece", "read_pieces", "reader_threads"]

Piece: TypeAlias = Callable[[], Iterable[pa.Table]]
"""A part of the file actions of a file that one thread can read."""

_PlainReader: TypeAlias = Callable[[Any], dict[str, Any]]

# A required field of each kind. Where it is null, the row has no such action.
_REQUIRED_FIELD = {**CHECKPOINT_KINDS, "add": "path", "remove": "path"}

# A row group of more rows is read in slices of so many. The row groups of this engine are smaller.
_SLICE_ROWS = 131_072

_REMOTE_THREADS = 8


def reader_threads(storage: Storage) -> int:
    """The number of parts of files to read at once; more for a remote store, where readers wait."""
    cores = os.cpu_count() or 1
    return max(cores, _REMOTE_THREADS) if storage.capabilities.remote else cores


def read_pieces(pieces: Iterable[Piece], *, workers: int) -> Iterator[pa.Table]:
    """Read pieces on threads, and yield their tables in order."""
    for tables in map_ordered(_read, pieces, workers=workers):
        yield from tables


def _read(piece: Piece) -> Iterable[pa.Table]:
    return piece()


class ActionFile:
    """The actions of one Parquet file, which are read when a method needs them.

    All methods except `path` raise `CorruptLogError` if the file is damaged or breaks the protocol, and
    `ObjectNotFoundError` if it doesn't exist.

    Args:
        storage: the table's storage.
        file: the file; its known size saves a request.
        exact_size: whether a file of another size counts as damaged: for files whose size the log
            contains.
    """

    def __init__(self, storage: Storage, file: FileInfo, *, exact_size: bool = False) -> None:
        self._path = file.path
        self._threads = reader_threads(storage)
        self._source = ParquetSource(storage, file, slice_rows=_SLICE_ROWS, exact_size=exact_size)

    @property
    def path(self) -> str:
        """The path of the file below the table's root."""
        return self._path

    def load_footer(self) -> ActionFile:
        """Read the footer now, so that later methods needn't wait for it."""
        _ = self._source.footer
        return self

    def non_file_actions(self) -> list[tuple[str, dict[str, Any]]]:
        """Read the non-file actions, as (kind, JSON object) without null fields.

        The order is that of the row groups, inside a row group that of `CHECKPOINT_KINDS`.
        """
        source = self._source
        found: list[tuple[str, dict[str, Any]]] = []
        for group in range(source.footer.num_row_groups):
            kinds = [kind for kind in CHECKPOINT_KINDS if self._may_hold(group, kind)]
            if not kinds:
                continue
            with source.damage():
                for batch in source.batches(group, kinds):
                    for kind in kinds:
                        rows = present_rows(batch.column(kind))
                        readers = _plain_readers(rows.type)
                        found.extend(
                            (kind, _plain_struct(row, readers)) for row in rows.to_pylist()
                        )
        return found

    def check_each_once(self) -> None:
        """Check that no non-file action is there twice.

        Only the fields that identify actions are decoded, up to the first repeated one, because a file of
        some kilobytes may repeat a row a million times.
        """
        source = self._source
        seen: set[tuple[str, str | None]] = set()
        for group in range(source.footer.num_row_groups):
            kinds = [kind for kind in CHECKPOINT_KINDS if self._may_hold(group, kind)]
            if not kinds:
                continue
            required = [f"{kind}.{CHECKPOINT_KINDS[kind]}" for kind in kinds]
            with source.damage():
                for batch in source.batches(group, required, texts_once=True):
                    for kind in kinds:
                        finding = _find_repeated(kind, present_rows(batch.column(kind)), seen)
                        if finding is not None:
                            raise source.corrupt(finding)

    def adds(self, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Read the adds, in tables with the given columns (None: all) and those of the file's key."""
        return self._file_actions("add", columns)

    def removes(self, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Read the removes; see `adds`."""
        return self._file_actions("remove", columns)

    def pieces(
        self,
        kind: str,
        columns: Sequence[str] | None = None,
        *,
        row_filter: RowFilter | None = None,
    ) -> list[Piece]:
        """Divide the reading of adds or removes into independent pieces for `read_pieces`.

        Args:
            kind: ``"add"`` or ``"remove"``.
            columns: the wanted columns; None for all.
            row_filter: selects adds, by columns that needn't be among the wanted ones.
        """
        schema = (add_schema if kind == "add" else remove_schema)(
            None if columns is None else tuple(columns)
        )
        pieces: list[Piece] = []
        for group in range(self._source.footer.num_row_groups):
            if self._may_hold(group, kind):
                check_distinct_rows(self._source, group, kind)
                # A large row group is decoded while it is consumed, another one ahead, on a thread.
                large = self._source.is_large(group)
                rows: FileRows | FilteredRows
                if row_filter is None:
                    rows = FileRows(self._source, group, kind, schema)
                else:
                    workers = None if large else 1
                    rows = FilteredRows(self._source, group, schema, row_filter, workers=workers)
                pieces.append(rows.stream if large else rows.load)
        return pieces

    def _file_actions(self, kind: str, columns: Sequence[str] | None) -> Iterator[pa.Table]:
        return read_pieces(self.pieces(kind, columns), workers=self._threads)

    def _may_hold(self, group: int, kind: str) -> bool:
        required = f"{kind}.{_REQUIRED_FIELD[kind]}"
        if required in self._source.leaves:
            return not self._source.all_null(group, required)
        if self._source.has(kind):
            raise self._source.corrupt(f"its column {kind!r} lacks {_REQUIRED_FIELD[kind]!r}")
        return False


def _find_repeated(
    kind: str, rows: pa.StructArray, seen: set[tuple[str, str | None]]
) -> str | None:
    """Find a repeated action in rows and the actions seen before; add the rows to these.

    Returns:
        The finding; None if no action is repeated.
    """
    if not len(rows):
        return None
    if kind in SINGLE_KINDS:
        if len(rows) > 1 or (kind, None) in seen:
            return describe_repetition(kind)
        seen.add((kind, None))
        return None
    counts = pc.value_counts(rows.field(0))
    # A loop over distinct texts, each of which becomes a dict later anyway.
    for entry in counts:
        text = str(entry["values"].as_py())
        if entry["counts"].as_py() > 1 or (kind, text) in seen:
            return describe_repetition(kind, text)
        seen.add((kind, text))
    return None


def _plain_readers(type_: pa.StructType) -> list[tuple[str, _PlainReader | None]]:
    """Functions that convert the fields of a struct to their JSON form, by name; None: not needed."""
    return [(field.name, _plain_reader(field.type)) for field in type_]


def _plain_reader(type_: pa.DataType) -> _PlainReader | None:
    if pa.types.is_map(type_):
        return dict
    if pa.types.is_struct(type_):
        return partial(_plain_struct, readers=_plain_readers(type_))
    return None


def _plain_struct(
    value: Mapping[str, Any], readers: Iterable[tuple[str, _PlainReader | None]]
) -> dict[str, Any]:
    """A struct in its JSON form: maps as objects, without null fields."""
    return {
        name: item if read is None else read(item)
        for name, read in readers
        if (item := value[name]) is not None
    }
