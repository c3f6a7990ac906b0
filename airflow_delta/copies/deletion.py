"""Delete expired copies: only the files of the copy, and nothing that was written since.

1. List the files. If the location holds anything but the copy, it is kept (`reason_to_keep`).
2. Write the list to a file in the copy. While it exists, no new copy is made there (`deletion_list`).
3. List again. If something has changed, delete the list file and keep the copy. Otherwise record in
   the list file that the deletion is decided.
4. List once more, because a copy may have committed before that.
5. Delete the log first, so that the copy is no table any more, then the data, the marker, and the
   list file.

If a deletion is killed, a later call continues with its list, once its lease is over, after the same
checks.

No PySpark here.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_delta.copies.clone_names import is_copied_file
from airflow_delta.copies.deletion_list import (
    DELETING,
    DeletionList,
    create_list,
    is_being_deleted,
    is_unfinished,
    read_list,
    write_list,
)
from airflow_delta.copies.formats import DELTA, FORMATS, is_part, is_sum
from airflow_delta.copies.marker import MARKER, read_marker
from airflow_delta.copies.source import is_marked_as_copy
from airflow_delta.engine.clock import now_ms
from airflow_delta.engine.errors import (
    CorruptLogError,
    ObjectNotFoundError,
    StorageError,
    TableNotFoundError,
    VersionNotFoundError,
)
from airflow_delta.engine.log.files import LAST_CHECKPOINT_PATH, LOG_DIRECTORY, parse_log_file
from airflow_delta.engine.maintenance.vacuum.last_vacuum import LAST_VACUUM
from airflow_delta.engine.model.paths import resolve
from airflow_delta.engine.progress import Reporter, report_progress
from airflow_delta.engine.snapshot.timestamps import utc_text
from airflow_delta.engine.storage.base import FileInfo

if TYPE_CHECKING:
    from airflow_delta.copies.marker import CopyMarker
    from airflow_delta.engine import DeltaTable
    from airflow_delta.engine.storage.base import Storage

__all__ = ["delete_copy", "reason_to_keep"]

# After each batch of so many files, check that no other run has taken the deletion over.
_BATCH = 1000

# Sidecars, Hadoop's checksum files, and temporary files.
_OTHER_LOG_FILE = re.compile(
    rf"{LOG_DIRECTORY}/(_sidecars/[^/]+\.parquet|(_sidecars/|_commits/)?\.[^/]+\.(crc|tmp))"
)

# The most file names in a message.
_NAMED = 5


def delete_copy(table: DeltaTable, marker: CopyMarker) -> str | None:
    """Delete a copy that has expired, or continue its deletion.

    Args:
        table: the location of the copy.
        marker: its marker.

    Returns:
        Why it was kept; None if it was deleted.

    Raises:
        InvalidArgumentError: the list file or the marker can't be parsed.
        DeltaError: the location can't be read, or the store failed; another call can delete the rest.
    """
    storage, now = table.storage, now_ms()
    begun = read_list(storage)
    if begun is not None:
        if begun.may_be_running(now_ms=now):
            return f"a run has begun at {utc_text(begun.begun_at_ms)} to delete it"
        if begun.decided:
            reason = _reason_not_to_take_over(table, marker, begun)
            if reason is not None:
                return reason
            deletion = begun.take_over(now_ms=now)
            write_list(storage, deletion)
            return _delete_listed(storage, deletion)
    files = _list_files(storage)
    reason = reason_to_keep(table, marker, files)
    if reason is not None:
        if begun is not None:
            storage.delete([DELETING])
        return reason
    deletion = DeletionList.begin(marker, files, now_ms=now)
    if begun is not None:
        # Overwrite the existing list, so that there is always one.
        write_list(storage, deletion)
    elif not create_list(storage, deletion):
        return "another run has begun to delete it"
    reason = _look_again(table, deletion)
    if reason is not None:
        return reason
    if not is_being_deleted(storage, deletion):
        return "another run has begun to delete it"
    deletion = replace(deletion, decided=True)
    write_list(storage, deletion)
    # A copy that committed and checked before the decision doesn't roll its commit back.
    reason = _look_again(table, deletion)
    if reason is not None:
        return reason
    return _delete_listed(storage, deletion)


def reason_to_keep(
    table: DeltaTable, marker: CopyMarker, files: Sequence[FileInfo], *, is_decided: bool = False
) -> str | None:
    """Say why a copy must not be deleted; None if it may be.

    ====================================  =========================================================
    the copy                              is kept if
    ====================================  =========================================================
    any                                   it hasn't expired, or has an unknown format; there is a
                                          file that no copy has written, a link or other special
                                          file
    a directory of files                  there are more files than were written
    a Delta table                         it is another table than the copy, or its log doesn't
                                          record that it is a copy; its newest version isn't the
                                          one of the copy; or it has a commit owner, which has
                                          records of it
    ====================================  =========================================================

    Args:
        table: the location of the copy.
        marker: its marker.
        files: all files there, without the marker.
        is_decided: whether a deletion may have deleted some files: first those of the log, in any order.

    Raises:
        DeltaError: the location can't be read.
    """
    if not marker.has_expired(now_ms()):
        return "it hasn't expired"
    if marker.format not in FORMATS:
        return f"no copy has the format {marker.format!r}"
    special = next(_special_files(table.storage), None)
    if special is not None:
        return f"it holds {special}, which isn't a regular file and which no copy has made"
    paths = [info.path for info in files if not is_unfinished(info.path)]
    data = [path for path in paths if not is_sum(path)]
    if marker.format == DELTA:
        foreign = [path for path in paths if not (_is_log_file(path) or is_copied_file(path))]
    else:
        foreign = [path for path in data if not is_part(path)]
    if foreign:
        return f"it holds {foreign[0]}, which no copy has written"
    if marker.format == DELTA:
        return _reason_to_keep_table(table, marker, is_decided=is_decided)
    if marker.num_files is None or len(data) > marker.num_files:
        return f"it holds {len(data)} files, and the copy wrote {marker.num_files}"
    return None


def _reason_not_to_take_over(
    table: DeltaTable, marker: CopyMarker, begun: DeletionList
) -> str | None:
    """Say why a decided deletion can't be continued; None if it can.

    The list isn't trusted: anybody who can write to the location can write such a file.
    """
    files = _list_files(table.storage)
    reason: str | None
    if begun.marker != marker:
        reason = f"its {DELETING} is of another copy than its {MARKER}"
    elif unlisted := _not_listed(begun, files):
        return _leftover_message(unlisted)
    # The marker is deleted after all files, and the list after the marker.
    elif files and read_marker(table.storage) is None:
        reason = f"its {MARKER} is gone, and it holds {files[0].path}"
    else:
        reason = reason_to_keep(table, marker, files, is_decided=True)
    if reason is None:
        return None
    return f"{reason}; delete {DELETING} if nobody is deleting the copy"


def _reason_to_keep_table(
    table: DeltaTable, marker: CopyMarker, *, is_decided: bool = False
) -> str | None:
    try:
        newest = table.snapshot()
    except TableNotFoundError:
        return (
            None if is_decided else "its log is gone, so nobody knows what else was written to it"
        )
    except (CorruptLogError, VersionNotFoundError, ObjectNotFoundError):
        # The rest of a log whose deletion was interrupted; the names of the data files are those of copies.
        if is_decided:
            return None
        raise
    if newest.properties.commit_owner is not None:
        return "it has a commit owner, which has records of it"
    if newest.metadata.id != marker.target_id:
        return f"it is the table {newest.metadata.id}, and the copy was {marker.target_id}"
    if not is_marked_as_copy(newest):
        return "its log doesn't record that it is a copy"
    committed = marker.committed_version
    if newest.version != committed and not (
        is_decided and committed is not None and newest.version < committed
    ):
        return f"its newest version is {newest.version}, and the copy is {committed}"
    return None


def _look_again(table: DeltaTable, deletion: DeletionList) -> str | None:
    """Check that nothing has changed since the list was made; if it has, cancel and say why."""
    storage = table.storage
    reason: str | None = "it has changed meanwhile"
    try:
        # The table last: a copy commits right before it looks for a deletion.
        unchanged = (
            read_marker(storage) == deletion.marker
            and _list_files(storage) == deletion.files
            and (
                deletion.marker.format != DELTA or not _reason_to_keep_table(table, deletion.marker)
            )
        )
        if unchanged:
            reason = None
    finally:
        # Also after a failure of the store: nothing is deleted yet, and nobody should have to wait for the
        # lease. But if another run has taken over, its list stays, as it may have deleted files.
        if reason is not None and is_being_deleted(storage, deletion):
            storage.delete([DELETING])
            _delete_empty_directories(storage)
    return reason


def _delete_listed(storage: Storage, deletion: DeletionList) -> str | None:
    """Delete the listed files, if there are no others; else return why they were kept."""
    there = _list_files(storage)
    unlisted = _not_listed(deletion, there)
    if unlisted:
        return _leftover_message(unlisted)
    paths = [info.path for info in there]
    with report_progress("delete", "files", len(paths)) as reporter:
        _delete(storage, deletion, [path for path in paths if _is_of_log(path)], reporter)
        _delete(storage, deletion, [path for path in paths if not _is_of_log(path)], reporter)
    left = [info.path for info in _list_files(storage)]
    if left:
        return _leftover_message(left)
    _delete(storage, deletion, [MARKER])
    _delete_empty_directories(storage)
    _delete(storage, deletion, [DELETING])
    _delete_empty_directories(storage)
    return None


def _not_listed(deletion: DeletionList, files: Sequence[FileInfo]) -> list[str]:
    listed = set(deletion.files)
    return [info.path for info in files if info not in listed and not is_unfinished(info.path)]


def _leftover_message(paths: Sequence[str]) -> str:
    names = ", ".join(paths[:_NAMED])
    more = f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else ""
    return (
        f"its deletion was decided, and now it holds {names}{more}, which weren't there then; move them "
        "elsewhere or delete them, and a later run finishes the deletion"
    )


def _delete(
    storage: Storage,
    deletion: DeletionList,
    paths: Sequence[str],
    reporter: Reporter | None = None,
) -> None:
    for start in range(0, len(paths), _BATCH):
        if not is_being_deleted(storage, deletion):
            raise StorageError(
                "the copy isn't deleted any further: another run has taken its deletion over, or something "
                "else is at its location",
                table=storage.root,
                operation="delete",
            )
        batch = paths[start : start + _BATCH]
        storage.delete(batch)
        if reporter is not None:
            reporter.advance(len(batch))


def _list_files(storage: Storage) -> tuple[FileInfo, ...]:
    """All files of a copy except the marker and the list, sorted by path."""
    files = (info for info in storage.walk("") if info.path not in (MARKER, DELETING))
    return tuple(sorted(files, key=lambda info: info.path))


def _is_of_log(path: str) -> bool:
    return path.startswith(f"{LOG_DIRECTORY}/")


def _is_log_file(path: str) -> bool:
    """Whether a file has a name that writers of Delta tables use in a log."""
    return (
        parse_log_file(FileInfo(path, 0, 0)) is not None
        or path in (LAST_CHECKPOINT_PATH, LAST_VACUUM)
        or _OTHER_LOG_FILE.fullmatch(path) is not None
    )


def _top(storage: Storage) -> str | None:
    """The directory of a copy in a file system; None in an object store, which has no directories."""
    if storage.capabilities.remote or "://" in storage.root:
        return None
    return os.path.realpath(resolve(storage.root, ""))


def _special_files(storage: Storage) -> Iterator[str]:
    """The paths of links, pipes and other special files."""
    top = _top(storage)
    if top is None:
        return
    for directory, folders, names in os.walk(top):
        for name in (*folders, *names):
            path = f"{directory}/{name}"
            with suppress(FileNotFoundError):
                mode = os.lstat(path).st_mode
                if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                    yield os.path.relpath(path, top)


def _delete_empty_directories(storage: Storage) -> None:
    top = _top(storage)
    if top is None:
        return
    # A directory that isn't empty has files that were written in the meantime.
    with suppress(FileNotFoundError):
        # By descriptors, because a directory may be replaced by a link at any time.
        for _, folders, _, descriptor in os.fwalk(top, topdown=False):
            for name in folders:
                with suppress(OSError):
                    os.rmdir(name, dir_fd=descriptor)
    with suppress(OSError):
        Path(top).rmdir()
