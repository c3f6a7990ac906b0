"""Check that a clone leaves exactly the copies of the cloned version's files.

A clone may do what other commits can't: it adopts the schema, the properties and the constraints of another
table without a look at rows. That is safe only if the table then has nothing but copies of the other
table's files, because those satisfy all of this. So this stage compares paths and deletion vectors with the
list of copies (`CloneVersion.keys`). It can't check that the copies have the same content.
"""

from __future__ import annotations

import pyarrow.compute as pc

from airflow_delta.engine.transaction.context import CommitContext
from airflow_delta.engine.transaction.intent import CloneVersion
from airflow_delta.engine.transaction.prepare.restored_files import file_keys_after
from airflow_delta.engine.transaction.staged import Actions

__all__ = ["check_cloned_files"]


def check_cloned_files(actions: Actions, context: CommitContext) -> Actions:
    """Check that the live files after a clone are those that the operation listed.

    Raises:
        ConstraintViolationError: they aren't, or their number isn't that of the cloned version.
        CorruptLogError: the table's live files can't be read.
        StorageError: the store failed.
    """
    cloned = actions.purpose
    if not isinstance(cloned, CloneVersion):
        return actions
    after, copies = file_keys_after(actions, context), pc.unique(cloned.keys)
    unexpected = len(after.filter(pc.invert(pc.is_in(after, value_set=copies))))
    missing = len(copies) - (len(after) - unexpected)
    if unexpected or missing or len(copies) != cloned.version.num_files:
        raise context.violation(
            f"it makes the table a clone of version {cloned.version.version} of {cloned.version.table}, "
            f"which has {cloned.version.num_files} files; of the {len(copies)} copies, {missing} would be "
            f"missing, and {unexpected} other files would be left"
        )
    return actions
