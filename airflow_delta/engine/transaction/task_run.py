"""The run of an Airflow task that makes commits.

Airflow's operators, and programs that they start, say so by an environment variable, because a commit may
be made deep below a Spark job. Each ``commitInfo`` has it as the object ``airflow``, an extra field that
the protocol allows ("Commit Provenance Information"), so that a version leads to the run that made it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from airflow_delta.engine.model.commit_info import task_run_of

__all__ = ["TASK_RUN_VARIABLE", "current_task_run"]

TASK_RUN_VARIABLE = "AIRFLOW_DELTA_TASK_RUN"
"""The environment variable: a JSON object with ``dag_id``, ``run_id``, ``task_id``, ``map_index`` (null
unless the task is mapped) and ``try_number``."""


def current_task_run() -> Mapping[str, Any] | None:
    """The run of a task in which this process works; None if there is none.

    A text that is no JSON object is ignored: it mustn't stop a commit.
    """
    text = os.environ.get(TASK_RUN_VARIABLE)
    if not text:
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return task_run_of(found)
