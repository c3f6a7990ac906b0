"""Are the files there that a restore would bring back?

A restore that brought back a file that a vacuum has taken would leave a table that can't be read, so each
file is looked for, data and deletion vectors, before anything is committed (`find_missing_files`).

Files that the table has before and after aren't the restore's doing, and it may be worth having all the
same. So they are looked for too, and the plan and the result name those that are gone, but the restore goes
on.

It is done again after the commit, for what a vacuum has taken in between; then the commit stands, and the
error says so. A restore that is tried again finds its commit, and looks for the files once more, so that
the second try doesn't succeed where the first one has failed.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.action_schema import FILE_KEY_COLUMNS
from airflow_delta.engine.errors import ObjectNotFoundError
from airflow_delta.engine.maintenance.table_files.missing_files import (
    find_absent,
    find_missing_files,
    find_unaffected_version,
    locate_readable_files,
    missing_files_error,
)
from airflow_delta.engine.maintenance.table_files.removals import read_commits
from airflow_delta.engine.replay.file_key import file_keys
from airflow_delta.engine.snapshot.snapshot import Snapshot
from airflow_delta.engine.storage.file_access import FileAccess

__all__ = [
    "check_after_restore",
    "check_before_restore",
    "check_earlier_restore",
    "find_missing_among_staying",
]


def check_before_restore(base: Snapshot, version: int, files: pa.Table, access: FileAccess) -> None:
    """Make sure that the files are there that a restore would bring back.

    Args:
        base: the newest version.
        version: the one that is to be restored.
        files: the adds that would come back.
        access: opens the table's files.

    Raises:
        MissingFilesError: some aren't.
        DeltaError: see `find_missing_files`.
    """
    missing = find_missing_files(files, access)
    if not missing:
        return
    later = find_unaffected_version(base, version, missing)
    whole = "a later version" if later is None else f"version {later} or a later one"
    raise missing_files_error(
        base.table,
        version,
        missing,
        problem=f"version {version} can't be restored, because {{count}} of the files that it needs are "
        "gone",
        remedy="a vacuum takes files that were removed longer ago than "
        f"delta.deletedFileRetentionDuration; restore {whole} (a dry run tells whether all of its files "
        "are there), put the files back, or, where the rest is worth having, say ignore_missing_files=True",
    )


def find_missing_among_staying(
    target: Snapshot, restored: pa.Table, access: FileAccess
) -> tuple[str, ...]:
    """The files that stay in the table and are gone, `MOST_TOLD` at most.

    Files outside of what the table may read aren't looked for.

    Args:
        target: the version that is brought back.
        restored: those of its adds that the newest version doesn't have.
        access: opens the table's files.

    Raises:
        CorruptLogError: a path can't be decoded, or names no file.
        DeletionVectorError: a deletion vector's file can't be told.
        StorageError: the store failed.
    """
    files = target.files(columns=FILE_KEY_COLUMNS)
    if restored.num_rows:
        keys = file_keys(files, table=target.table)
        returning = pc.is_in(keys, value_set=file_keys(restored, table=target.table))
        files = files.filter(pc.invert(returning))
    places, _ = locate_readable_files(files, access)
    return tuple(find_absent(places, access))


def check_after_restore(version: int, files: pa.Table, access: FileAccess) -> None:
    """Make sure that the files are still there that a restore has brought back.

    Args:
        version: the one that the restore has made.
        files: the adds that it has brought back.
        access: opens the table's files.

    Raises:
        MissingFilesError, DeltaError: see `check_before_restore`.
    """
    missing = find_missing_files(files, access)
    if missing:
        raise missing_files_error(
            access.storage.root,
            version,
            missing,
            problem=f"version {version} is committed and stands, but {{count}} of the files that it "
            "brought back are gone",
            remedy="a vacuum has taken them meanwhile; put them back, or restore a version that does "
            f"without them, such as {version - 1}",
        )


def check_earlier_restore(newest: Snapshot, version: int | None, access: FileAccess) -> None:
    """Make sure that the files that an earlier try has brought back are there, as far as they are live.

    Args:
        newest: the newest version.
        version: the one that the earlier try has made. Where its commit is gone nothing can be told.
        access: opens the table's files.

    Raises:
        MissingFilesError, DeltaError: see `check_before_restore`.
    """
    if version is None:
        return
    try:
        told = [commits for _, commits in read_commits(newest, range(version, version + 1))]
    except ObjectNotFoundError:
        return
    live = newest.files(columns=FILE_KEY_COLUMNS)
    keys = file_keys(live, table=newest.table)
    for commits in told:
        added = file_keys(commits.files.adds, table=newest.table)
        files = live.filter(pc.is_in(keys, value_set=added))
        check_after_restore(version, files, access)
