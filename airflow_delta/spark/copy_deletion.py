"""Delete copies: only what a copy has written, and so that a deletion that is killed goes on.

The marker (`copy_marker`) says first that the deletion has begun: what is left is nothing to read from
then on. The log goes next, so that a Delta copy is no table any more, then the data, and the marker last.
Where a deletion was killed the marker is still there, for the next one to go on by.

A place that holds anything else than its copy is left alone; see `why_kept`.

No PySpark here.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_delta.engine.errors import TableNotFoundError
from airflow_delta.engine.log.files import LOG_DIRECTORY
from airflow_delta.engine.model.paths import resolve
from airflow_delta.spark.clone_names import is_copied_file
from airflow_delta.spark.copy_formats import DELTA, is_part, is_sum
from airflow_delta.spark.copy_marker import MARKER, write_marker
from airflow_delta.spark.copy_rules import held_marker

if TYPE_CHECKING:
    from airflow_delta.engine import DeltaTable, Snapshot
    from airflow_delta.engine.storage.base import Storage
    from airflow_delta.spark.copy_marker import CopyMarker
    from airflow_delta.spark.copy_rules import CopyRequest

__all__ = ["delete_copy", "finish_deletion", "why_kept"]


def why_kept(table: DeltaTable, marker: CopyMarker) -> str | None:
    """Why a copy that may be deleted stays all the same; None where nothing stands against it.

    ====================================  =========================================================
    the copy                              stays if
    ====================================  =========================================================
    any                                   there is a file that no copy has written
    a directory of files                  there are more files than were written
    a Delta table                         its newest version isn't the one that is the copy, or it
                                          has a commit owner, who keeps books about it
    ====================================  =========================================================

    Args:
        table: the place of the copy.
        marker: its marker.

    Raises:
        DeltaError: the place can't be read.
    """
    paths = [info.path for info in table.storage.walk("") if info.path != MARKER]
    if marker.format == DELTA:
        data = [path for path in paths if not path.startswith(f"{LOG_DIRECTORY}/")]
        strange = [path for path in data if not is_copied_file(path)]
    else:
        data = [path for path in paths if not is_sum(path)]
        strange = [path for path in data if not is_part(path)]
    if strange:
        return f"it holds {strange[0]}, which no copy has written"
    if marker.deleting:
        return None
    if marker.format == DELTA:
        return _why_table_kept(table, marker)
    if marker.num_files is None or len(data) > marker.num_files:
        return f"it holds {len(data)} files, and the copy wrote {marker.num_files}"
    return None


def delete_copy(storage: Storage, marker: CopyMarker) -> None:
    """Delete all that is at a place. Links are deleted, and what they lead to stays.

    Args:
        storage: of the place where the copy is.
        marker: its marker.

    Raises:
        StorageError: the store failed; what is left can be deleted by another call.
    """
    if not marker.deleting:
        write_marker(storage, replace(marker, deleting=True))
    _delete_below(storage, LOG_DIRECTORY)
    _delete_below(storage, "")
    storage.delete([MARKER])
    _delete_empty_directories(storage)


def finish_deletion(request: CopyRequest, source: Snapshot, storage: Storage) -> None:
    """Go on with the deletion of a copy of the same table, if one has begun at a target.

    Args:
        request: the copy that is to take its place.
        source: the version to be copied.
        storage: the target's.

    Raises:
        InvalidArgumentError: there is a file of the marker's name that is no marker.
        StorageError: the store failed.
    """
    marker = held_marker(request, storage)
    if marker is not None and marker.deleting and marker.table_id == source.metadata.id:
        delete_copy(storage, marker)


def _why_table_kept(table: DeltaTable, marker: CopyMarker) -> str | None:
    try:
        newest = table.snapshot()
    except TableNotFoundError:
        return "its log is gone, which tells what else was written to it"
    if newest.properties.commit_owner is not None:
        return "it has a commit owner, who keeps books about it"
    if newest.version != marker.committed_version:
        return f"its newest version is {newest.version}, and the copy is {marker.committed_version}"
    return None


def _delete_below(storage: Storage, directory: str) -> None:
    storage.delete([info.path for info in storage.walk(directory) if info.path != MARKER])


def _delete_empty_directories(storage: Storage) -> None:
    """File systems have directories, which the engine's storage doesn't know; other stores have none."""
    if storage.capabilities.remote or "://" in storage.root:
        return
    for directory, _, _ in os.walk(resolve(storage.root, ""), topdown=False):
        # One that isn't empty holds what somebody has put there meanwhile.
        with suppress(OSError):
            Path(directory).rmdir()
