"""A restore leaves just the files of the version that it brings back.

Much that a commit may otherwise not do to a table is allowed to a restore: to bring back NOT NULL or a
constraint without a look at rows, to take back a wider type or column mapping, to add a file with a
deletion vector to a table that makes no new ones. All of that rests on one thing, which is made sure of
here: path by path and vector by vector, the files after the commit are those that the version had
(PROTOCOL.md, "Action Reconciliation"). What they fulfilled there they fulfil again.
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
    """After a restore the live files are those of the version that it brings back.

    Raises:
        ConstraintViolationError: they aren't.
        CorruptLogError: the files of one of the versions can't be read.
        StorageError: the store failed.
    """
    base, restored = context.base, context.restored_version
    if base is None or restored is None:
        return actions
    left, wanted = file_keys_after(actions, context), _keys(restored)
    strange = left.filter(pc.invert(pc.is_in(left, value_set=wanted)))
    lacking = len(wanted) - (len(left) - len(strange))
    if len(strange) or lacking:
        raise context.violation(
            f"it brings back version {restored.version}, and leaves {len(strange)} files that this didn't "
            f"have and {lacking} too few: expected just its files, by path and deletion vector"
        )
    return actions


def file_keys_after(actions: Actions, context: CommitContext) -> pa.Array:
    """The keys of the files that the table has after the commit, each once.

    Raises:
        CorruptLogError: the table's live files can't be read.
        StorageError: the store failed.
    """
    added, removed = (
        keys_of_files(files, table=context.table) for files in (actions.adds, actions.removes)
    )
    live = pa.chunked_array([], pa.string()) if context.base is None else _keys(context.base)
    staying = live.filter(pc.invert(pc.is_in(live, value_set=removed)))
    return pc.unique(pa.chunked_array([*staying.chunks, *added.chunks], pa.string()))


def _keys(snapshot: Snapshot) -> pa.ChunkedArray:
    return file_keys(snapshot.files(columns=FILE_KEY_COLUMNS), table=snapshot.table)
