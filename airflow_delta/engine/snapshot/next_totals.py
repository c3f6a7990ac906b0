"""Totals over the live files of the version that a commit makes, where they can be told cheaply.

They are never taken from the checksum of the version before. An ``add`` may name a file that is live
already, as one does that rewrites statistics, or one that repeats a commit; it says nothing of it, and
whoever adds it to a sum counts the file twice. So the files themselves are looked at:

=================================  ===============================================================
the commit makes                   the totals are told by
=================================  ===============================================================
version 0                          the commit
a version after others, in a log   the files before it, which are in memory, and the commit
without checkpoint
a version after one whose          likewise: they are few enough to be read for it
checksum tells of at most `FEW`
files
any other version                  nobody; the next checkpoint counts again
=================================  ===============================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.action_schema import FILE_KEY_COLUMNS
from airflow_delta.engine.log.version_checksum import read_checksum
from airflow_delta.engine.model.actions import AddFile, RemoveFile
from airflow_delta.engine.replay.file_key import file_keys, keys_of_files
from airflow_delta.engine.snapshot.snapshot import Snapshot

__all__ = ["FEW", "FileTotals", "next_totals"]

FEW = 10_000
"""So many files are looked at after each commit: about a megabyte of a checkpoint."""


@dataclass(frozen=True, slots=True)
class FileTotals:
    """Counts and sums over live files.

    Attributes:
        num_files: how many there are.
        size_in_bytes: their sizes added up.
        num_deletion_vectors: how many have a deletion vector; None where nobody counted.
        num_deleted_records: how many rows those delete; None where nobody counted.
    """

    num_files: int = 0
    size_in_bytes: int = 0
    num_deletion_vectors: int | None = 0
    num_deleted_records: int | None = 0


def next_totals(
    base: Snapshot | None, adds: Sequence[AddFile], removes: Sequence[RemoveFile]
) -> FileTotals | None:
    """The totals after a commit; None where telling them would cost too much or isn't certain.

    Args:
        base: the version before; None for a new table.
        adds: what the commit adds: at most one of each logical file.
        removes: what it removes: live files of the version before.

    Raises:
        CorruptLogError: the log or the checksum of the version before can't be read.
        StorageError: the store failed.
    """
    added = _sums(adds)
    if base is None:
        return FileTotals(*added)
    if base.segment.checkpoint is not None:
        told = read_checksum(base.state.storage, base.version)
        if told is None or told.num_files > FEW:
            return None
    staying = _sums_of_staying(base, [*adds, *removes])
    if staying is None:
        return None
    return FileTotals(*map(sum, zip(staying, added, strict=True)))


def _sums(adds: Sequence[AddFile]) -> tuple[int, int, int, int]:
    """As in `FileTotals`. Loops over the files of one commit, which came as objects."""
    vectors = [add.deletion_vector for add in adds if add.deletion_vector is not None]
    deleted = sum(vector.cardinality for vector in vectors)
    return len(adds), sum(add.size for add in adds), len(vectors), deleted


def _sums_of_staying(
    base: Snapshot, touched: Sequence[AddFile | RemoveFile]
) -> tuple[int, int, int, int] | None:
    """Over the live files that a commit doesn't mention; None if one tells no size."""
    live = base.state.live_adds((*FILE_KEY_COLUMNS, "size"))
    mentioned = keys_of_files(touched, table=base.table)
    keys = file_keys(live, table=base.table)
    staying = live.filter(pc.invert(pc.is_in(keys, value_set=mentioned)))
    sizes, vectors = staying["size"], staying["deletionVector"]
    if sizes.null_count:
        return None
    deleted = _sum(pc.struct_field(vectors, "cardinality"))
    return len(sizes), _sum(sizes), len(vectors) - vectors.null_count, deleted


def _sum(column: pa.ChunkedArray) -> int:
    return int(pc.sum(column, min_count=0).as_py())
