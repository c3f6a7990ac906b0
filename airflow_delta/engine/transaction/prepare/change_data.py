"""Change data files, where a table keeps a feed of its changes.

Spec: PROTOCOL.md, "Add CDC File" and "Change Data Files". Readers of the feed take the ``cdc`` files of a
version, or, where it has none, its added and removed files for inserted and deleted rows. So a commit
does without ``cdc`` files if it "only adds new data or removes existing data without updating any
existing rows":

================================  ====================================================================
the commit changes data and       without ``cdc`` files
================================  ====================================================================
only adds files                   its rows are the inserted ones
only removes files                their rows are the deleted ones
removes files and adds them       the rows in which the two vectors differ are the deleted ones: readers
again with larger deletion        of changes compare the vectors of such a pair (``changes/``). So it
vectors                           counts as a removal, one with a smaller vector as an addition, and one
                                  with another of the same size as both
adds and removes files            the same, if no row of a removed file is in an added one, as when a
                                  table is overwritten. Only the writer of the files knows that: it
                                  declares the feature ``changeDataFeed`` as enforced
================================  ====================================================================
"""

from __future__ import annotations

from airflow_delta.engine.transaction.context import CommitContext
from airflow_delta.engine.transaction.prepare.deletion_vector_changes import deletion_vector_growth
from airflow_delta.engine.transaction.staged import Actions

__all__ = ["check_change_data"]

_FEATURE = "changeDataFeed"
_FOLDER = "_change_data/"


def check_change_data(actions: Actions, context: CommitContext) -> Actions:
    """A commit has change data files where they are needed, and only where the table keeps them.

    Raises:
        ConstraintViolationError: it has some, and the table keeps none; one lies in another folder;
            or it has none, and may have updated rows.
        InvalidTableError: the property is neither true nor false.
    """
    enabled = _FEATURE in context.supported and context.properties.change_data_feed_enabled
    if actions.cdc and not enabled:
        raise context.violation(
            f"it has the change data file {actions.cdc[0].path!r}, and the table keeps no change data; "
            "set delta.enableChangeDataFeed to true first, or leave the file out"
        )
    for file in actions.cdc:
        # Of an absolute path only the last part but one of some table's location could tell.
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
    """Whether rows come and rows go, so that they may be former and new values of one row."""
    grown = deletion_vector_growth(actions, context)
    come = any(
        file.data_change and grown.get(context.path_key(file), 0) <= 0 for file in actions.adds
    )
    go = any(
        file.data_change and grown.get(context.path_key(file), 0) >= 0 for file in actions.removes
    )
    return come and go
