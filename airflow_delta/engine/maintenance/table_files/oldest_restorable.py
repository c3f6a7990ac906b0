"""The oldest version of which all data is there: as far back as a table can be read or restored.

The log may rebuild versions whose files a vacuum has taken. A file that was removed by version ``r``
belonged to versions before ``r``; where it is gone, they can't be read any more, and ``r`` may be. So the
commits are gone through from the newest, until one has removed a file that is gone: that is the oldest
version, from which on all are whole.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.action_schema import VERSION
from airflow_delta.engine.errors import ObjectNotFoundError
from airflow_delta.engine.maintenance.table_files.deletion_vector_files import vector_paths
from airflow_delta.engine.maintenance.table_files.locations import places
from airflow_delta.engine.maintenance.table_files.removals import read_commits
from airflow_delta.engine.snapshot.snapshot import Snapshot

__all__ = ["IsGone", "oldest_restorable"]

IsGone: TypeAlias = Callable[[pa.Table, pa.ChunkedArray], pa.ChunkedArray]
"""Which files are gone: from removes, and a place of each by `places`, null for none, to a mask."""


def oldest_restorable(snapshot: Snapshot, is_gone: IsGone, *, listed: int | None = None) -> int:
    """The oldest version that the log rebuilds and all of whose data is there, as of all after it.

    Args:
        snapshot: the newest version, whose own files are there.
        is_gone: tells of files whether they are gone.
        listed: the last version that was there when the files were listed: what a later one has
            removed may have come and gone since then.

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
                lost = removes.filter(_lost(removes, is_gone, snapshot.table))
                if lost.num_rows:
                    return int(pc.max(lost[VERSION]).as_py())
            seen = first
    except ObjectNotFoundError:
        # A cleanup is running: the log is shorter than it was.
        return min(seen, snapshot.version)
    return earliest


def _lost(removes: pa.Table, is_gone: IsGone, root: str) -> pa.ChunkedArray:
    """Which removes are of a file that is gone, or the deletion vector of which is."""
    relative, absolute = vector_paths(removes["deletionVector"], table=root)
    data = is_gone(removes, places(removes["path"], root=root))
    if absolute.null_count < len(absolute):
        relative = pc.coalesce(relative, places(absolute, root=root))
    return pc.or_(data, is_gone(removes, relative))
