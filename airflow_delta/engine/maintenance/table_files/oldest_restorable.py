"""Find the oldest version whose files all exist: how far back a table can be read or restored.

The log may rebuild versions whose files a vacuum has deleted. If a file that version ``r`` removed is gone,
no version before ``r`` is whole, and ``r`` may be. So `find_oldest_restorable` goes through the commits
from the newest back to the first one that has removed a file that is gone. Every version from that one on
is whole.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.action_schema import VERSION
from airflow_delta.engine.errors import ObjectNotFoundError
from airflow_delta.engine.maintenance.table_files.deletion_vector_files import (
    locate_deletion_vectors,
)
from airflow_delta.engine.maintenance.table_files.locations import locate_or_decode
from airflow_delta.engine.maintenance.table_files.removals import read_commits
from airflow_delta.engine.snapshot.snapshot import Snapshot

__all__ = ["IsGone", "find_oldest_restorable"]

IsGone: TypeAlias = Callable[[pa.Table, pa.ChunkedArray], pa.ChunkedArray]
"""A function that says which files are gone.

It takes removes and the location of each by `locate_or_decode`, null for none, and returns a mask."""


def find_oldest_restorable(
    snapshot: Snapshot, is_gone: IsGone, *, listed: int | None = None
) -> int:
    """Find the oldest version that the log rebuilds and from which on every version has all its files.

    Args:
        snapshot: the newest version, whose own files exist.
        is_gone: says which files are gone.
        listed: the newest version when the files were listed. A file that a later version has removed may
            have been written after the listing.

    Raises:
        VersionNotFoundError: the log rebuilds no version.
        CorruptLogError: a commit breaks the protocol.
    """
    earliest = snapshot.timeline.earliest_recreatable
    newest = snapshot.version if listed is None else listed
    seen = newest + 1
    try:
        versions = range(earliest + 1, newest + 1)
        for first, commits in read_commits(snapshot, versions, newest_first=True):
            removes = commits.files.removes
            if removes.num_rows:
                lost = removes.filter(_is_lost(removes, is_gone, snapshot.table))
                if lost.num_rows:
                    return int(pc.max(lost[VERSION]).as_py())
            seen = first
    except ObjectNotFoundError:
        # A cleanup is running: the log is shorter than it was.
        return min(seen, snapshot.version)
    return earliest


def _is_lost(removes: pa.Table, is_gone: IsGone, root: str) -> pa.ChunkedArray:
    """Whether each remove is of a file that is gone, or whose deletion vector is."""
    relative, absolute = locate_deletion_vectors(removes["deletionVector"], table=root)
    data = is_gone(removes, locate_or_decode(removes["path"], root=root))
    if absolute.null_count < len(absolute):
        relative = pc.coalesce(relative, locate_or_decode(absolute, root=root))
    return pc.or_(data, is_gone(removes, relative))
