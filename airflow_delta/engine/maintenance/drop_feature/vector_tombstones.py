"""Make tombstones for the deletion vectors of removed files, for engines without deletion vectors.

Older versions need the deletion vectors of files that were removed since. But once the table doesn't
support deletion vectors, a vacuum of an engine without them may run: to it these files are orphans, and it
deletes them at once. So the log records them as removed files of their own, which every vacuum keeps until
they expire. Delta Spark does the same, in a commit of the same name.
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
"""Delta Spark's name for the commit."""


def find_unkept_vectors(snapshot: Snapshot) -> list[str]:
    """Find the deletion vector files that only removed files refer to and that have no tombstones.

    Expired tombstones don't count, since no vacuum keeps their files.

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
    recorded = pc.is_in(named, value_set=tombstones["path"].combine_chunks())
    paths: list[str] = named.filter(pc.invert(recorded)).to_pylist()
    return paths


def make_vector_tombstones(paths: list[str], *, now_ms: int) -> list[RemoveFile]:
    """Make the tombstones of the files.

    Args:
        paths: by `find_unkept_vectors`.
        now_ms: the time, in epoch ms.
    """
    return [RemoveFile(path, data_change=False, deletion_timestamp=now_ms) for path in paths]
