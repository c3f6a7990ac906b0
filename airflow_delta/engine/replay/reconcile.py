"""Reconcile file actions into live files and tombstones.

1. `reconcile_commits` reconciles the commits after the checkpoint with each other, in memory. The newest
   action with a file's key (`file_key`) decides whether the file is live or a tombstone.
2. `ReconciledCommits.survivors` filters the rows of the checkpoint (the *base*), which are reconciled
   already: a row holds unless a later commit mentions its file. The rows are streamed, so memory depends
   on the commits alone.

Spec: PROTOCOL.md, "Action Reconciliation".
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.action_schema import POSITION, VERSION, FileActions
from airflow_delta.engine.arrow.memory_pool import decoding_pool
from airflow_delta.engine.arrow.numpy_arrays import (
    BoolVector,
    Int64Vector,
    bool_array,
    int64_view,
)
from airflow_delta.engine.arrow.python_arrays import scalar_of
from airflow_delta.engine.errors import DeltaWarning
from airflow_delta.engine.log.compacted import unreconciled
from airflow_delta.engine.model.lazy import lazy_property
from airflow_delta.engine.replay.file_key import file_keys
from airflow_delta.engine.replay.key_hashes import KeyHasher, KeyHashes

__all__ = [
    "ReconciledCommits",
    "check_contradictions",
    "contradictions",
    "filter_actions",
    "newest_mentions",
    "reconcile_commits",
    "reconcile_further",
    "values_of",
    "warn_of_contradiction",
]

_NO_COMPACTIONS: Mapping[int, str] = MappingProxyType({})


@dataclass(frozen=True)
class ReconciledCommits:
    """The reconciled file actions of the commits after a checkpoint.

    Attributes:
        adds: the adds that are live at the end, in log order.
        removes: the removes that no later add cancels, in log order.
        table: the table's location.
        hashed: the hashed keys of all files that the commits mention, ascending, and their hasher;
            None until they are needed.
    """

    adds: pa.Table
    removes: pa.Table
    table: str
    hashed: tuple[KeyHashes, KeyHasher] | None = None

    @lazy_property
    def keys(self) -> pa.Array:
        """The keys themselves. One action of each file has survived, so they are all here."""
        keys = _keys(FileActions(self.adds, self.removes), self.table)
        if keys.nbytes > _OFFSETS_REACH:
            keys = keys.cast(pa.large_string())
        return pa.concat_arrays(keys.chunks) if keys.num_chunks else pa.nulls(0, keys.type)

    def survivors(self, base: pa.Table) -> pa.Table:
        """The rows of a checkpoint that the commits don't override."""
        files, hasher = self._mentioned
        if not len(files) or not base.num_rows:
            return base
        keys = hasher.hashes(file_keys(base, table=self.table))
        order = keys.order()
        overridden = np.empty(len(keys), np.bool_)
        overridden[order] = keys.pick(order).is_in(files)
        return base.filter(bool_array(~overridden)) if overridden.any() else base

    @lazy_property
    def _mentioned(self) -> tuple[KeyHashes, KeyHasher]:
        """The files that override those of the checkpoint. One action of each has survived."""
        if self.hashed is not None:
            return self.hashed
        hasher = KeyHasher()
        actions = FileActions(self.adds, self.removes)
        return hasher.hashes(_keys(actions, self.table)).factorize()[1], hasher


_OFFSETS_REACH = 2**31 - 1
"""The bytes of text that one array of strings can hold; beyond it, offsets need 64 bits."""


def reconcile_commits(
    actions: FileActions, *, table: str, compactions: Mapping[int, str] = _NO_COMPACTIONS
) -> ReconciledCommits:
    """Reconcile the file actions of consecutive commits.

    Args:
        actions: with `VERSION` and `POSITION`; each table ascends by position.
        table: the table's location, for warnings.
        compactions: the versions whose actions come from a compaction, with its path.

    Raises:
        CorruptLogError: a compaction has more than one action for a file. Facts: version, path.
    """
    hasher = KeyHasher()
    codes, files = hasher.hashes(_keys(actions, table)).factorize()
    positions = values_of(actions, POSITION)
    wins = np.zeros(len(positions), dtype=np.bool_)
    wins[newest_mentions(codes, positions)] = True
    rows = contradictions(codes, values_of(actions, VERSION))
    if len(rows):
        # A compaction that contradicts itself is refused: its commits can be read instead.
        check_contradictions(actions, rows, table=table, compactions=compactions)
        # Only a warning about a commit: an error would make tables unreadable that other engines read.
        warn_of_contradiction(actions, int(rows[0]), table=table)
    survivors = filter_actions(actions, wins)
    return ReconciledCommits(survivors.adds, survivors.removes, table, (files, hasher))


def reconcile_further(earlier: ReconciledCommits, news: FileActions) -> ReconciledCommits:
    """Add later commits to reconciled commits.

    All new actions hold, and those of the earlier commits whose files aren't mentioned again.

    Args:
        earlier: the earlier commits; columns that are not in ``news`` are dropped.
        news: the file actions of the later commits, as in `reconcile_commits`.
    """
    old = FileActions(earlier.adds, earlier.removes)
    later = reconcile_commits(news, table=earlier.table)
    first = int(values_of(old, POSITION).max(initial=-1)) + 1
    adds = _append_later(earlier.adds, later.adds, later.keys, first, earlier.table)
    removes = _append_later(earlier.removes, later.removes, later.keys, first, earlier.table)
    return ReconciledCommits(adds, removes, earlier.table)


_CHUNKS = 8
"""With more chunks than this, iterating over them costs more than combining them."""


def _append_later(
    before: pa.Table, after: pa.Table, mentioned: pa.Array, first: int, table: str
) -> pa.Table:
    """Append later rows, from position ``first`` on, to the rows that aren't mentioned again."""
    again = pc.is_in(file_keys(before, table=table), value_set=mentioned)
    kept = before.select(after.column_names)
    if pc.any(again).as_py():
        kept = kept.filter(pc.invert(again))
    if not after.num_rows:
        return kept
    index = after.schema.get_field_index(POSITION)
    positions = pc.add(after[POSITION], scalar_of(first, pa.int64()))
    moved = after.set_column(index, after.schema.field(index), positions)
    rows = pa.concat_tables([kept, moved]) if kept.num_rows else moved
    return rows if rows[POSITION].num_chunks <= _CHUNKS else rows.combine_chunks()


def _keys(actions: FileActions, table: str) -> pa.ChunkedArray:
    """The keys of the adds, then of the removes."""
    tables = (actions.adds, actions.removes)
    chunks = [chunk for rows in tables for chunk in file_keys(rows, table=table).chunks]
    return pa.chunked_array(chunks, pa.string())


def values_of(actions: FileActions, column: str) -> Int64Vector:
    """`VERSION` or `POSITION` of all actions: of the adds, then of the removes."""
    columns = (actions.adds[column], actions.removes[column])
    chunks = [int64_view(chunk) for each in columns for chunk in each.chunks]
    return np.concatenate([np.empty(0, np.int64), *chunks])


def newest_mentions(codes: Int64Vector, positions: Int64Vector) -> Int64Vector:
    """For each file, the row of the newest action about it.

    Args:
        codes: each action's file, numbered from 0 without gaps.
        positions: each action's position in the log.
    """
    newest = np.empty(int(codes.max()) + 1 if len(codes) else 0, np.int64)
    # Values are assigned in ascending order of position, so the last one of a file is its newest.
    order = np.argsort(positions, kind="stable")
    newest[codes[order]] = order
    return newest


def contradictions(codes: Int64Vector, versions: Int64Vector) -> Int64Vector:
    """The rows about a file for which the same commit has an earlier row.

    Args:
        codes: each action's file, numbered from 0 without gaps.
        versions: each action's commit.
    """
    counts = np.bincount(codes)
    if not (counts > 1).any():
        return np.empty(0, np.int64)
    repeated = np.flatnonzero(counts[codes] > 1)
    order = repeated[np.lexsort((versions[repeated], codes[repeated]))]
    same = (np.diff(codes[order]) == 0) & (np.diff(versions[order]) == 0)
    found: Int64Vector = order[:-1][same]
    return found


def check_contradictions(
    actions: FileActions, rows: Int64Vector, *, table: str, compactions: Mapping[int, str]
) -> None:
    """Refuse a compaction that has more than one action for a file.

    Args:
        actions: with `VERSION`.
        rows: the rows that `contradictions` has found: of the adds, then of the removes.
        table: the table's location, for errors.
        compactions: the versions whose actions come from a compaction, with its path.

    Raises:
        CorruptLogError: one of the rows comes from a compaction.
    """
    if not compactions:
        return
    versions = values_of(actions, VERSION)[rows]
    of_compactions = np.flatnonzero(np.isin(versions, list(compactions)))
    if len(of_compactions):
        first = int(of_compactions[0])
        version = int(versions[first])
        file = _path_of(actions, int(rows[first]))
        finding = f"it has more than one action for the file {file!r}, expected one"
        raise unreconciled(finding, version=version, path=compactions[version], table=table)


def _path_of(actions: FileActions, row: int) -> str:
    adds = actions.adds.num_rows
    found: str = (
        actions.adds["path"][row].as_py()
        if row < adds
        else actions.removes["path"][row - adds].as_py()
    )
    return found


def warn_of_contradiction(actions: FileActions, row: int, *, table: str) -> None:
    """Warn that a commit has more than one action for the file of a row (adds, then removes)."""
    version = int(values_of(actions, VERSION)[row])
    warnings.warn(
        f"{table}: commit {version} has more than one action for the file "
        f"{_path_of(actions, row)!r}; the last one is taken. The protocol allows one: the "
        "writer of that commit is at fault",
        DeltaWarning,
        stacklevel=3,
    )


def filter_actions(actions: FileActions, mask: BoolVector) -> FileActions:
    """The actions that a mask selects, which covers the adds, then the removes."""
    adds = actions.adds.num_rows
    return FileActions(
        _filtered(actions.adds, mask[:adds]), _filtered(actions.removes, mask[adds:])
    )


def _filtered(rows: pa.Table, mask: BoolVector) -> pa.Table:
    if mask.all():
        return rows
    # Half the columns of a usual log are null everywhere, and copying nulls is expensive.
    filled = [name for name in rows.column_names if rows[name].null_count < len(mask)]
    # In the default pool, zeroing huge pages would cost more than filtering.
    kept = pc.filter(rows.select(filled), bool_array(mask), memory_pool=decoding_pool())
    columns = [
        kept[name] if name in filled else rows[name].slice(0, kept.num_rows)
        for name in rows.column_names
    ]
    return pa.Table.from_arrays(columns, schema=rows.schema)
