"""What the file actions of a commit do to the files that the table has.

Spec: PROTOCOL.md, "Action Reconciliation" and "Add File and Remove File".

* A ``remove`` finds its ``add`` by path and deletion vector. One that finds none removes nothing: the
  rows that were to go would stay, without a word.
* An ``add`` replaces the live file of its path only if it has the same deletion vector. With another
  one, and without a ``remove`` of the former, the file would be in the table twice, rows that were
  deleted among them.
* ``dataChange=false`` says that rows were rearranged, and readers of changes look away. Such an ``add``
  is of a file that is there already, or comes with a ``remove`` that its rows are from. Such a ``remove``
  comes with an ``add`` that its rows are in, unless none are left in the file; the file itself with a
  larger deletion vector holds fewer.

To know the live files of some paths takes a look at all files of the table, which a blind append to a
table of millions must not wait for. It is spared where all that the commit does is to add files without
deletion vectors, as new data:

=======================================  =======================================================
the table                                such an append
=======================================  =======================================================
can't have deletion vectors              replaces what has its path, if anything: nothing to see
tracks rows, has no checkpoint, or       is looked at: the files are read for its row ids in any
has few files                            case, are in memory, or are read in no time
=======================================  =======================================================

What is left are large tables with deletion vectors, and writers that use the path of a file with one for
another file: they would have overwritten it, too. Delta Spark looks at neither.
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
    """Match a commit's files with the table's.

    Files that are removed are there, none is there twice, and rows that were moved stay. What a
    ``remove`` leaves out is filled in; see `removed_files`.

    Raises:
        ConstraintViolationError: no live file has the path and the deletion vector of a ``remove``, or
            its ``add`` says something else than that; an ``add`` leaves the file of its path in the
            table with another deletion vector; or an action with ``dataChange=false`` changes data.
        CorruptLogError: the table's live files can't be read.
        StorageError: the store failed.
    """
    if not _needs_live_files(actions, context):
        return actions
    columns = REPEATED_COLUMNS if actions.removes else FILE_KEY_COLUMNS
    paths, live = live_of_paths((*actions.adds, *actions.removes), context, columns)
    keys = file_keys(live, table=context.table)
    there = dict(zip(keys.to_pylist(), paths, strict=True))
    removed = keys_of_files(actions.removes, table=context.table)
    places = pc.index_in(removed, value_set=keys)
    if places.null_count:
        first = actions.removes[pc.indices_nonzero(places.is_null())[0].as_py()]
        raise context.violation(
            f"the table has no file {first.path!r} with {_vector(first)}, which is removed "
            f"here ({places.null_count} such files); a remove must repeat the path and the deletion "
            "vector of a live file's add"
        )
    staying = there.keys() - set(removed.to_pylist()) - set(_keys(actions.adds, context))
    _check_once(actions.adds, {there[key] for key in staying}, context)
    _check_rearranged(actions, set(paths), context)
    if not actions.removes:
        return actions
    return replace(actions, removes=complete_removes(actions.removes, live.take(places), context))


def _needs_live_files(actions: Actions, context: CommitContext) -> bool:
    """Whether the live files are to be looked at; see the module."""
    if actions.removes or any(
        file.deletion_vector is not None or not file.data_change for file in actions.adds
    ):
        return True
    base = context.base
    if base is None or not actions.adds:
        return False
    if "deletionVectors" not in supported_features(base.protocol):
        return False
    return row_tracking.FEATURE in context.supported or _is_read_in_no_time(base)


def _is_read_in_no_time(base: Snapshot) -> bool:
    if base.segment.checkpoint is None:
        return True
    try:
        told = read_checksum(base.storage, base.version)
    except CorruptLogError:
        return False
    return told is not None and told.num_files <= FEW


def _keys(files: Sequence[AddFile | RemoveFile], context: CommitContext) -> list[str]:
    keys: list[str] = keys_of_files(files, table=context.table).to_pylist()
    return keys


def _check_once(files: Sequence[AddFile], staying: set[str], context: CommitContext) -> None:
    """No file is added whose path stays in the table with another deletion vector."""
    for file in files if staying else ():
        if context.path_key(file) in staying:
            raise context.violation(
                f"the file {file.path!r} is added with {_vector(file)}, and it is in the table with "
                "another one: it would be there twice; remove that in the same commit, by the path and "
                "the deletion vector of its add"
            )


def _check_rearranged(actions: Actions, live: set[str], context: CommitContext) -> None:
    """What has ``dataChange=false`` changes no data, as far as can be seen."""
    for add in actions.adds if not actions.removes else ():
        if not add.data_change and context.path_key(add) not in live:
            raise context.violation(
                f"the file {add.path!r} is added with dataChange=false, and neither is it in the table "
                "nor does the commit remove files that its rows could be from; say dataChange=true"
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
        # A file of which all rows are deleted may go without a word, as a purge has it.
        if records.get(context.path_key(remove)) != deleted_rows(remove):
            raise context.violation(
                f"the file {remove.path!r} is removed with dataChange=false, and the commit adds no "
                "file that its rows could be in; say dataChange=true"
            )


def _vector(file: AddFile | RemoveFile) -> str:
    vector = file.deletion_vector
    return f"the deletion vector {vector.unique_id!r}" if vector else "no deletion vector"
