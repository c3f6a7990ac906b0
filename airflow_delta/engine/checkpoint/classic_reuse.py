"""Decide which row groups of the previous checkpoint can be reused.

A row is gone if a commit after the checkpoint mentions its file; a remove is also gone once it has
expired. To find out, only the keys of a row group are decoded, a small part of it. The whole row
group is decoded only if rows are gone, or if it is to be merged with others.

This applies only to files that were written in the way of this engine, where each row group has
adds or removes alone. The actions of other files are decoded: see `incremental_v1`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.action_schema import add_schema, remove_schema
from airflow_delta.engine.arrow.parquet.rows import FileRows
from airflow_delta.engine.arrow.parquet.source import ParquetSource
from airflow_delta.engine.checkpoint.action_rows import ActionRows
from airflow_delta.engine.checkpoint.distinct_files import DistinctFiles
from airflow_delta.engine.checkpoint.row_encoder import FILE_KINDS, EncodedFiles
from airflow_delta.engine.parquet import (
    PyarrowFallback,
    StoredFile,
    StoredGroup,
    check_pages,
    read_stored_file,
)
from airflow_delta.engine.replay.file_key import file_keys
from airflow_delta.engine.replay.reconcile import ReconciledCommits
from airflow_delta.engine.replay.tombstones import expired
from airflow_delta.engine.storage.base import FileInfo, Storage

__all__ = ["Judge", "JudgedGroup", "OurGroup", "our_groups", "small_groups"]

# More rows than any row group of ours has, so each is read in one piece.
_SLICE_ROWS = 1 << 20

_SCHEMAS = {"add": add_schema, "remove": remove_schema}
_COUNTED = {"add": "size", "remove": "deletionTimestamp"}


@dataclass(frozen=True, slots=True)
class OurGroup:
    """A row group of the previous checkpoint that can be copied unchanged.

    Attributes:
        kind: ``"add"`` or ``"remove"``: the kind of all its rows.
        info: its file.
        source: the file, for decoding.
        stored: the file, for copying.
        number: the index of the row group in the file.
    """

    kind: str
    info: FileInfo
    source: ParquetSource
    stored: StoredFile
    number: int

    @property
    def group(self) -> StoredGroup:
        """The row group to copy."""
        return self.stored.groups[self.number]


@dataclass(frozen=True, slots=True)
class JudgedGroup:
    """The rows of a row group that remain.

    Attributes:
        kind: the kind of its actions.
        num_rows: the number of remaining rows.
        adds_size: the sum of their sizes, in bytes; 0 for removes.
        held_rows: the number of rows before.
        held_size: the sum of their sizes before; 0 for removes.
        encoded: the row group to write; None if it is to be merged, or if no row remains.
        rows: the remaining rows, if it is to be merged.
    """

    kind: str
    num_rows: int
    adds_size: int
    held_rows: int
    held_size: int
    encoded: EncodedFiles | None = None
    rows: pa.Table | None = None


def our_groups(storage: Storage, file: FileInfo, like: ActionRows) -> list[OurGroup] | None:
    """The row groups with adds or removes of a file that was written as this engine does now.

    Args:
        storage: the table's storage.
        file: a file of the previous checkpoint.
        like: the new checkpoint, which must already have its non-file actions.

    Returns:
        None if the file was written differently, or if it is damaged.

    Raises:
        ObjectNotFoundError: there is no such file.
    """
    try:
        with storage.open(file.path, size=file.size) as content:
            stored = read_stored_file(content, size=file.size)
    except PyarrowFallback:
        return None
    if not all(like.can_append(stored, group) for group in stored.groups):
        return None
    source = ParquetSource(storage, file, slice_rows=_SLICE_ROWS)
    groups = []
    for number in range(len(stored.groups)):
        missing = {kind: source.nulls(number, f"{kind}.path") for kind in FILE_KINDS}
        kinds = [kind for kind in FILE_KINDS if missing[kind] != source.rows(number)]
        if any(missing[kind] != 0 for kind in kinds) or len(kinds) > 1:
            return None
        groups += [OurGroup(kind, file, source, stored, number) for kind in kinds]
    return groups


def small_groups(
    groups: Iterable[OurGroup], new_rows: Mapping[str, int], like: ActionRows
) -> set[int]:
    """Select the row groups to merge: the small ones, unless there is nothing to merge them with.

    Args:
        groups: the row groups.
        new_rows: the number of new rows, by kind.
        like: the new checkpoint.

    Returns:
        Indices in ``groups``.
    """
    small: dict[str, list[int]] = {kind: [] for kind in FILE_KINDS}
    for index, each in enumerate(groups):
        if like.is_small(each.kind, each.group.num_rows, each.group.size):
            small[each.kind].append(index)
    return {
        index
        for kind, indices in small.items()
        if len(indices) > 1 or new_rows[kind]
        for index in indices
    }


@dataclass(frozen=True, slots=True)
class Judge:
    """Decides about row groups, and reads or encodes what remains. For use by several threads.

    Attributes:
        storage: the table's storage.
        commits: the commits after the checkpoint.
        oldest_tombstone_ms: see ``tombstones.expired``.
        encoder: encodes row groups.
        distinct: gets all files, to find duplicates; None if that isn't needed.
    """

    storage: Storage
    commits: ReconciledCommits
    oldest_tombstone_ms: int
    encoder: ActionRows
    distinct: DistinctFiles | None = None

    def judge(self, ours: OurGroup, *, merge: bool) -> JudgedGroup:
        """Find the remaining rows of a row group.

        Args:
            ours: the row group.
            merge: whether it is small, and to be merged with others.

        Raises:
            CorruptLogError: it is damaged, or has a file that another one has.
            ObjectNotFoundError: its file is gone.
        """
        kind = ours.kind
        keys = _rows(ours, ("path", "deletionVector", _COUNTED[kind]))
        if self.distinct is not None:
            self.distinct.meet(keys)
        held = (keys.num_rows, _sum(keys["size"]) if kind == "add" else 0)
        kept = pc.invert(self._gone(kind, keys))
        left = _sum(kept)
        size = _sum(pc.filter(keys["size"], kept)) if kind == "add" else 0
        if not left:
            return JudgedGroup(kind, 0, 0, *held)
        whole = left == keys.num_rows
        left_size = ours.group.size * left // keys.num_rows
        if merge or (not whole and self.encoder.is_small(kind, left, left_size)):
            return JudgedGroup(kind, left, size, *held, rows=_rows(ours, None).filter(kept))
        data = self._copied(ours) if whole else None
        if data is None:
            return JudgedGroup(kind, left, size, *held, self._encoded(ours, kept))
        copied = EncodedFiles(kind, ours.stored, ours.group, data, size)
        return JudgedGroup(kind, left, size, *held, copied)

    def _gone(self, kind: str, keys: pa.Table) -> pa.ChunkedArray:
        found = file_keys(keys, table=self.commits.table).cast(self.commits.keys.type)
        gone = pc.is_in(found, value_set=self.commits.keys)
        return pc.or_(gone, expired(keys, self.oldest_tombstone_ms)) if kind == "remove" else gone

    def _copied(self, ours: OurGroup) -> bytes | None:
        """The bytes of a row group; None if they are damaged. Decoding gives the better message then."""
        group = ours.group
        with self.storage.open(ours.info.path, size=ours.info.size) as content:
            content.seek(group.start)
            data = content.read(group.length)
        try:
            check_pages(group, data)
        except PyarrowFallback:
            return None
        return data

    def _encoded(self, ours: OurGroup, kept: pa.ChunkedArray) -> EncodedFiles:
        """The remaining rows of a row group, in its stored columns."""
        kind, source = ours.kind, ours.source
        with source.damage():
            batches = list(source.batches(ours.number, [kind]))
        structs = pa.chunked_array([batch.column(kind) for batch in batches]).filter(kept)
        size = _sum(pc.struct_field(structs, "size")) if kind == "add" else 0
        return self.encoder.encoded(kind, structs, adds_size=size)


def _rows(ours: OurGroup, columns: tuple[str, ...] | None) -> pa.Table:
    schema = _SCHEMAS[ours.kind](columns)
    return pa.concat_tables(FileRows(ours.source, ours.number, ours.kind, schema).load())


def _sum(values: Any) -> int:
    return int(pc.sum(values).as_py() or 0)
