"""Check that the files a commit removes are in the table.

A ``remove`` finds its ``add`` by path and deletion vector (PROTOCOL.md, "Action Reconciliation"). One
that finds none removes nothing: the rows that were to go would stay, without a word.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow.compute as pc

from airflow_delta.engine.arrow.action_schema import FILE_KEY_COLUMNS
from airflow_delta.engine.model.file_actions import RemoveFile
from airflow_delta.engine.replay.file_key import file_keys, keys_of_files
from airflow_delta.engine.transaction.context import CommitContext
from airflow_delta.engine.transaction.staged import StagedActions

__all__ = ["check_removed_files_are_live"]


def check_removed_files_are_live(staged: StagedActions, context: CommitContext) -> None:
    """Refuse a commit that removes what isn't there.

    Raises:
        ConstraintViolationError: no live file has the path and the deletion vector of a ``remove``.
        CorruptLogError: the table's live files can't be read.
        StorageError: the store failed.
    """
    if not staged.removes:
        return
    missing: Sequence[RemoveFile] = staged.removes
    if context.base is not None:
        mine = keys_of_files(staged.removes, table=context.table)
        live = file_keys(context.base.files(columns=FILE_KEY_COLUMNS), table=context.table)
        found = set(live.filter(pc.is_in(live, value_set=mine)).to_pylist())
        keys = mine.to_pylist()
        missing = [f for f, key in zip(staged.removes, keys, strict=True) if key not in found]
    if missing:
        raise context.violation(
            f"the table has no file {missing[0].path!r} with {_vector(missing[0])}, which is removed "
            f"here ({len(missing)} such files); a remove must repeat the path and the deletion "
            "vector of a live file's add"
        )


def _vector(file: RemoveFile) -> str:
    vector = file.deletion_vector
    return f"the deletion vector {vector.unique_id!r}" if vector else "no deletion vector"
