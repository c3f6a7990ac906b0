"""Deletion vectors of removed files, kept for those who don't know what they are.

Older versions need the deletion vectors of files that were removed since, as long as these files stay.
But when the table doesn't support deletion vectors any more, it may be cleaned by a vacuum that has never
heard of them: to it their files belong to nobody, and go at once. So they are noted in the log as removed
files of their own, which every vacuum keeps as long as it keeps others. That is what Delta Spark does, in
a commit of the same name.

The files of expired removals aren't noted: nobody keeps these either.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.python_arrays import array_of
from airflow_delta.engine.maintenance.table_files.deletion_vector_files import (
    locate_deletion_vectors,
)
from airflow_delta.engine.model.file_actions import RemoveFile
from airflow_delta.engine.model.paths import encode_path
from airflow_delta.engine.snapshot.snapshot import Snapshot

__all__ = ["OPERATION", "find_unkept_vectors", "make_vector_tombstones"]

OPERATION = "Deletion Vector Tombstones"
"""What Delta Spark calls the commit."""


def find_unkept_vectors(snapshot: Snapshot) -> list[str]:
    """The files of deletion vectors that only removed files have, and that aren't noted yet.

    Args:
        snapshot: the newest version.

    Returns:
        Their paths as the log has them: relative and encoded, or absolute.

    Raises:
        CorruptLogError: the tombstones can't be read, or a deletion vector is of an unknown kind.
        DeletionVectorError: a descriptor holds no UUID.
        StorageError: the store failed.
    """
    tombstones = snapshot.tombstones()
    removed = tombstones.filter(pc.is_valid(tombstones["deletionVector"]))
    relative, absolute = locate_deletion_vectors(removed["deletionVector"], table=snapshot.table)
    # A loop over files of deletion vectors, many of which share one.
    inside = [encode_path(path) for path in relative.drop_null().unique().to_pylist()]
    named = array_of([*inside, *absolute.drop_null().unique().to_pylist()], pa.string())
    noted = pc.is_in(named, value_set=tombstones["path"].combine_chunks())
    paths: list[str] = named.filter(pc.invert(noted)).to_pylist()
    return paths


def make_vector_tombstones(paths: list[str], *, now_ms: int) -> list[RemoveFile]:
    """The actions that note the files.

    Args:
        paths: by `find_unkept_vectors`.
        now_ms: the time, in epoch ms.
    """
    return [RemoveFile(path, data_change=False, deletion_timestamp=now_ms) for path in paths]
