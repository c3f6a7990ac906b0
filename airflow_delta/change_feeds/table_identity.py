"""Find out whether a table is the same that it was at an earlier version.

A table keeps its id when it is moved. A table that is replaced by another definition (``REPLACE
TABLE``) gets a new id, and its log goes on. A table that is deleted and created again at the same
location also has a new id, but another log. The log shows which of the two happened: after a
replacement, the earlier version still has the earlier id.

No PySpark here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_delta.engine.errors import CorruptLogError, VersionNotFoundError

if TYPE_CHECKING:
    from airflow_delta.engine import DeltaTable

__all__ = ["is_same_log"]


def is_same_log(table: DeltaTable, table_id: str, version: int) -> bool | None:
    """Whether a table had an id at a version; None if that version can't be loaded any more.

    That is so after a cleanup, or if the log is damaged before the newest checkpoint.

    Args:
        table: the table.
        table_id: the id.
        version: the version.

    Raises:
        DeltaError: the table can't be read.
    """
    newest = table.snapshot()
    if newest.metadata.id == table_id:
        return True
    if newest.version < version:
        return False
    try:
        return table.snapshot(version).metadata.id == table_id
    except (VersionNotFoundError, CorruptLogError):
        return None
