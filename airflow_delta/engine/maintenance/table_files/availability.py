"""Check whether the files of an earlier version still exist, and how many of them a vacuum may delete.

The log may rebuild a version whose files a vacuum has deleted. `check_version_files` finds that out before
a reader fails on it:

1. It compares the files of the version with those of the newest version. No vacuum deletes the latter, so
   only the others are looked up (``missing_files.py``).
2. Of the others it counts those that no tombstone of the newest version protects. Those may vanish at any
   time.

Paths are compared in Arrow, as the log spells them. If two versions spell one file differently, it is
looked up needlessly, which does no harm.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.action_schema import FILE_KEY_COLUMNS
from airflow_delta.engine.commit.registry import CommitOwners
from airflow_delta.engine.errors import CommitOwnerError, InvalidTableError
from airflow_delta.engine.maintenance.table_files.missing_files import (
    find_absent,
    find_unaffected_version,
    locate_files,
    missing_files_error,
)
from airflow_delta.engine.snapshot.opening import open_newest
from airflow_delta.engine.snapshot.snapshot import Snapshot
from airflow_delta.engine.storage.base import Storage
from airflow_delta.engine.storage.file_access import FileAccess

__all__ = ["PastFiles", "check_version_files", "open_newest_known"]


@dataclass(frozen=True, slots=True)
class PastFiles:
    """The files of a version, data and deletion vectors, that the newest version no longer has.

    Attributes:
        num_files: how many there are. All of them exist.
        num_unprotected: how many of them a vacuum may delete at any time.
    """

    num_files: int
    num_unprotected: int

    def to_dict(self) -> dict[str, Any]:
        """The numbers as plain JSON values."""
        return asdict(self)


def open_newest_known(storage: Storage, owners: CommitOwners) -> Snapshot:
    """Open the newest version; if the commit owner doesn't answer, the newest one in the log.

    A version in the log is readable without the owner. The commits that aren't backfilled yet hardly matter
    here: a vacuum deletes what was removed long before them.

    Args:
        storage: where the table is.
        owners: the commit owners to ask.

    Raises:
        DeltaError: the table can't be read; see `open_newest`.
    """
    try:
        return open_newest(storage, owners=owners, for_writing=True)
    except (CommitOwnerError, InvalidTableError):
        return open_newest(storage, verified=True)


def check_version_files(snapshot: Snapshot, newest: Snapshot, access: FileAccess) -> PastFiles:
    """Check that all files of a version exist, and count those that the newest version no longer has.

    Args:
        snapshot: the version.
        newest: the newest version.
        access: opens the table's files.

    Raises:
        MissingFilesError: some don't; the message names the first later version that doesn't need them.
        OutsidePathError: the table may not read where one of them is.
        DeltaError: the log can't be read, or the store failed; see `missing_files`.
    """
    if snapshot.version >= newest.version:
        return PastFiles(0, 0)
    now = newest.files(columns=FILE_KEY_COLUMNS)
    then = snapshot.files(columns=FILE_KEY_COLUMNS)
    paths, vectors = _drop_known(then["path"], then["deletionVector"], now)
    locations = locate_files(paths, vectors, root=snapshot.table)
    if not len(locations):
        return PastFiles(0, 0)
    missing = find_absent(locations, access)
    if missing:
        later = find_unaffected_version(newest, snapshot.version, missing)
        whole = "a later version" if later is None else f"version {later} or a later one"
        raise missing_files_error(
            snapshot.table,
            snapshot.version,
            missing,
            problem=f"version {snapshot.version} can't be read any more, because {{count}} of the files "
            "that it needs are gone",
            remedy="a vacuum deletes files that were removed longer ago than "
            f"delta.deletedFileRetentionDuration; read {whole}, or put the files back from a backup; "
            "raise that property to keep versions for longer",
        )
    exposed = locate_files(*_drop_known(paths, vectors, newest.tombstones()), root=snapshot.table)
    return PastFiles(len(locations), len(exposed))


def _drop_known(
    paths: pa.ChunkedArray, vectors: pa.ChunkedArray, known: pa.Table
) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
    """Drop the paths, and the stored deletion vectors, that other actions have as well.

    Args:
        paths: of data files.
        vectors: descriptors of deletion vectors, not necessarily of the same files.
        known: actions, with at least ``path`` and ``deletionVector``.
    """
    vectors = vectors.drop_null()
    return (
        _without(paths, paths, known["path"]),
        # New inline deletion vectors stay in; they have no file, so nobody looks them up.
        _without(vectors, _get_stored(vectors), _get_stored(known["deletionVector"].drop_null())),
    )


def _get_stored(vectors: pa.ChunkedArray) -> pa.ChunkedArray:
    """The part of each descriptor that names its file. A file holds many deletion vectors."""
    return pc.struct_field(vectors, "pathOrInlineDv")


def _without(
    values: pa.ChunkedArray, keys: pa.ChunkedArray, known: pa.ChunkedArray
) -> pa.ChunkedArray:
    names = known.cast(pa.large_string())
    return values.filter(pc.invert(pc.is_in(keys.cast(pa.large_string()), value_set=names)))
