"""Can an earlier version still be read, and for how long?

The log may rebuild a version whose files a vacuum has taken: who reads it fails in the middle of the work.
Whether that is so can be told before. The files that the newest version has as well are there, for no
vacuum takes them; so only the others are looked for (`missing_files`).

Of these, some are protected: a tombstone of the newest version, younger than
``delta.deletedFileRetentionDuration``, keeps vacuums away. What no tombstone protects may go at any time.

All of it is columnar: paths are compared as the log has them. A file that two versions spell differently
is looked for once too often, which harms nobody.
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
    look_for,
    missing_files_error,
    needless_from,
    places_of,
)
from airflow_delta.engine.snapshot.opening import open_newest
from airflow_delta.engine.snapshot.snapshot import Snapshot
from airflow_delta.engine.storage.base import Storage
from airflow_delta.engine.storage.file_access import FileAccess

__all__ = ["PastFiles", "check_version_files", "newest_known"]


@dataclass(frozen=True, slots=True)
class PastFiles:
    """Those files of a version, data and deletion vectors, that the newest version has no more.

    Attributes:
        num_files: how many there are. All of them are there.
        num_unprotected: how many of them a vacuum may take at any time.
    """

    num_files: int
    num_unprotected: int

    def to_dict(self) -> dict[str, Any]:
        """The numbers as plain JSON values."""
        return asdict(self)


def newest_known(storage: Storage, owners: CommitOwners) -> Snapshot:
    """The newest version that can be told of: where no commit owner answers, the newest in the log.

    What a vacuum takes was removed long before, so that commits which aren't backfilled yet say little
    of it; and a version that is in the log is readable without the owner.

    Args:
        storage: where the table is.
        owners: the commit owners to be asked.

    Raises:
        DeltaError: the table can't be read; see `open_newest`.
    """
    try:
        return open_newest(storage, owners=owners, for_writing=True)
    except (CommitOwnerError, InvalidTableError):
        return open_newest(storage, verified=True)


def check_version_files(snapshot: Snapshot, newest: Snapshot, access: FileAccess) -> PastFiles:
    """Make sure that all files of a version are there.

    Args:
        snapshot: the version.
        newest: the newest version.
        access: opens the table's files.

    Raises:
        MissingFilesError: some aren't; the message tells from which version on they aren't needed.
        OutsidePathError: the table may not read where one of them is.
        DeltaError: the log can't be read, or the store failed; see `missing_files`.
    """
    if snapshot.version >= newest.version:
        return PastFiles(0, 0)
    now = newest.files(columns=FILE_KEY_COLUMNS)
    then = snapshot.files(columns=FILE_KEY_COLUMNS)
    paths, vectors = _others(then["path"], then["deletionVector"], now)
    places = places_of(paths, vectors, root=snapshot.table)
    if not len(places):
        return PastFiles(0, 0)
    missing = look_for(places, access)
    if missing:
        later = needless_from(newest, snapshot.version, missing)
        whole = "a later version" if later is None else f"version {later} or a later one"
        raise missing_files_error(
            snapshot.table,
            snapshot.version,
            missing,
            problem=f"version {snapshot.version} can't be read any more, because {{count}} of the files "
            "that it needs are gone",
            remedy="a vacuum takes files that were removed longer ago than "
            f"delta.deletedFileRetentionDuration; read {whole}, or put the files back from a backup; and "
            "raise that property where versions shall last longer",
        )
    exposed = places_of(*_others(paths, vectors, newest.tombstones()), root=snapshot.table)
    return PastFiles(len(places), len(exposed))


def _others(
    paths: pa.ChunkedArray, vectors: pa.ChunkedArray, known: pa.Table
) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
    """The paths, and the deletion vectors that are in files, that other actions don't have.

    Args:
        paths: of data files.
        vectors: descriptors of deletion vectors, which may be of others.
        known: actions, with at least ``path`` and ``deletionVector``.
    """
    vectors = vectors.drop_null()
    return (
        _without(paths, paths, known["path"]),
        # Inline ones that are new stay in: they have no place.
        _without(vectors, _stored(vectors), _stored(known["deletionVector"].drop_null())),
    )


def _stored(vectors: pa.ChunkedArray) -> pa.ChunkedArray:
    """What names the file of each descriptor: a file holds many, each at its offset."""
    return pc.struct_field(vectors, "pathOrInlineDv")


def _without(
    values: pa.ChunkedArray, keys: pa.ChunkedArray, known: pa.ChunkedArray
) -> pa.ChunkedArray:
    names = known.cast(pa.large_string())
    return values.filter(pc.invert(pc.is_in(keys.cast(pa.large_string()), value_set=names)))
