"""Reconcile file actions into live files and tombstones.

PROTOCOL.md, "Action Reconciliation": the newest commit that mentions a file, told by its key
(`file_key`), decides whether it is live or a tombstone. A checkpoint is the reconciled past: its
rows hold unless a commit after it mentions the same file.

So the commits after the checkpoint (the *tail*) are reconciled among themselves first, in memory,
and the rows of the checkpoint (the *base*) stream past the keys that the tail mentions. Memory is
in proportion to the tail, never to the checkpoint.

Within one commit the text asks for at most one action per file. Where a commit contradicts itself
the later line wins, and `DeltaWarning` names the commit: refusing would lock people out of tables
that other engines read.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.action_schema import POSITION, VERSION, FileActions
from airflow_delta.engine.arrow.json_columns import parsing_pool
from airflow_delta.engine.arrow.numpy_arrays import BoolVector, bool_array, int64_view
from airflow_delta.engine.errors import DeltaWarning
from airflow_delta.engine.replay.file_key import file_keys

__all__ = ["ReconciledTail", "reconcile_tail"]


_OFFSETS_REACH = 2**31 - 1
"""Bytes of text that one array of strings can hold; beyond it offsets need 64 bits."""


@dataclass(frozen=True, slots=True)
class ReconciledTail:
    """What the commits after a checkpoint come to.

    Attributes:
        adds: the adds that are live at the end, in the order of the log.
        removes: the removes that no later add undid, in the order of the log.
        keys: the keys of all files that the commits mention: what they override in the checkpoint.
        table: the table's location.
    """

    adds: pa.Table
    removes: pa.Table
    keys: pa.Array
    table: str

    def survivors(self, base: pa.Table) -> pa.Table:
        """The rows of a checkpoint that the tail doesn't mention."""
        if len(self.keys) == 0 or base.num_rows == 0:
            return base
        keys = file_keys(base, table=self.table).cast(self.keys.type)
        overridden = pc.is_in(keys, value_set=self.keys)
        if not pc.any(overridden).as_py():
            return base
        return base.filter(pc.invert(overridden))


def reconcile_tail(actions: FileActions, *, table: str) -> ReconciledTail:
    """Reconcile the file actions of consecutive commits among themselves.

    Args:
        actions: with `VERSION` and `POSITION`; each table ascends by position.
        table: the table's location, for warnings.
    """
    adds, removes = actions.adds, actions.removes
    keys = pa.chunked_array(
        [*file_keys(adds, table=table).chunks, *file_keys(removes, table=table).chunks],
        type=pa.string(),
    )
    codes, distinct = _codes(keys)
    positions = np.concatenate([_values(adds[POSITION]), _values(removes[POSITION])])
    newest = np.full(len(distinct), -1, dtype=np.int64)
    # Assigned in ascending order of position, the last value written for a key is its newest.
    order = np.argsort(positions, kind="stable")
    newest[codes[order]] = order
    wins = np.zeros(len(positions), dtype=np.bool_)
    wins[newest] = True
    if len(distinct) < len(positions):
        _warn_of_contradictions(actions, codes, keys, table)
    return ReconciledTail(
        _chosen(adds, wins[: adds.num_rows]),
        _chosen(removes, wins[adds.num_rows :]),
        distinct,
        table,
    )


def _chosen(actions: pa.Table, mask: BoolVector) -> pa.Table:
    # The pool: see `_codes`.
    return (
        actions if mask.all() else pc.filter(actions, bool_array(mask), memory_pool=parsing_pool())
    )


def _codes(keys: pa.ChunkedArray) -> tuple[npt.NDArray[np.int64], pa.Array]:
    """Each key as an index into the distinct keys."""
    if len(keys) == 0:
        return np.empty(0, np.int64), pa.nulls(0, pa.string())
    if keys.nbytes > _OFFSETS_REACH:
        keys = keys.cast(pa.large_string())
    # One array, because the chunks of an encoding would each carry the dictionary so far.
    # It grows by doubling: in the default pool, zeroing huge pages would cost more than hashing.
    pool = parsing_pool()
    whole = pa.concat_arrays(keys.chunks, memory_pool=pool)
    encoded = pc.dictionary_encode(whole, memory_pool=pool)
    return int64_view(encoded.indices.cast(pa.int64())), encoded.dictionary


def _values(column: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    return np.concatenate([np.empty(0, np.int64), *(int64_view(c) for c in column.chunks)])


def _warn_of_contradictions(
    actions: FileActions, codes: npt.NDArray[np.int64], keys: pa.ChunkedArray, table: str
) -> None:
    """Warn of the first commit that has more than one action for one file."""
    versions = np.concatenate([_values(actions.adds[VERSION]), _values(actions.removes[VERSION])])
    repeated = np.flatnonzero(np.bincount(codes)[codes] > 1)
    order = repeated[np.lexsort((versions[repeated], codes[repeated]))]
    same = (np.diff(codes[order]) == 0) & (np.diff(versions[order]) == 0)
    if same.any():
        row = int(order[np.flatnonzero(same)[0]])
        path = keys[row].as_py().partition("\x00")[0]
        warnings.warn(
            f"{table}: commit {versions[row]} has more than one action for the file {path!r}; the "
            "last one is taken. The protocol allows one: the writer of that commit is at fault",
            DeltaWarning,
            stacklevel=2,
        )
