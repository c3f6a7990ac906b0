"""The identity of a task's commits, by which a retry finds them.

A commit contains it as a ``txn`` action. All tries of a task in one DAG run have the same identity,
even after the task is cleared; other runs have others. An instance of a mapped task is identified by its
index: Airflow has no other name for it that is the same in each try.
"""

from __future__ import annotations

import hashlib
import json
from datetime import datetime, timezone
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_delta.version_compat import Context

__all__ = ["run_identity"]

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)

_DIGEST_BITS = 31


def run_identity(context: Context) -> tuple[str, int]:
    """The application id and version of the task's ``txn`` action.

    The id is ``airflow:<dag>.<task>``, with ``.<map index>`` for a mapped task. It isn't the id of the run,
    because a table keeps the newest transaction of each application for ever.

    The version has two parts. The upper one is ``run_after`` of the DAG run, in seconds since 1970: unlike
    a logical date, every run has it. Several runs may have the same, for example those of a backfill of
    partitions. So the lower 31 bits are a digest of the task and of the id of the run.
    """
    instance = context["ti"]
    app_id = f"airflow:{instance.dag_id}.{instance.task_id}"
    map_index = instance.map_index
    if map_index is not None and map_index >= 0:
        app_id = f"{app_id}.{map_index}"
    # The task as well: names may have dots, so that two tasks may have the same application id.
    # None for a task that is executed outside a DAG run.
    run_id = getattr(instance, "run_id", None)
    named = json.dumps([instance.dag_id, instance.task_id, map_index, run_id])
    digest = int.from_bytes(hashlib.sha256(named.encode()).digest()[:4], "big") >> 1
    seconds = int((context["dag_run"].run_after - _EPOCH).total_seconds())
    return app_id, (seconds << _DIGEST_BITS) | digest
