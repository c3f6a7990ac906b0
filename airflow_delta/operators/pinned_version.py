"""One version for all tries of a task.

"The newest" means another version at each try, and so may a time after the newest commit, where clocks
differ. So the first try of a DAG run decides, and the state of the task keeps what it has decided on.
"""

from __future__ import annotations

from typing import Any

from airflow_delta.hooks.delta import DeltaHook
from airflow_delta.version_compat import Context, task_state

__all__ = ["pinned_version"]

_STATE_KEY = "pinned"


def pinned_version(
    hook: DeltaHook,
    context: Context,
    table_uri: str,
    *,
    version: int | None,
    timestamp: int | str | None,
    check_files: bool,
) -> dict[str, Any]:
    """The version that a task is about, as `DeltaHook.pin` tells it.

    :param hook: reaches the table.
    :param context: of the try.
    :param table_uri: the table.
    :param version: the version that the task's author wants; or
    :param timestamp: the time, as ISO-8601 or epoch milliseconds. Neither: the newest version.
    :param check_files: refuse a version of which files are gone.
    :raises MissingFilesError: files of the version are gone.
    :raises DeltaError: the table or the version can't be read.
    """
    if version is not None:
        return hook.pin(table_uri, version=version, check_files=check_files)
    asked = {"table_uri": table_uri, "timestamp": timestamp}
    state = task_state(context)
    earlier = state.get(_STATE_KEY) if state is not None else None
    if earlier and all(earlier.get(name) == value for name, value in asked.items()):
        return hook.pin(table_uri, version=earlier["version"], check_files=check_files)
    pinned = hook.pin(table_uri, timestamp=timestamp, check_files=check_files)
    if state is not None:
        state.set(_STATE_KEY, {**asked, "version": pinned["version"]})
    return pinned
