"""The files that a commit removes are in the table.

Spec: PROTOCOL.md, "Action Reconciliation": a ``remove`` finds its ``add`` by path and deletion vector.
One that finds none removes nothing: the rows that were to go would stay, without a word.
"""

from __future__ import annotations

from airflow_delta.engine.model.file_actions import RemoveFile
from airflow_delta.engine.transaction.context import CommitContext
from airflow_delta.engine.transaction.prepare.live_files import are_live
from airflow_delta.engine.transaction.staged import Actions

__all__ = ["check_removed_files"]


def check_removed_files(actions: Actions, context: CommitContext) -> Actions:
    """Refuse to remove what isn't there.

    Raises:
        ConstraintViolationError: no live file has the path and the deletion vector of a ``remove``.
        CorruptLogError: the table's live files can't be read.
        StorageError: the store failed.
    """
    live = are_live(actions.removes, context)
    missing = [file for file, there in zip(actions.removes, live, strict=True) if not there]
    if missing:
        raise context.violation(
            f"the table has no file {missing[0].path!r} with {_vector(missing[0])}, which is removed "
            f"here ({len(missing)} such files); a remove must repeat the path and the deletion "
            "vector of a live file's add"
        )
    return actions


def _vector(file: RemoveFile) -> str:
    vector = file.deletion_vector
    return f"the deletion vector {vector.unique_id!r}" if vector else "no deletion vector"
