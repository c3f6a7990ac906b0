"""`OpenedTable`: open the table of a trigger, and look at it. All of this blocks; see `blocking_calls`."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

__all__ = ["OpenedTable"]

_WITHOUT_OWNER_SECONDS = 600.0
"""So long a table is kept that was opened while nobody could say whether it has a commit owner."""

_ResultT = TypeVar("_ResultT")


class OpenedTable(Generic[_ResultT]):
    """A table that the first look opens with its connections as they are then.

    After a look that has failed, or hasn't ended, a trigger goes on with a new object.

    :param look: checks the table.
    :param table_uri: the table's absolute path or URI.
    :param delta_conn_id: the connection with the credentials of the table's store.
    :param commit_owner_conn_id: the connection of the table's commit owner.
    :param allowed_outside: locations outside of the table below which it may read.
    """

    def __init__(
        self,
        look: Callable[[Any], _ResultT],
        table_uri: str,
        delta_conn_id: str | None,
        commit_owner_conn_id: str | None,
        allowed_outside: Sequence[str] = (),
    ) -> None:
        self._look = look
        self._table_uri = table_uri
        self._hook_arguments = (delta_conn_id, commit_owner_conn_id, allowed_outside)
        self._table: Any = None
        self._kept_until: float | None = None

    @property
    def is_open(self) -> bool:
        """Whether the table has been opened."""
        return self._table is not None

    def look(self) -> _ResultT:
        """Check the table, after opening it if necessary.

        :raises AirflowNotFoundException: a named connection doesn't exist.
        :raises TableFailure: a connection can't be converted.
        :raises DeltaError: the table can't be read.
        """
        is_over = self._kept_until is not None and time.monotonic() >= self._kept_until
        if self._table is None or is_over:
            self._table = self._open()
        return self._look(self._table)

    def _open(self) -> Any:
        # Not imported with this module, because Airflow imports the modules of triggers in the event loop.
        from airflow_delta.hooks.delta import DeltaHook

        hook = DeltaHook(*self._hook_arguments)
        hook.collects_lineage = False
        table = hook.table(self._table_uri)
        is_unknown = hook.commit_owner.is_unknown
        self._kept_until = time.monotonic() + _WITHOUT_OWNER_SECONDS if is_unknown else None
        return table
