"""Delete copies that have expired: only what a copy has written, and nothing that has come since.

1. The files are listed; a place that holds anything else than its copy is left alone (see `why_kept`).
2. The list becomes a file at the place, from which on no copy is made there (`deletion_list`).
3. The place is looked at again. Where it isn't as it was listed, the file is taken back. Otherwise the
   deletion is decided, and the file says so.
4. A commit that a copy has made in between it leaves there, and one that comes later it takes back, because
   of what the file says. So the place is looked at once more, and the file taken back where it has changed.
5. The log goes, so that a Delta copy is no table any more, then the data, the marker, and the list last.

A deletion that was killed goes on with its list, once its time is over; one that hadn't looked again is
decided anew. The list is a file at the place, which others may have written: so all that is there is looked
at as before, but that the log may be gone in parts (`why_kept`), and the list must be of this copy. Where
there are files then that aren't in the list, all stays for somebody to look at.

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
from airflow_delta.copies.request import now_ms
from airflow_delta.copies.source import is_marked_as_copy
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
from airflow_delta.engine.snapshot.timestamps import utc_text
from airflow_delta.engine.storage.base import FileInfo

if TYPE_CHECKING:
    from airflow_delta.copies.marker import CopyMarker
    from airflow_delta.engine import DeltaTable
    from airflow_delta.engine.storage.base import Storage

__all__ = ["delete_copy", "why_kept"]

# Before so many files each it is looked whether the deletion is still this run's.
_BATCH = 1000

# Sidecars, checksums of Hadoop, and files in the making.
_OTHER_LOG_FILE = re.compile(
    rf"{LOG_DIRECTORY}/(_sidecars/[^/]+\.parquet|(_sidecars/|_commits/)?\.[^/]+\.(crc|tmp))"
)

# So many names of files tell somebody what he is to look at.
_NAMED = 5


def delete_copy(table: DeltaTable, marker: CopyMarker) -> str | None:
    """Delete a copy that has expired, or go on with its deletion.

    Args:
        table: the place of the copy.
        marker: its marker.

    Returns:
        Why it stays; None where it is gone.

    Raises:
        InvalidArgumentError: there is a file with the name of the list, or the marker, that is none.
        DeltaError: the place can't be read, or the store failed; what is left can be deleted by another
            call.
    """
    storage, now = table.storage, now_ms()
    begun = read_list(storage)
    if begun is not None:
        if begun.is_left_alone(now_ms=now):
            return f"a run has begun at {utc_text(begun.begun_at_ms)} to delete it"
        if begun.decided:
            reason = _why_not_taken_over(table, marker, begun)
            if reason is not None:
                return reason
            deletion = begun.taken_over(now_ms=now)
            write_list(storage, deletion)
            return _delete_listed(storage, deletion)
    files = _listed(storage)
    reason = why_kept(table, marker, files)
    if reason is not None:
        if begun is not None:
            storage.delete([DELETING])
        return reason
    deletion = DeletionList.begin(marker, files, now_ms=now)
    if begun is not None:
        # In place of the list that is there: at no time there is none.
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
    # A copy that has committed before that, and has looked, takes it that its commit stays.
    reason = _look_again(table, deletion)
    if reason is not None:
        return reason
    return _delete_listed(storage, deletion)


def why_kept(
    table: DeltaTable, marker: CopyMarker, files: Sequence[FileInfo], *, is_decided: bool = False
) -> str | None:
    """Why a copy stays that somebody wants to delete; None where nothing stands against it.

    ====================================  =========================================================
    the copy                              stays if
    ====================================  =========================================================
    any                                   it hasn't expired, or is of an unknown format; there is a
                                          file that no copy has written, a link, or another file
                                          that isn't a regular one
    a directory of files                  there are more files than were written
    a Delta table                         it is another table than the copy, or its log doesn't say
                                          that it is a copy; its newest version isn't the one that is
                                          the copy; or it has a commit owner, who keeps books about it
    ====================================  =========================================================

    Args:
        table: the place of the copy.
        marker: its marker.
        files: all files there, without the marker.
        is_decided: whether files may be gone already: the log at first, in any order.

    Raises:
        DeltaError: the place can't be read.
    """
    if not marker.has_expired(now_ms()):
        return "it hasn't expired"
    if marker.format not in FORMATS:
        return f"it is of the format {marker.format!r}, in which no copy is made"
    special = next(_special_files(table.storage), None)
    if special is not None:
        return f"it holds {special}, which isn't a regular file and which no copy has made"
    paths = [info.path for info in files if not is_unfinished(info.path)]
    data = [path for path in paths if not is_sum(path)]
    if marker.format == DELTA:
        strange = [path for path in paths if not (_is_log_file(path) or is_copied_file(path))]
    else:
        strange = [path for path in data if not is_part(path)]
    if strange:
        return f"it holds {strange[0]}, which no copy has written"
    if marker.format == DELTA:
        return _why_table_kept(table, marker, is_decided=is_decided)
    if marker.num_files is None or len(data) > marker.num_files:
        return f"it holds {len(data)} files, and the copy wrote {marker.num_files}"
    return None


def _why_not_taken_over(table: DeltaTable, marker: CopyMarker, begun: DeletionList) -> str | None:
    """Why a list that says that it is decided isn't gone on with; None where it is this copy's.

    Whoever can write a file to the place can write such a list.
    """
    files = _listed(table.storage)
    reason: str | None
    if begun.marker != marker:
        reason = f"its {DELETING} is of another copy than its {MARKER}"
    elif strange := _not_listed(begun, files):
        return _why_left(strange)
    # The marker goes when all files are gone, and the list after it.
    elif files and read_marker(table.storage) is None:
        reason = f"its {MARKER} is gone, and it holds {files[0].path}"
    else:
        reason = why_kept(table, marker, files, is_decided=True)
    if reason is None:
        return None
    return f"{reason}; delete {DELETING} if nobody is deleting the copy"


def _why_table_kept(
    table: DeltaTable, marker: CopyMarker, *, is_decided: bool = False
) -> str | None:
    try:
        newest = table.snapshot()
    except TableNotFoundError:
        return None if is_decided else "its log is gone, which tells what else was written to it"
    except (CorruptLogError, VersionNotFoundError, ObjectNotFoundError):
        # What is left of a log whose deletion was broken off; its data files have names of copies.
        if is_decided:
            return None
        raise
    if newest.properties.commit_owner is not None:
        return "it has a commit owner, who keeps books about it"
    if newest.metadata.id != marker.target_id:
        return f"it is the table {newest.metadata.id}, and the copy was {marker.target_id}"
    if not is_marked_as_copy(newest):
        return "its log doesn't say that it is a copy"
    committed = marker.committed_version
    if newest.version != committed and not (
        is_decided and committed is not None and newest.version < committed
    ):
        return f"its newest version is {newest.version}, and the copy is {committed}"
    return None


def _look_again(table: DeltaTable, deletion: DeletionList) -> str | None:
    """Why the copy stays after all, and then the deletion is taken back; None where nothing has changed."""
    storage = table.storage
    reason: str | None = "it has changed meanwhile"
    try:
        # The table last: a commit to it is the last that a copy does before it looks for a deletion.
        unchanged = (
            read_marker(storage) == deletion.marker
            and _listed(storage) == deletion.files
            and (deletion.marker.format != DELTA or not _why_table_kept(table, deletion.marker))
        )
        if unchanged:
            reason = None
    finally:
        # Also where the store has failed: nothing is deleted yet, and nobody should have to wait. Unless
        # this run stood still for an hour: another one's list stays, whose files may be gone.
        if reason is not None and is_being_deleted(storage, deletion):
            storage.delete([DELETING])
            _delete_empty_directories(storage)
    return reason


def _delete_listed(storage: Storage, deletion: DeletionList) -> str | None:
    """Delete what was listed, if nothing else is there; return why the rest stays."""
    there = _listed(storage)
    strange = _not_listed(deletion, there)
    if strange:
        return _why_left(strange)
    paths = [info.path for info in there]
    _delete(storage, deletion, [path for path in paths if _is_of_log(path)])
    _delete(storage, deletion, [path for path in paths if not _is_of_log(path)])
    left = [info.path for info in _listed(storage)]
    if left:
        return _why_left(left)
    _delete(storage, deletion, [MARKER])
    _delete_empty_directories(storage)
    _delete(storage, deletion, [DELETING])
    _delete_empty_directories(storage)
    return None


def _not_listed(deletion: DeletionList, files: Sequence[FileInfo]) -> list[str]:
    listed = set(deletion.files)
    return [info.path for info in files if info not in listed and not is_unfinished(info.path)]


def _why_left(paths: Sequence[str]) -> str:
    names = ", ".join(paths[:_NAMED])
    more = f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else ""
    return (
        f"its deletion was decided, and now it holds {names}{more}, which weren't there then; move them "
        "elsewhere or delete them, and a later run finishes the deletion"
    )


def _delete(storage: Storage, deletion: DeletionList, paths: Sequence[str]) -> None:
    for start in range(0, len(paths), _BATCH):
        if not is_being_deleted(storage, deletion):
            raise StorageError(
                "the copy isn't deleted any further: another run goes on with its deletion, or something "
                "else is at its place",
                table=storage.root,
                operation="delete",
            )
        storage.delete(paths[start : start + _BATCH])


def _listed(storage: Storage) -> tuple[FileInfo, ...]:
    """All files of a copy but for those that say what it is, in order."""
    files = (info for info in storage.walk("") if info.path not in (MARKER, DELETING))
    return tuple(sorted(files, key=lambda info: info.path))


def _is_of_log(path: str) -> bool:
    return path.startswith(f"{LOG_DIRECTORY}/")


def _is_log_file(path: str) -> bool:
    """Whether a file is one that writers of Delta tables leave in a log."""
    return (
        parse_log_file(FileInfo(path, 0, 0)) is not None
        or path in (LAST_CHECKPOINT_PATH, LAST_VACUUM)
        or _OTHER_LOG_FILE.fullmatch(path) is not None
    )


def _top(storage: Storage) -> str | None:
    """The directory of a copy in a file system; None in another store, which has no directories.

    The engine's storage doesn't know them.
    """
    if storage.capabilities.remote or "://" in storage.root:
        return None
    return os.path.realpath(resolve(storage.root, ""))


def _special_files(storage: Storage) -> Iterator[str]:
    """What is neither a regular file nor a directory."""
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
    # One that isn't empty holds what somebody has put there meanwhile.
    with suppress(FileNotFoundError):
        # By descriptors: a directory may become a link meanwhile.
        for _, folders, _, descriptor in os.fwalk(top, topdown=False):
            for name in folders:
                with suppress(OSError):
                    os.rmdir(name, dir_fd=descriptor)
    with suppress(OSError):
        Path(top).rmdir()
