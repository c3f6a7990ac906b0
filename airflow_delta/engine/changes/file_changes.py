"""Find the files that a reader of changes must read, from the file actions of commits.

If a version has ``cdc`` actions, only their files contain its changes. In any other version, the files of
all actions with ``dataChange`` do. An entry stands for the rows of a file that aren't in its
``deletionVector``, but are in its ``selectionVector`` if there is one:

=========================  ================  ==================  ==================
commit                     change            ``deletionVector``  ``selectionVector``
=========================  ================  ==================  ==================
``add``                    insert            the add's           none
``remove``                 delete            the remove's        none
``remove`` and ``add``     delete            the remove's        the add's
of one path                insert            the add's           the remove's
=========================  ================  ==================  ==================

The last two change the rows in which the two deletion vectors differ. Each exists only if the action of its
``selectionVector`` has one, and may turn out empty.

PROTOCOL.md, "Reader Requirements for AddCDCFile".
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
from airflow_delta.engine.features.change_columns import CHANGE_TYPE, COMMIT_VERSION
from airflow_delta.engine.log.files import commit_path
from airflow_delta.engine.model.actions import AddCdcFile
from airflow_delta.engine.replay.file_key import file_keys

__all__ = ["ACTION_COLUMNS", "file_changes"]

ACTION_COLUMNS = ("path", "partitionValues", "size", "dataChange", "deletionVector", "stats")
"""The required columns of file actions."""

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
    """Find the files with the changes of some commits: one row per file and kind of change, in log order.

    Args:
        files: the file actions with `ACTION_COLUMNS`, `VERSION` and `POSITION`.
        non_file_actions: the other actions of the same commits.
        table: the table's location, for paths and errors.

    Returns:
        A table with the columns ``path``, ``partitionValues``, ``size``, ``numRecords`` (of the
        whole file; null where unknown), ``deletionVector``, ``selectionVector``, `CHANGE_TYPE` and
        `COMMIT_VERSION`.

    Raises:
        CorruptLogError: a ``cdc`` action lacks a field or has one of the wrong type, or a file action lacks
            ``dataChange``.
    """
    cdc = [action for action in non_file_actions if action.kind == "cdc"]
    with_cdc = array_of(sorted({action.version for action in cdc}), pa.int64())
    adds = _with_data_change(files.adds, with_cdc, table)
    removes = _with_data_change(files.removes, with_cdc, table)
    partners = _find_partners(adds, removes, table)
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


def _with_data_change(actions: pa.Table, with_cdc: pa.Array, table: str) -> pa.Table:
    """The actions that changed rows, of versions without ``cdc`` actions."""
    relevant = actions.filter(pc.invert(pc.is_in(actions[VERSION], value_set=with_cdc)))
    unclear = relevant.filter(relevant["dataChange"].is_null())
    if unclear.num_rows:
        file, version = unclear["path"][0].as_py(), unclear[VERSION][0].as_py()
        raise CorruptLogError(
            f"an action of version {version} for the file {file} has no dataChange, which the "
            "protocol requires; restore the commit's file from a backup",
            table=table,
            version=version,
            path=commit_path(version),
        )
    return relevant.filter(relevant["dataChange"])


def _find_partners(adds: pa.Table, removes: pa.Table, table: str) -> pa.Array:
    """For each add, the row of the remove with the same path and commit, but another deletion vector.

    Null if there is none. Also null if both have the same deletion vector, which the protocol forbids in
    one commit: then all rows count as deleted and inserted.
    """
    rows = pc.index_in(_commit_and_path(adds, table), value_set=_commit_and_path(removes, table))
    same = pc.equal(file_keys(adds, table=table), file_keys(removes, table=table).take(rows))
    same_file = pc.coalesce(same, scalar_of(False, pa.bool_()))
    return _one_array(pc.if_else(same_file, scalar_of(None, pa.int32()), rows))


def _commit_and_path(actions: pa.Table, table: str) -> pa.Array:
    """Version and path of each action as one text, which is equal for all spellings of a path."""
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
    # Large, because one array must contain the texts of all actions.
    return _one_array(joined_text(versions, " ", paths).cast(pa.large_string()))


def _entries(
    actions: pa.Table,
    change: str,
    deleted: pa.ChunkedArray,
    selected: pa.ChunkedArray | None = None,
) -> pa.Table:
    """The entries for some actions. If selections are given, actions without one are left out."""
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
    # A loop over change data files: the reader of commits returns them as dicts, which are checked one by
    # one.
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


def _one_array(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """The column as one array."""
    if isinstance(column, pa.Array):
        return column
    # Not combine_chunks(): without chunks it imports pandas.
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.nulls(0, column.type)
