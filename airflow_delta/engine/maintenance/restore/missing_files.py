"""Check that the files exist that a restore needs, before and after its commit.

* `check_before_restore`: the files that the restore brings back, data and deletion vectors. If one is
  missing, the restore is refused, since the table couldn't be read.
* `find_missing_among_staying`: the files that both versions have. The restore may be worth it all the same,
  so missing ones are only listed in the plan and the result.
* `check_after_restore`: again after the commit, for files that a vacuum has deleted in between. The commit
  isn't undone, and the error reports the loss.
* `check_earlier_restore`: for a retry that finds the commit of an earlier try. So a retry doesn't succeed
  where the first try has failed.
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
    """Check that the files exist that a restore would bring back.

    Args:
        base: the newest version.
        version: the version to restore.
        files: the adds to restore.
        access: opens the table's files.

    Raises:
        MissingFilesError: some don't.
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
        remedy="a vacuum deletes files that were removed longer ago than "
        f"delta.deletedFileRetentionDuration; restore {whole} (a dry run checks whether all of its files "
        "exist), put the files back from a backup, or set ignore_missing_files=True to restore the rest",
    )


def find_missing_among_staying(
    target: Snapshot, restored: pa.Table, access: FileAccess
) -> tuple[str, ...]:
    """Find the files that stay in the table and don't exist, at most `MAX_MISSING`.

    Files outside of what the table may read are ignored.

    Args:
        target: the version to restore.
        restored: those of its adds that the newest version doesn't have.
        access: opens the table's files.

    Raises:
        CorruptLogError: a path can't be decoded, or names no file.
        DeletionVectorError: a deletion vector's descriptor doesn't name a file.
        StorageError: the store failed.
    """
    files = target.files(columns=FILE_KEY_COLUMNS)
    if restored.num_rows:
        keys = file_keys(files, table=target.table)
        returning = pc.is_in(keys, value_set=file_keys(restored, table=target.table))
        files = files.filter(pc.invert(returning))
    locations, _ = locate_readable_files(files, access)
    return tuple(find_absent(locations, access))


def check_after_restore(version: int, files: pa.Table, access: FileAccess) -> None:
    """Check that the files still exist that a restore has brought back.

    Args:
        version: the version that the restore has made.
        files: the adds that it has restored.
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
            problem=f"version {version} is committed, but {{count}} of the files that it brought back "
            "are gone",
            remedy="a concurrent vacuum has deleted them; put them back from a backup, or restore a "
            f"version that doesn't need them, such as {version - 1}",
        )


def check_earlier_restore(newest: Snapshot, version: int | None, access: FileAccess) -> None:
    """Check that the files exist that an earlier try has restored, as far as they are live.

    Args:
        newest: the newest version.
        version: the version that the earlier try has made. If its commit is gone, nothing is checked.
        access: opens the table's files.

    Raises:
        MissingFilesError, DeltaError: see `check_before_restore`.
    """
    if version is None:
        return
    try:
        found = [commits for _, commits in read_commits(newest, range(version, version + 1))]
    except ObjectNotFoundError:
        return
    live = newest.files(columns=FILE_KEY_COLUMNS)
    keys = file_keys(live, table=newest.table)
    for commits in found:
        added = file_keys(commits.files.adds, table=newest.table)
        files = live.filter(pc.is_in(keys, value_set=added))
        check_after_restore(version, files, access)
