"""Who commits: the identity that a task's commits carry, so that a retry finds its own.

A job that commits writes a ``txn`` action with this identity. All tries of a task in one DAG run
have the same one, and so has the task when it is cleared and run again; other runs have others.
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_delta.version_compat import Context

__all__ = ["run_identity"]

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def run_identity(context: Context) -> tuple[str, int]:
    """The application id and version of the task's ``txn`` action.

    The id is ``airflow:<dag>.<task>``, with ``.<map index>`` for a mapped task. The version is
    the time after which the DAG run may start, in epoch microseconds: unlike the logical date
    every run has one, and later runs have later ones.
    """
    instance = context["ti"]
    app_id = f"airflow:{instance.dag_id}.{instance.task_id}"
    map_index = instance.map_index
    if map_index is not None and map_index >= 0:
        app_id = f"{app_id}.{map_index}"
    return app_id, (context["dag_run"].run_after - _EPOCH) // timedelta(microseconds=1)
