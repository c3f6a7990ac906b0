"""One version for all tries of a task.

"The newest" and a time that has not come yet mean another version at each try. So the first try of a DAG
run decides, and the state of the task keeps what it has decided on.
"""

from __future__ import annotations

from typing import Any

from airflow_delta.hooks.delta import DeltaHook
from airflow_delta.operators.template_values import as_timestamp, as_version
from airflow_delta.version_compat import Context, task_state

__all__ = ["pinned_version"]

_STATE_KEY = "pinned"


def pinned_version(
    hook: DeltaHook,
    context: Context,
    table_uri: str,
    *,
    version: int | str | None,
    timestamp: int | str | None,
    check_files: bool,
) -> dict[str, Any]:
    """The version that a task is about, as `DeltaHook.pin` tells it.

    :param hook: reaches the table.
    :param context: of the try.
    :param table_uri: the table.
    :param version: the task's argument, as rendered.
    :param timestamp: likewise; at most one of the two.
    :param check_files: refuse a version of which files are gone.
    :raises ValueError: both are given, or the version is no number.
    :raises AirflowFailException: files of the version are gone.
    :raises DeltaError: the table or the version can't be read.
    """
    number, time = as_version(version, name="version"), as_timestamp(timestamp)
    if number is not None and time is not None:
        raise ValueError(
            f"{table_uri}: both version={number} and timestamp={time!r} are given; "
            "give one of them, or neither for the newest version"
        )
    if number is not None:
        return hook.pin(table_uri, version=number, check_files=check_files)
    asked = {"table_uri": table_uri, "timestamp": time}
    state = task_state(context)
    earlier = state.get(_STATE_KEY) if state is not None else None
    if earlier and all(earlier.get(name) == value for name, value in asked.items()):
        return hook.pin(table_uri, version=earlier["version"], check_files=check_files)
    pinned = hook.pin(table_uri, timestamp=time, check_files=check_files)
    if state is not None:
        state.set(_STATE_KEY, {**asked, "version": pinned["version"]})
    return pinned
