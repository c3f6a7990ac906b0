"""Require change data files in commits that may update rows, if the table keeps a change data feed.

Readers of the feed read the ``cdc`` files of a version. If it has none, they take the rows of its added
files as inserted, and those of its removed files as deleted. So a commit needs no ``cdc`` files if it "only
adds new data or removes existing data without updating any existing rows":

==================================  ==================================================================
the commit changes data and         without ``cdc`` files
==================================  ==================================================================
only adds files                     all rows of the files were inserted
only removes files                  all rows of the files were deleted
removes files and adds them again   readers compare the deletion vectors of the pair (``changes/``): a
with other deletion vectors         larger one means deleted rows, a smaller one inserted rows. One of
                                    the same size may mean both
adds and removes other files        this is right only if no row of a removed file is in an added one, as
                                    when a table is overwritten. Only the writer of the files knows that.
                                    It declares the feature ``changeDataFeed`` as enforced
==================================  ==================================================================

PROTOCOL.md, "Add CDC File" and "Change Data Files".
"""

from __future__ import annotations

from airflow_delta.engine.transaction.context import CommitContext
from airflow_delta.engine.transaction.prepare.deletion_vector_changes import deletion_vector_growth
from airflow_delta.engine.transaction.staged import Actions

__all__ = ["check_change_data"]

_FEATURE = "changeDataFeed"
_FOLDER = "_change_data/"


def check_change_data(actions: Actions, context: CommitContext) -> Actions:
    """Refuse change data files that the table doesn't keep, and require those that it needs.

    Raises:
        ConstraintViolationError: the commit has change data files, but the table keeps none; a file lies
            outside ``_change_data``; or the commit has none, and may update rows.
        InvalidTableError: the property is neither true nor false.
    """
    enabled = _FEATURE in context.supported and context.properties.change_data_feed_enabled
    if actions.cdc and not enabled:
        raise context.violation(
            f"it has the change data file {actions.cdc[0].path!r}, and the table keeps no change data; "
            "set delta.enableChangeDataFeed to true first, or leave the file out"
        )
    for file in actions.cdc:
        # Absolute paths aren't checked: they may be in the folder of another table.
        relative = ":" not in file.path and not file.path.startswith("/")
        if relative and not file.path.startswith(_FOLDER):
            raise context.violation(
                f"the change data file {file.path!r} lies outside of the folder {_FOLDER}; put it there"
            )
    if not enabled or actions.cdc or _FEATURE in context.enforced:
        return actions
    if _may_update(actions, context):
        raise context.violation(
            "it adds and removes data, and the table keeps change data (delta.enableChangeDataFeed="
            "true): commit the change data files as well, or, if no row of a removed file is in an "
            f"added one, declare that by enforces=['{_FEATURE}']"
        )
    return actions


def _may_update(actions: Actions, context: CommitContext) -> bool:
    """Whether the commit both adds and removes rows, which may be new and old values of the same row."""
    growth = deletion_vector_growth(actions, context)
    adds_rows = any(
        file.data_change and growth.get(context.path_key(file), 0) <= 0 for file in actions.adds
    )
    removes_rows = any(
        file.data_change and growth.get(context.path_key(file), 0) >= 0 for file in actions.removes
    )
    return adds_rows and removes_rows
