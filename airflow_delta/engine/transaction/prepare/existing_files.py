"""New metadata suit the files that are in the table already.

Which changes no commit can make, and what the others demand of the files, is in
``features/transitions.py`` and in `staying_columns`; this stage knows the files. Those that the commit
removes don't count, so that a table may change in whatever way while it is overwritten.

A restore may undo what no other commit can, such as a wider type or column mapping: just the files of an
earlier version are left (`restored_files`), and they suit the metadata that this had. So the metadata that
the commit leaves are held against those. The files of a clone are those of another table, and suit the
metadata that this has.
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
    """The change of protocol and metadata is one that the table's files allow.

    Raises:
        ConstraintViolationError: it demands something of files that they don't fulfil.
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
    made = (
        *find_requirements(before, after, table=context.table),
        *find_column_requirements(before, after, table=context.table),
    )
    if made:
        live = base.files(columns=(*FILE_KEY_COLUMNS, *_ROW_IDS))
        for demand in made:
            _check_requirement(demand, live, actions, context)
    return actions


def _check_requirement(
    demand: FileRequirement, live: pa.Table, actions: Actions, context: CommitContext
) -> None:
    if demand.condition is Condition.CHECKED_ROWS and actions.rows_checked:
        return
    if demand.condition is Condition.ROW_IDS:
        # What the commit adds has got its ids by now.
        staying = _without(live, [*actions.removes, *actions.adds], context)
        lacking = pc.or_(*(pc.is_null(staying[name]) for name in _ROW_IDS))
        unfit = staying.filter(lacking)
    elif context.restored_version is not None:
        # What comes back was written as long ago as what stays.
        unfit = context.restored_version.files(columns=FILE_KEY_COLUMNS)
    else:
        unfit = _without(live, actions.removes, context)
    if unfit.num_rows:
        raise context.violation(
            f"{demand.reason}; expected that {demand.condition.value}, and {unfit.num_rows} files "
            f"are otherwise, such as {unfit['path'][0].as_py()!r}"
        )


def _without(
    files: pa.Table, others: Sequence[AddFile | RemoveFile], context: CommitContext
) -> pa.Table:
    """The files that aren't among others."""
    keys = file_keys(files, table=context.table)
    return files.filter(
        pc.invert(pc.is_in(keys, value_set=keys_of_files(others, table=context.table)))
    )
