"""Is a table the one that it was?

A table is known by its id, wherever it is moved to. But an id isn't for ever: a table that is replaced by
another definition (``REPLACE TABLE``) gets a new one, and its versions go on. A table that was deleted and
made anew at the same place has another id, too, and versions of its own. What tells the two apart is the
log: the first still has the version of which the old id is known, with that id.

No PySpark here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_delta.engine.errors import CorruptLogError, VersionNotFoundError

if TYPE_CHECKING:
    from airflow_delta.engine import DeltaTable

__all__ = ["is_same_log"]


def is_same_log(table: DeltaTable, table_id: str, version: int) -> bool | None:
    """Whether a table is the one that had an id at a version; None where that can't be told.

    Cleanup has taken that version then, or it is damaged below the newest checkpoint.

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
