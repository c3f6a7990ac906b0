"""The identity of a task's commits, by which a retry finds them.

A commit contains it as a ``txn`` action. All tries of a task in one DAG run have the same identity,
even after the task is cleared; other runs have others.
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
    ``run_after`` of the DAG run, in epoch microseconds: unlike a logical date, every run has it, and it
    increases.
    """
    instance = context["ti"]
    app_id = f"airflow:{instance.dag_id}.{instance.task_id}"
    map_index = instance.map_index
    if map_index is not None and map_index >= 0:
        app_id = f"{app_id}.{map_index}"
    return app_id, (context["dag_run"].run_after - _EPOCH) // timedelta(microseconds=1)
