"""Open a table in the event loop of the triggerer, without holding it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

__all__ = ["open_table"]


async def open_table(
    table_uri: str,
    delta_conn_id: str | None,
    commit_owner_conn_id: str | None,
    allowed_outside: Sequence[str] = (),
) -> Any:
    """Look up the connections of a table, and create its object; see `DeltaHook.table_async`.

    :param table_uri: the table's absolute path or URI.
    :param delta_conn_id: the connection with the credentials of the table's store.
    :param commit_owner_conn_id: the connection of the table's commit owner.
    :param allowed_outside: locations outside of the table below which it may read.
    :raises AirflowNotFoundException: a named connection doesn't exist.
    :raises TableFailure: a connection can't be converted.
    """
    hook_class = await asyncio.to_thread(_hook_class)
    hook = hook_class(delta_conn_id, commit_owner_conn_id, allowed_outside)
    return await hook.table_async(table_uri)


def _hook_class() -> Any:
    # Not imported with this module, because Airflow imports the modules of triggers in the event loop.
    from airflow_delta.hooks.delta import DeltaHook

    return DeltaHook
