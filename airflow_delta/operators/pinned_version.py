"""Use the same version in all tries of a task.

"The newest version" may be another one at each try; so may the version of a timestamp after the newest
commit, if clocks differ. So the first try of a DAG run decides on a version, which is stored in the state
of the task. The version of the asset event that has started the run is the same in all tries anyway.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from airflow_delta.hooks.delta import DeltaHook
from airflow_delta.operators.template_values import TRIGGERING_EVENT
from airflow_delta.operators.triggering_event import log_newest, triggering_range
from airflow_delta.version_compat import Context, task_state

__all__ = ["pinned_version", "triggering_versions"]

_STATE_KEY = "pinned"
_SEVERAL_KEY = "pinned_tables"


def pinned_version(
    hook: DeltaHook,
    context: Context,
    table_uri: str,
    *,
    version: int | str | None,
    timestamp: int | str | None,
    check_files: bool,
) -> dict[str, Any]:
    """Resolve the version of a task with `DeltaHook.pin`, once for all tries.

    :param hook: gives access to the table.
    :param context: the context of the try.
    :param table_uri: the table.
    :param version: the version in the task's arguments, or `TRIGGERING_EVENT`; or
    :param timestamp: the time, as ISO-8601 or epoch milliseconds. Neither: the newest version.
    :param check_files: check that the files of the version exist.
    :returns: the entries of `DeltaHook.pin`; for `TRIGGERING_EVENT` also ``after_version``.
    :raises ArgumentError: an asset event has an invalid version.
    :raises MissingFilesError: files of the version are gone.
    :raises DeltaError: the table or the version can't be read.
    """
    if version == TRIGGERING_EVENT:
        return _version_of_event(hook, context, table_uri, check_files=check_files)
    if isinstance(version, int):
        return hook.pin(table_uri, version=version, check_files=check_files)
    arguments = {"table_uri": table_uri, "timestamp": timestamp}
    state = task_state(context)
    earlier = state.get(_STATE_KEY) if state is not None else None
    if earlier and all(earlier.get(name) == value for name, value in arguments.items()):
        return hook.pin(table_uri, version=earlier["version"], check_files=check_files)
    pinned = hook.pin(table_uri, timestamp=timestamp, check_files=check_files)
    if state is not None:
        state.set(_STATE_KEY, {**arguments, "version": pinned["version"]})
    return pinned


def triggering_versions(
    hook: DeltaHook, context: Context, table_uris: Iterable[str]
) -> dict[str, int]:
    """Find the version of each table in the events that started the run, once for all tries.

    A table without such an event has the newest version.

    :param hook: gives access to the tables.
    :param context: the context of the try.
    :param table_uris: the tables.
    :returns: the versions by table.
    :raises ArgumentError: an asset event has an invalid version.
    :raises DeltaError: a table can't be read.
    """
    state = task_state(context)
    earlier = (None if state is None else state.get(_SEVERAL_KEY)) or {}
    versions, newest = {}, {}
    for uri in table_uris:
        if (found := triggering_range(context, uri)) is not None:
            versions[uri] = found.version
        elif uri in earlier:
            newest[uri] = earlier[uri]
        else:
            newest[uri] = hook.table(uri).latest_version()
            log_newest(hook.log, context, uri)
    if state is not None and newest != earlier:
        state.set(_SEVERAL_KEY, newest)
    return {**versions, **newest}


def _version_of_event(
    hook: DeltaHook, context: Context, table_uri: str, *, check_files: bool
) -> dict[str, Any]:
    """Pin the version of the events that started the run; without one, the newest version."""
    found = triggering_range(context, table_uri)
    if found is None:
        log_newest(hook.log, context, table_uri)
    pinned = pinned_version(
        hook,
        context,
        table_uri,
        version=None if found is None else found.version,
        timestamp=None,
        check_files=check_files,
    )
    return {**pinned, "after_version": None if found is None else found.after_version}
