"""A clone has just the files that are copies of those of the version that it is a clone of.

Like a restore, a clone may do to a table what no other commit can: it follows the schema, the properties
and the constraints of another table without a look at rows. All of that rests on one thing, which is made
sure of here: path by path and vector by vector, the files after the commit are those that whoever copied
them has told. What they fulfilled in the table that they come from they fulfil here.

That the copies are equal can't be seen here.
"""

from __future__ import annotations

import pyarrow.compute as pc

from airflow_delta.engine.transaction.context import CommitContext
from airflow_delta.engine.transaction.intent import CloneVersion
from airflow_delta.engine.transaction.prepare.restored_files import file_keys_after
from airflow_delta.engine.transaction.staged import Actions

__all__ = ["check_cloned_files"]


def check_cloned_files(actions: Actions, context: CommitContext) -> Actions:
    """After a clone the live files are those that were told.

    Raises:
        ConstraintViolationError: they aren't, or they are another number than the version has.
        CorruptLogError: the table's live files can't be read.
        StorageError: the store failed.
    """
    cloned = actions.purpose
    if not isinstance(cloned, CloneVersion):
        return actions
    left, wanted = file_keys_after(actions, context), pc.unique(cloned.keys)
    strange = len(left.filter(pc.invert(pc.is_in(left, value_set=wanted))))
    lacking = len(wanted) - (len(left) - strange)
    if strange or lacking or len(wanted) != cloned.version.num_files:
        raise context.violation(
            f"it makes the table a clone of version {cloned.version.version} of {cloned.version.table}, "
            f"which has {cloned.version.num_files} files, and leaves {strange} that are none of its "
            f"{len(wanted)} copies, and {lacking} too few"
        )
    return actions
