"""Record in a commit the run of the task that made it.

The operators do this themselves. In a task of your own that commits with Spark, deltalake or another
program, use the text of `commit_user_metadata` as ``userMetadata``; in one that commits with `DeltaHook` or
the engine, use `record_task_run`. ``airflow-delta history`` shows both.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from airflow_delta.version_compat import get_current_context

__all__ = ["commit_user_metadata", "record_task_run", "task_run"]

_VARIABLE = "AIRFLOW_DELTA_TASK_RUN"


def task_run(ti: Any | None = None) -> dict[str, Any]:
    """The run of a task: ``dag_id``, ``run_id``, ``task_id``, ``map_index`` and ``try_number``.

    :param ti: the task instance; None: that of the task that is running.
    :returns: plain JSON values; ``map_index`` is None unless the task is mapped.
    """
    instance = get_current_context()["ti"] if ti is None else ti
    index = getattr(instance, "map_index", None)
    return {
        "dag_id": instance.dag_id,
        "run_id": getattr(instance, "run_id", None),
        "task_id": instance.task_id,
        "map_index": index if index is not None and index >= 0 else None,
        "try_number": getattr(instance, "try_number", None),
    }


def commit_user_metadata(ti: Any | None = None) -> str:
    """The run of a task as text for the user metadata of a commit.

    In a task::

        df.write.format("delta").option("userMetadata", commit_user_metadata())
        write_deltalake(
            uri,
            data,
            commit_properties=CommitProperties(
                custom_metadata={"userMetadata": commit_user_metadata()}
            ),
        )

    In templates, with ``user_defined_macros={"commit_user_metadata": commit_user_metadata}`` of the DAG::

        {{ commit_user_metadata(ti) }}

    :param ti: the task instance; None: that of the task that is running.
    """
    return json.dumps({"airflow": task_run(ti)}, separators=(",", ":"))


@contextmanager
def record_task_run(context: Mapping[str, Any] | None = None) -> Iterator[None]:
    """Record the task in all commits that the engine makes in this block, also in Spark jobs started there.

    :param context: the context of the task; None: that of the task that is running.
    """
    instance = None if context is None else context.get("ti")
    if context is not None and instance is None:
        # An operator that is executed outside a DAG run.
        yield
        return
    before = os.environ.get(_VARIABLE)
    os.environ[_VARIABLE] = json.dumps(task_run(instance), separators=(",", ":"))
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(_VARIABLE, None)
        else:
            os.environ[_VARIABLE] = before
