"""Check that the table's existing files satisfy new metadata.

``features/negotiation/transitions.py`` and `existing_columns` know which changes of the metadata are
impossible, and what the others require of existing files. This stage checks the files. Files that the
commit removes don't count, so any change is possible when a table is overwritten.

After a restore or a clone the table has only files that were written under the restored or the cloned
version (`CommitContext.files_source`). So the new metadata are compared with the metadata of that version.
A restore can therefore undo changes that no other commit can, such as a wider type or column mapping.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.action_schema import FILE_KEY_COLUMNS
from airflow_delta.engine.features.negotiation.transitions import (
    Condition,
    FileRequirement,
    check_transition,
    find_requirements,
)
from airflow_delta.engine.model.file_actions import AddFile, RemoveFile
from airflow_delta.engine.replay.file_key import file_keys, keys_of_files
from airflow_delta.engine.transaction.context import CommitContext
from airflow_delta.engine.transaction.prepare.existing_columns import find_column_requirements
from airflow_delta.engine.transaction.staged import Actions

__all__ = ["check_existing_files"]

_ROW_IDS = ("baseRowId", "defaultRowCommitVersion")


def check_existing_files(actions: Actions, context: CommitContext) -> Actions:
    """Check that the existing files allow the change of protocol and metadata.

    Raises:
        ConstraintViolationError: the change requires something of the files that they don't satisfy.
        InvalidArgumentError: no commit can make the change.
        InvalidTableError: a schema or property can't be read.
        CorruptLogError: the table's live files can't be read.
        StorageError: the store failed.
    """
    base, former = context.base, context.files_source
    if base is None or former is None or not (actions.protocol or actions.metadata):
        return actions
    protocols = (former.protocol, context.protocol)
    check_transition(
        former.metadata,
        context.metadata,
        protocols=protocols,
        with_files=True,
        table=context.table,
    )
    before, after = (former.protocol, former.metadata), (context.protocol, context.metadata)
    requirements = (
        *find_requirements(before, after, table=context.table),
        *find_column_requirements(before, after, table=context.table),
    )
    if requirements:
        live = base.files(columns=(*FILE_KEY_COLUMNS, *_ROW_IDS))
        for requirement in requirements:
            _check_requirement(requirement, live, actions, context)
    return actions


def _check_requirement(
    requirement: FileRequirement, live: pa.Table, actions: Actions, context: CommitContext
) -> None:
    if requirement.condition is Condition.CHECKED_ROWS and actions.rows_checked:
        return
    if requirement.condition is Condition.ROW_IDS:
        # The files that the commit adds already have row ids at this stage.
        kept = _without(live, [*actions.removes, *actions.adds], context)
        lacking = pc.or_(*(pc.is_null(kept[name]) for name in _ROW_IDS))
        unfit = kept.filter(lacking)
    elif context.restored_version is not None:
        # All files of the restored version were written before, those that the commit adds again too.
        unfit = context.restored_version.files(columns=FILE_KEY_COLUMNS)
    else:
        unfit = _without(live, actions.removes, context)
    if unfit.num_rows:
        raise context.violation(
            f"{requirement.reason}; expected that {requirement.condition.value}, and {unfit.num_rows} "
            f"files are otherwise, such as {unfit['path'][0].as_py()!r}"
        )


def _without(
    files: pa.Table, others: Sequence[AddFile | RemoveFile], context: CommitContext
) -> pa.Table:
    """The files that aren't among others."""
    keys = file_keys(files, table=context.table)
    return files.filter(
        pc.invert(pc.is_in(keys, value_set=keys_of_files(others, table=context.table)))
    )
