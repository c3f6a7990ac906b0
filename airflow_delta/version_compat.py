"""The one module that knows Airflow's names and versions.

Everything of ours takes Airflow's names from here, so that a name which moves between releases is
looked up in one place. Supported are Airflow 3.3 and newer: the first release that keeps the state
of a task over its retries (`task_state`).
"""

from __future__ import annotations

from typing import Any

from airflow.providers.common.compat.connection import (
    get_async_connection,
    get_async_extra_dejson,
)
from airflow.sdk import (
    BaseHook,
    BaseOperator,
    BaseSensorOperator,
    Connection,
    Context,
    PokeReturnValue,
    conf,
)
from airflow.sdk.exceptions import (
    AirflowException,
    AirflowFailException,
    AirflowNotFoundException,
    AirflowSensorTimeout,
    AirflowSkipException,
    AirflowTaskTimeout,
)
from airflow.sdk.log import amask_secret, mask_secret
from airflow.triggers.base import BaseTrigger, TriggerEvent

__all__ = [
    "AirflowException",
    "AirflowFailException",
    "AirflowNotFoundException",
    "AirflowSensorTimeout",
    "AirflowSkipException",
    "AirflowTaskTimeout",
    "BaseHook",
    "BaseOperator",
    "BaseSensorOperator",
    "BaseTrigger",
    "Connection",
    "Context",
    "PokeReturnValue",
    "TriggerEvent",
    "amask_secret",
    "conf",
    "get_async_connection",
    "get_async_extra_dejson",
    "mask_secret",
    "task_state",
]


def task_state(context: Context) -> Any | None:
    """The key-value store of a task, with ``get(key)`` and ``set(key, value)`` of JSON values.

    It belongs to the task in its DAG run and survives retries. None where an operator is executed
    outside a DAG run.
    """
    return context.get("task_state_store")
