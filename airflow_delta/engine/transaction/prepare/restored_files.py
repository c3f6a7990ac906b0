"""Check that a restore leaves exactly the files of the restored version.

A restore may do what other commits can't: it restores NOT NULL or a constraint without a look at rows,
undoes a wider type or column mapping, and adds files with deletion vectors to a table that makes no new
ones. That is safe only if the table then has exactly the files of the restored version, because those
satisfied all of this. So this stage compares paths and deletion vectors.

PROTOCOL.md, "Action Reconciliation".
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.action_schema import FILE_KEY_COLUMNS
from airflow_delta.engine.replay.file_key import file_keys, keys_of_files
from airflow_delta.engine.snapshot.snapshot import Snapshot
from airflow_delta.engine.transaction.context import CommitContext
from airflow_delta.engine.transaction.staged import Actions

__all__ = ["check_restored_files", "file_keys_after"]


def check_restored_files(actions: Actions, context: CommitContext) -> Actions:
    """Check that the live files after a restore are those of the restored version.

    Raises:
        ConstraintViolationError: they aren't.
        CorruptLogError: the files of one of the versions can't be read.
        StorageError: the store failed.
    """
    base, restored = context.base, context.restored_version
    if base is None or restored is None:
        return actions
    after, wanted = file_keys_after(actions, context), _keys(restored)
    unexpected = len(after.filter(pc.invert(pc.is_in(after, value_set=wanted))))
    missing = len(wanted) - (len(after) - unexpected)
    if unexpected or missing:
        raise context.violation(
            f"it restores version {restored.version}, but {missing} files of that version would be "
            f"missing, and {unexpected} other files would be left: expected exactly its files, by path "
            "and deletion vector"
        )
    return actions


def file_keys_after(actions: Actions, context: CommitContext) -> pa.Array:
    """The keys of the files that the table has after the commit, without duplicates.

    Raises:
        CorruptLogError: the table's live files can't be read.
        StorageError: the store failed.
    """
    added, removed = (
        keys_of_files(files, table=context.table) for files in (actions.adds, actions.removes)
    )
    live = pa.chunked_array([], pa.string()) if context.base is None else _keys(context.base)
    kept = live.filter(pc.invert(pc.is_in(live, value_set=removed)))
    return pc.unique(pa.chunked_array([*kept.chunks, *added.chunks], pa.string()))


def _keys(snapshot: Snapshot) -> pa.ChunkedArray:
    return file_keys(snapshot.files(columns=FILE_KEY_COLUMNS), table=snapshot.table)
