"""Delete copies that have expired: only what a copy has written, and nothing that has come since.

1. The files are listed; a place that holds anything else than its copy is left alone (see `why_kept`).
2. The list becomes a file at the place, from which on no copy is made there (`deletion_list`).
3. The place is looked at again. Where it isn't as it was listed, the file is taken back. Otherwise the
   deletion is decided, and the file says so.
4. A commit that a copy has made in between it leaves there, and one that comes later it takes back, because
   of what the file says. So the place is looked at once more, and the file taken back where it has changed.
5. The log goes, so that a Delta copy is no table any more, then the data, the marker, and the list last.

A deletion that was killed goes on with its list, once its time is over; one that hadn't looked again is
decided anew. Where there are files then that aren't in the list, all stays for somebody to look at.

No PySpark here.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_delta.engine.errors import StorageError, TableNotFoundError
from airflow_delta.engine.log.files import LOG_DIRECTORY
from airflow_delta.engine.model.paths import resolve
from airflow_delta.engine.snapshot.timestamps import utc_text
from airflow_delta.spark.clone_names import is_copied_file
from airflow_delta.spark.copy_formats import DELTA, is_part, is_sum
from airflow_delta.spark.copy_marker import MARKER, read_marker
from airflow_delta.spark.copy_rules import now_ms
from airflow_delta.spark.deletion_list import (
    DELETING,
    DeletionList,
    create_list,
    is_being_deleted,
    is_unfinished,
    read_list,
    write_list,
)

if TYPE_CHECKING:
    from airflow_delta.engine import DeltaTable
    from airflow_delta.engine.storage.base import FileInfo, Storage
    from airflow_delta.spark.copy_marker import CopyMarker

__all__ = ["delete_copy", "why_kept"]

# Before so many files each it is looked whether the deletion is still this run's.
_BATCH = 1000

# So many names of files tell somebody what he is to look at.
_NAMED = 5


def delete_copy(table: DeltaTable, marker: CopyMarker) -> str | None:
    """Delete a copy that has expired, or go on with its deletion.

    Links to files are deleted, and what they lead to stays.

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


def why_kept(table: DeltaTable, marker: CopyMarker, files: Sequence[FileInfo]) -> str | None:
    """Why a copy stays that somebody wants to delete; None where nothing stands against it.

    ====================================  =========================================================
    the copy                              stays if
    ====================================  =========================================================
    any                                   it hasn't expired, there is a file that no copy has
                                          written, or a link to a directory
    a directory of files                  there are more files than were written
    a Delta table                         it is another table than the copy, its newest version isn't
                                          the one that is the copy, or it has a commit owner, who keeps
                                          books about it
    ====================================  =========================================================

    Args:
        table: the place of the copy.
        marker: its marker.
        files: all files there, without the marker.

    Raises:
        DeltaError: the place can't be read.
    """
    if not marker.has_expired(now_ms()):
        return "it hasn't expired"
    link = next(_links_to_directories(table.storage), None)
    if link is not None:
        return f"it holds {link}, a link to a directory, which no copy has made"
    paths = [info.path for info in files if not is_unfinished(info.path)]
    if marker.format == DELTA:
        data = [path for path in paths if not _is_of_log(path)]
        strange = [path for path in data if not is_copied_file(path)]
    else:
        data = [path for path in paths if not is_sum(path)]
        strange = [path for path in data if not is_part(path)]
    if strange:
        return f"it holds {strange[0]}, which no copy has written"
    if marker.format == DELTA:
        return _why_table_kept(table, marker)
    if marker.num_files is None or len(data) > marker.num_files:
        return f"it holds {len(data)} files, and the copy wrote {marker.num_files}"
    return None


def _why_table_kept(table: DeltaTable, marker: CopyMarker) -> str | None:
    try:
        newest = table.snapshot()
    except TableNotFoundError:
        return "its log is gone, which tells what else was written to it"
    if newest.properties.commit_owner is not None:
        return "it has a commit owner, who keeps books about it"
    if newest.metadata.id != marker.target_id:
        return f"it is the table {newest.metadata.id}, and the copy was {marker.target_id}"
    if newest.version != marker.committed_version:
        return f"its newest version is {newest.version}, and the copy is {marker.committed_version}"
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
    listed = set(deletion.files)
    strange = [info.path for info in there if info not in listed and not is_unfinished(info.path)]
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


def _directories(storage: Storage) -> Iterator[tuple[str, list[str]]]:
    """The directories of a file system, from below, with those in them.

    The engine's storage doesn't know them; other stores have none.
    """
    if not storage.capabilities.remote and "://" not in storage.root:
        for directory, inside, _ in os.walk(resolve(storage.root, ""), topdown=False):
            yield directory, inside


def _links_to_directories(storage: Storage) -> Iterator[str]:
    for directory, inside in _directories(storage):
        for name in inside:
            if (Path(directory) / name).is_symlink():
                yield str((Path(directory) / name).relative_to(storage.root))


def _delete_empty_directories(storage: Storage) -> None:
    for directory, _ in _directories(storage):
        # One that isn't empty holds what somebody has put there meanwhile.
        with suppress(OSError):
            Path(directory).rmdir()
