"""From the file actions of commits to what a reader of changes has to read.

PROTOCOL.md, "Reader Requirements for AddCDCFile": a version with ``cdc`` actions tells its changes
in those files alone. In any other version the rows of an ``add`` were inserted and those of a
``remove`` deleted, as far as the action has ``dataChange``; a version that only moved rows to other
files changed nothing.

A commit that removes a file and adds it again with another deletion vector changed just the rows in
which the two vectors differ. Every entry therefore has two vectors, and stands for the rows that

* are not in ``deletionVector``, and
* are in ``selectionVector``, where there is one.

=========================  ================  ==================  ==================
commit                     change            ``deletionVector``  ``selectionVector``
=========================  ================  ==================  ==================
``add``                    insert            the add's           none
``remove``                 delete            the remove's        none
``remove`` and ``add``     delete            the remove's        the add's
of one path                insert            the add's           the remove's
=========================  ================  ==================  ==================

Of the last two there is only one where the other's selection would be empty for want of a vector.
Whether two vectors differ in both directions shows when they are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.action_schema import (
    DELETION_VECTOR_TYPE,
    POSITION,
    STRING_MAP,
    VERSION,
    FileActions,
)
from airflow_delta.engine.arrow.json.reader import NonFileAction
from airflow_delta.engine.arrow.numpy_arrays import int32_array
from airflow_delta.engine.arrow.python_arrays import array_of, joined_text, scalar_of
from airflow_delta.engine.arrow.statistics.parse import num_records
from airflow_delta.engine.errors import CorruptLogError
from airflow_delta.engine.log.files import commit_path
from airflow_delta.engine.model.actions import AddCdcFile
from airflow_delta.engine.replay.file_key import file_keys

__all__ = ["ACTION_COLUMNS", "CHANGE_TYPE", "COMMIT_VERSION", "file_changes"]

CHANGE_TYPE = "_change_type"
"""``insert`` or ``delete``; null for change data files, which tell it row by row."""

COMMIT_VERSION = "_commit_version"
"""The version that made the change."""

ACTION_COLUMNS = ("path", "partitionValues", "size", "dataChange", "deletionVector", "stats")
"""The columns of file actions that are needed."""

_FIELDS = {
    "path": pa.string(),
    "partitionValues": STRING_MAP,
    "size": pa.int64(),
    "numRecords": pa.int64(),
    "deletionVector": DELETION_VECTOR_TYPE,
    "selectionVector": DELETION_VECTOR_TYPE,
    CHANGE_TYPE: pa.string(),
    COMMIT_VERSION: pa.int64(),
    POSITION: pa.int64(),
}


def file_changes(
    files: FileActions, non_file_actions: Sequence[NonFileAction], *, table: str
) -> pa.Table:
    """What to read to learn the changes of commits: one row per file and kind, in log order.

    Args:
        files: the file actions with `ACTION_COLUMNS`, `VERSION` and `POSITION`.
        non_file_actions: the other actions of the same commits.
        table: the table's location, for paths and errors.

    Returns:
        A table with the columns ``path``, ``partitionValues``, ``size``, ``numRecords`` (of the
        whole file; null where unknown), ``deletionVector``, ``selectionVector``, `CHANGE_TYPE` and
        `COMMIT_VERSION`.

    Raises:
        CorruptLogError: a ``cdc`` action lacks a field or has one of the wrong type, or a file
            action doesn't tell whether it changed data.
    """
    cdc = [action for action in non_file_actions if action.kind == "cdc"]
    told = array_of(sorted({action.version for action in cdc}), pa.int64())
    adds, removes = _changing(files.adds, told, table), _changing(files.removes, told, table)
    partners = _partners(adds, removes, table)
    paired = partners.is_valid()
    again = adds.filter(paired)
    partners = partners.drop_null()
    former = removes.take(partners)
    rows = int32_array(np.arange(removes.num_rows))
    removes = removes.filter(pc.invert(pc.is_in(rows, value_set=partners)))
    adds = adds.filter(pc.invert(paired))
    changes = pa.concat_tables(
        [
            _cdc_entries(cdc),
            _entries(adds, "insert", adds["deletionVector"]),
            _entries(removes, "delete", removes["deletionVector"]),
            _entries(again, "delete", former["deletionVector"], again["deletionVector"]),
            _entries(again, "insert", again["deletionVector"], former["deletionVector"]),
        ]
    )
    return changes.sort_by(POSITION).drop_columns([POSITION])


def _changing(actions: pa.Table, told_by_cdc: pa.Array, table: str) -> pa.Table:
    """The actions that changed rows, of the versions that don't tell their changes otherwise."""
    decisive = actions.filter(pc.invert(pc.is_in(actions[VERSION], value_set=told_by_cdc)))
    unclear = decisive.filter(decisive["dataChange"].is_null())
    if unclear.num_rows:
        file, version = unclear["path"][0].as_py(), unclear[VERSION][0].as_py()
        raise CorruptLogError(
            f"an action of version {version} for the file {file} has no dataChange, which the "
            "protocol requires and which tells whether rows changed; put the commit's file back "
            "from a backup",
            table=table,
            version=version,
            path=commit_path(version),
        )
    return decisive.filter(decisive["dataChange"])


def _partners(adds: pa.Table, removes: pa.Table, table: str) -> pa.Array:
    """For each add the row of the remove of the same path and commit with another deletion vector.

    Null where there is none, and where both name the same logical file: the protocol forbids that
    in one commit, and rows that were deleted and inserted are what the two actions say.
    """
    places = pc.index_in(_file_in_commit(adds, table), value_set=_file_in_commit(removes, table))
    same = pc.equal(file_keys(adds, table=table), file_keys(removes, table=table).take(places))
    unrelated = pc.coalesce(same, scalar_of(False, pa.bool_()))
    return _whole(pc.if_else(unrelated, scalar_of(None, pa.int32()), places))


def _file_in_commit(actions: pa.Table, table: str) -> pa.Array:
    """Version and path of each action as one text, the same for all spellings of a path."""
    paths = file_keys(
        pa.table(
            {
                "path": actions["path"],
                "deletionVector": pa.nulls(actions.num_rows, DELETION_VECTOR_TYPE),
            }
        ),
        table=table,
    )
    versions = actions[VERSION].cast(pa.string())
    # Large, because one array has to hold the texts of all actions.
    return _whole(joined_text(versions, " ", paths).cast(pa.large_string()))


def _entries(
    actions: pa.Table,
    change: str,
    deleted: pa.ChunkedArray,
    selected: pa.ChunkedArray | None = None,
) -> pa.Table:
    """Entries for actions; with a selection only those that have one."""
    length = actions.num_rows
    entries = pa.table(
        {
            "path": actions["path"],
            "partitionValues": actions["partitionValues"],
            "size": actions["size"],
            "numRecords": num_records(actions["stats"]),
            "deletionVector": deleted,
            "selectionVector": (
                pa.nulls(length, DELETION_VECTOR_TYPE) if selected is None else selected
            ),
            CHANGE_TYPE: pa.repeat(scalar_of(change, pa.string()), length),
            COMMIT_VERSION: actions[VERSION],
            POSITION: actions[POSITION],
        },
        schema=pa.schema(list(_FIELDS.items())),
    )
    return entries if selected is None else entries.filter(selected.is_valid())


def _cdc_entries(cdc: Sequence[NonFileAction]) -> pa.Table:
    # A loop over change data files: the reader of commits gives them as dicts, which must be
    # checked one by one.
    files = [AddCdcFile.from_json(a.value, f"commit {a.version}: cdc") for a in cdc]
    values: dict[str, list[Any]] = {
        "path": [file.path for file in files],
        "partitionValues": [file.partition_values for file in files],
        "size": [file.size for file in files],
        COMMIT_VERSION: [action.version for action in cdc],
        POSITION: [action.position for action in cdc],
    }
    return pa.table(
        {
            name: array_of(values[name], type_) if name in values else pa.nulls(len(cdc), type_)
            for name, type_ in _FIELDS.items()
        }
    )


def _whole(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """The column as one array."""
    if isinstance(column, pa.Array):
        return column
    # Not combine_chunks(): without chunks it imports pandas.
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.nulls(0, column.type)
