"""Totals over the live files of the version that a commit makes, where they can be told cheaply.

=================================  ===============================================================
the commit makes                   the totals are told by
=================================  ===============================================================
version 0                          the commit
a version after others, in a log   the files before it, which are in memory, and the commit
without checkpoint
a version of a table whose last    those files' sizes and keys, where they are at most `FEW`; else
version has a checksum             the checksum and the commit
any other version                  nobody
=================================  ===============================================================

Adding a commit to a checksum is only right if every ``remove`` tells its size, and if no ``add`` names
a file that is live already, as one that rewrites statistics does. Such an ``add`` brings no rows and
says ``dataChange=false`` (PROTOCOL.md, "Add File and Remove File"); where one does, nothing is told.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.action_schema import DELETION_VECTOR_TYPE, FILE_KEY_COLUMNS
from airflow_delta.engine.arrow.python_arrays import array_of
from airflow_delta.engine.log.version_checksum import VersionChecksum, read_checksum
from airflow_delta.engine.model.actions import AddFile, RemoveFile
from airflow_delta.engine.replay.file_key import file_keys
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
    if base is None:
        return _with_files(FileTotals(), adds, removes)
    if base.segment.checkpoint is None:
        return _by_files(base, adds, removes)
    told = read_checksum(base.state.storage, base.version)
    if told is None or (told.protocol, told.metadata) != (base.protocol, base.metadata):
        return None
    if told.num_files <= FEW:
        return _by_files(base, adds, removes)
    return _by_checksum(told, adds, removes)


def _by_files(
    base: Snapshot, adds: Sequence[AddFile], removes: Sequence[RemoveFile]
) -> FileTotals | None:
    """From the files that are live before the commit, and stay so."""
    live = base.state.live_adds((*FILE_KEY_COLUMNS, "size"))
    touched = file_keys(_key_columns([*adds, *removes]), table=base.table)
    keys = file_keys(live, table=base.table)
    staying = live.filter(pc.invert(pc.is_in(keys, value_set=touched)))
    sizes, vectors = staying["size"], staying["deletionVector"]
    if sizes.null_count:
        return None
    before = FileTotals(
        num_files=len(sizes),
        size_in_bytes=_sum(sizes),
        num_deletion_vectors=len(vectors) - vectors.null_count,
        num_deleted_records=_sum(pc.struct_field(vectors, "cardinality")),
    )
    return _with_files(before, adds, ())


def _by_checksum(
    told: VersionChecksum, adds: Sequence[AddFile], removes: Sequence[RemoveFile]
) -> FileTotals | None:
    """From the checksum of the version before, as far as the commit leaves no doubt."""
    if not all(add.data_change for add in adds):
        return None
    before = FileTotals(
        told.num_files,
        told.table_size_bytes,
        told.num_deletion_vectors,
        told.num_deleted_records,
    )
    return _with_files(before, adds, removes)


def _with_files(
    totals: FileTotals, adds: Sequence[AddFile], removes: Sequence[RemoveFile]
) -> FileTotals | None:
    """Totals, with files more and less. Loops over the files of one commit, which came as objects."""
    removed_sizes = [remove.size for remove in removes if remove.size is not None]
    if len(removed_sizes) < len(removes):
        return None
    vectors, deleted = totals.num_deletion_vectors, totals.num_deleted_records
    if vectors is not None and deleted is not None:
        more, less = _cardinalities(adds), _cardinalities(removes)
        vectors += len(more) - len(less)
        deleted += sum(more) - sum(less)
    after = FileTotals(
        num_files=totals.num_files + len(adds) - len(removes),
        size_in_bytes=totals.size_in_bytes + sum(add.size for add in adds) - sum(removed_sizes),
        num_deletion_vectors=vectors,
        num_deleted_records=deleted,
    )
    possible = min(after.num_files, after.size_in_bytes, vectors or 0, deleted or 0) >= 0
    return after if possible else None


def _cardinalities(files: Iterable[AddFile | RemoveFile]) -> list[int]:
    return [file.deletion_vector.cardinality for file in files if file.deletion_vector is not None]


def _key_columns(files: Sequence[AddFile | RemoveFile]) -> pa.Table:
    vectors = [file.deletion_vector.to_json() if file.deletion_vector else None for file in files]
    columns = [
        array_of([file.path for file in files], pa.string()),
        array_of(vectors, DELETION_VECTOR_TYPE),
    ]
    return pa.Table.from_arrays(
        [pa.chunked_array([column]) for column in columns], names=list(FILE_KEY_COLUMNS)
    )


def _sum(column: pa.ChunkedArray) -> int:
    return int(pc.sum(column, min_count=0).as_py())
