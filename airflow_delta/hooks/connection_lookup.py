"""Look up a connection; distinguish a missing one from one that can't be looked up at the moment.

Airflow raises `AirflowNotFoundException` for both: if a secrets backend fails, it queries the next one. A
default connection may be missing; then the identity of the worker is used. So an outage of a secrets
backend would make a task use another identity, endpoint or database than its connection says.
"""

from __future__ import annotations

import asyncio

from airflow_delta.version_compat import (
    AirflowNotFoundException,
    BaseHook,
    Connection,
    ask_secrets_backend,
    get_async_connection,
    secrets_backends,
)

__all__ = ["find_connection", "find_connection_async"]


def find_connection(connection_id: str) -> Connection | None:
    """Look up a connection; None if each secrets backend says that it doesn't have it.

    :raises StorageError: a secrets backend fails, and no other one has the connection. The task's
        ``retries`` apply.
    """
    try:
        return BaseHook.get_connection(connection_id)
    except AirflowNotFoundException:
        return _ask_all_backends(connection_id)


async def find_connection_async(connection_id: str) -> Connection | None:
    """Like `find_connection`, for triggers: it doesn't block the event loop."""
    try:
        return await get_async_connection(connection_id)
    except AirflowNotFoundException:
        return await asyncio.to_thread(_ask_all_backends, connection_id)


def _ask_all_backends(connection_id: str) -> Connection | None:
    """Ask all backends once more, because Airflow doesn't say whether one has failed."""
    failures = []
    for backend in secrets_backends():
        try:
            connection = ask_secrets_backend(backend, connection_id)
        except Exception as error:  # noqa: BLE001 - a backend may be of any package, and raise anything
            failures.append(f"{type(backend).__name__} ({type(error).__name__})")
        else:
            if connection is not None:
                return connection
    if not failures:
        return None
    from airflow_delta.engine.errors import StorageError

    # Without the texts of the errors, and not chained: they may quote requests, or a malformed connection.
    raise StorageError(
        f"the connection {connection_id!r} can't be looked up, and may exist: {', '.join(failures)} "
        "failed, a secrets backend of Airflow. Try again when it answers; Airflow logs its error at level "
        "DEBUG"
    ) from None
