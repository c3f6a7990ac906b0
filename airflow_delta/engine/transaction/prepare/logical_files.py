"""Match the file actions of a commit with the table's live files.

* A ``remove`` must have the path and the deletion vector of a live file. Otherwise it would remove nothing,
  and the rows would silently stay. Its missing fields are filled in (`removed_files`).
* An ``add`` whose path is live with another deletion vector needs a ``remove`` of that. Otherwise the file
  would be in the table twice, with its deleted rows.
* ``dataChange=false`` means that rows were only rearranged, and readers of changes skip the action. Such an
  ``add`` needs a live file of its path, or a ``remove`` of files that contained its rows. Such a ``remove``
  needs an ``add`` that contains its rows, unless all rows of the file are deleted.

PROTOCOL.md, "Action Reconciliation" and "Add File and Remove File".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow.compute as pc

from airflow_delta.engine.arrow.action_schema import FILE_KEY_COLUMNS
from airflow_delta.engine.arrow.statistics.parse import num_records
from airflow_delta.engine.errors import CorruptLogError
from airflow_delta.engine.features import row_tracking
from airflow_delta.engine.features.protocol import supported_features
from airflow_delta.engine.log.version_checksum import read_checksum
from airflow_delta.engine.model.file_actions import AddFile, RemoveFile
from airflow_delta.engine.replay.file_key import file_keys, keys_of_files
from airflow_delta.engine.snapshot.next_totals import FEW
from airflow_delta.engine.snapshot.snapshot import Snapshot
from airflow_delta.engine.transaction.context import CommitContext
from airflow_delta.engine.transaction.prepare.deletion_vector_changes import (
    deleted_rows,
    deletion_vector_growth,
)
from airflow_delta.engine.transaction.prepare.live_files import live_of_paths
from airflow_delta.engine.transaction.prepare.removed_files import (
    REPEATED_COLUMNS,
    complete_removes,
)
from airflow_delta.engine.transaction.staged import Actions

__all__ = ["match_logical_files"]


def match_logical_files(actions: Actions, context: CommitContext) -> Actions:
    """Match a commit's files with the table's live files.

    Returns:
        The actions, with complete removes.

    Raises:
        ConstraintViolationError: no live file has the path and the deletion vector of a ``remove``, or a
            ``remove`` contradicts the ``add`` of its file; an ``add`` leaves the file of its path in the
            table with another deletion vector; or an action with ``dataChange=false`` changes data.
        CorruptLogError: the table's live files can't be read.
        StorageError: the store failed.
    """
    if not _needs_live_files(actions, context):
        return actions
    columns = REPEATED_COLUMNS if actions.removes else FILE_KEY_COLUMNS
    paths, live = live_of_paths((*actions.adds, *actions.removes), context, columns)
    keys = file_keys(live, table=context.table)
    path_of_key = dict(zip(keys.to_pylist(), paths, strict=True))
    removed = keys_of_files(actions.removes, table=context.table)
    rows = pc.index_in(removed, value_set=keys)
    if rows.null_count:
        first = actions.removes[pc.indices_nonzero(rows.is_null())[0].as_py()]
        raise context.violation(
            f"the commit removes {rows.null_count} files that the table doesn't have, such as "
            f"{first.path!r} with {_describe_vector(first)}; a remove must repeat the path and the "
            "deletion vector of a live file's add"
        )
    kept = path_of_key.keys() - set(removed.to_pylist()) - set(_keys(actions.adds, context))
    _check_no_duplicates(actions.adds, {path_of_key[key] for key in kept}, context)
    _check_rearranged(actions, set(paths), context)
    if not actions.removes:
        return actions
    return replace(actions, removes=complete_removes(actions.removes, live.take(rows), context))


def _needs_live_files(actions: Actions, context: CommitContext) -> bool:
    """Whether the commit must be matched with the live files.

    Finding live files by path means reading all files of the table, which would delay a blind append to a
    large table. So it is skipped for commits that only add new data, in files without deletion vectors, if
    the table can't have deletion vectors: such an ``add`` can only replace the file of its path. It is also
    skipped for large tables with deletion vectors. There it would only detect writers that write a new file
    over a file with a deletion vector, which Delta Spark doesn't detect either. It isn't skipped if it is
    cheap, or if row ids need the live files anyway.
    """
    if actions.removes or any(
        file.deletion_vector is not None or not file.data_change for file in actions.adds
    ):
        return True
    base = context.base
    if base is None or not actions.adds:
        return False
    if "deletionVectors" not in supported_features(base.protocol):
        return False
    return row_tracking.FEATURE in context.supported or _has_few_files(base)


def _has_few_files(base: Snapshot) -> bool:
    """Whether reading all live files is cheap: they are in memory, or few by the version checksum."""
    if base.segment.checkpoint is None:
        return True
    try:
        checksum = read_checksum(base.storage, base.version)
    except CorruptLogError:
        return False
    return checksum is not None and checksum.num_files <= FEW


def _keys(files: Sequence[AddFile | RemoveFile], context: CommitContext) -> list[str]:
    keys: list[str] = keys_of_files(files, table=context.table).to_pylist()
    return keys


def _check_no_duplicates(files: Sequence[AddFile], kept: set[str], context: CommitContext) -> None:
    """Check that no added file is also kept in the table with another deletion vector."""
    for file in files if kept else ():
        if context.path_key(file) in kept:
            raise context.violation(
                f"the file {file.path!r} is added with {_describe_vector(file)}, but is in the table with "
                "another one, so that it would be in the table twice; remove the old one in the same "
                "commit, with the path and the deletion vector of its add"
            )


def _check_rearranged(actions: Actions, live: set[str], context: CommitContext) -> None:
    """Check that actions with ``dataChange=false`` change no data, as far as file actions show it."""
    for add in actions.adds if not actions.removes else ():
        if not add.data_change and context.path_key(add) not in live:
            raise context.violation(
                f"the file {add.path!r} is added with dataChange=false, but it isn't in the table, and the "
                "commit removes no files that could contain its rows; set dataChange=true"
            )
    moved = [file for file in actions.removes if not file.data_change]
    if not moved:
        return
    changes = deletion_vector_growth(actions, context)
    takers = (file for file in actions.adds if changes.get(context.path_key(file), 0) <= 0)
    if any(True for _ in takers):
        return
    paths, files = live_of_paths(moved, context, ("path", "stats"))
    records = dict(zip(paths, num_records(files["stats"]).to_pylist(), strict=True))
    for remove in moved:
        # If all rows of a file are deleted, it may be removed without an add. A purge does this.
        if records.get(context.path_key(remove)) != deleted_rows(remove):
            raise context.violation(
                f"the file {remove.path!r} is removed with dataChange=false, but the commit adds no file "
                "that could contain its rows; set dataChange=true"
            )


def _describe_vector(file: AddFile | RemoveFile) -> str:
    vector = file.deletion_vector
    return f"the deletion vector {vector.unique_id!r}" if vector else "no deletion vector"
