"""Compute totals over the live files of the version that a commit makes, if that is cheap.

The totals aren't derived from the checksum of the version before. An ``add`` may be for a file that
is already live, such as one that rewrites statistics or repeats a commit. Nothing in the action
shows that, and adding it to a sum would count the file twice. So the files themselves are read:

=================================  ===============================================================
the commit makes                   the totals are computed from
=================================  ===============================================================
version 0                          the commit
a later version, in a log without  the files before it, which are in memory, and the commit
checkpoint
a version after one whose          likewise: they are few enough to be read
checksum has at most `FEW` files
any other version                  nothing; the next checkpoint counts again
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
"""The most files to read after each commit: about a megabyte of a checkpoint."""


@dataclass(frozen=True, slots=True)
class FileTotals:
    """Counts and sums over live files.

    Attributes:
        num_files: the number of files.
        size_in_bytes: the sum of their sizes.
        num_deletion_vectors: the number of files with a deletion vector; None if it wasn't counted.
        num_deleted_records: the number of rows that those delete; None if it wasn't counted.
    """

    num_files: int = 0
    size_in_bytes: int = 0
    num_deletion_vectors: int | None = 0
    num_deleted_records: int | None = 0


def next_totals(
    base: Snapshot | None, adds: Sequence[AddFile], removes: Sequence[RemoveFile]
) -> FileTotals | None:
    """The totals after a commit; None if they would cost too much or aren't certain.

    Args:
        base: the version before; None for a new table.
        adds: the files that the commit adds: each logical file at most once.
        removes: the files that it removes: live files of the version before.

    Raises:
        CorruptLogError: the log or the checksum of the version before can't be read.
        StorageError: the store failed.
    """
    added = _sum_adds(adds)
    if base is None:
        return FileTotals(*added)
    if base.segment.checkpoint is not None:
        checksum = read_checksum(base.storage, base.version)
        if checksum is None or checksum.num_files > FEW:
            return None
    staying = _sum_staying(base, [*adds, *removes])
    if staying is None:
        return None
    return FileTotals(*map(sum, zip(staying, added, strict=True)))


def _sum_adds(adds: Sequence[AddFile]) -> tuple[int, int, int, int]:
    """The totals of adds, as in `FileTotals`. A loop over the files of one commit, which are objects."""
    vectors = [add.deletion_vector for add in adds if add.deletion_vector is not None]
    deleted = sum(vector.cardinality for vector in vectors)
    return len(adds), sum(add.size for add in adds), len(vectors), deleted


def _sum_staying(
    base: Snapshot, touched: Sequence[AddFile | RemoveFile]
) -> tuple[int, int, int, int] | None:
    """The totals of the live files that a commit doesn't mention; None if one has no size."""
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
