"""The one module that knows Airflow's names and versions.

Everything of ours takes Airflow's names from here, so that a name which moves between releases is
looked up in one place. Supported are Airflow 3.3 and newer: the first release that keeps the state
of a task over its retries (`task_state`), and that of an asset over the runs (`asset_state`).
"""

from __future__ import annotations

from typing import Any

from airflow.providers.common.compat.connection import (
    get_async_connection,
    get_async_extra_dejson,
)
from airflow.sdk import (
    Asset,
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
    "Asset",
    "BaseHook",
    "BaseOperator",
    "BaseSensorOperator",
    "BaseTrigger",
    "Connection",
    "Context",
    "PokeReturnValue",
    "TriggerEvent",
    "amask_secret",
    "asset_state",
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


def asset_state(context: Context, asset: Asset) -> Any | None:
    """The key-value store of an asset, with ``get(key)`` and ``set(key, value)`` of JSON values.

    It belongs to no run, and doesn't expire. None where an operator is executed outside a DAG run.

    Raises:
        AirflowFailException: the asset is no inlet or outlet of the task, which is what leads to it.
    """
    if task_state(context) is None:
        return None
    try:
        return context["asset_state_store"][asset]
    except KeyError as error:
        raise AirflowFailException(
            f"the state of {asset.name} can't be reached: it must be among the task's inlets"
        ) from error
