"""The versions of a table that started a DAG run, from the asset events that the run consumes.

The versions are in the ``extra`` of an event, if one of this package's operators has emitted it, or a task
of the user that sets the same entries; or in the ``payload`` of a watcher.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from airflow_delta.hooks.table_locations import canonical_uri
from airflow_delta.operators.template_values import (
    TRIGGERING_EVENT,
    as_version,
    as_version_or_before,
)
from airflow_delta.version_compat import AssetAlias, Context

__all__ = ["EventRange", "log_newest", "requested_version", "triggering_range"]

_log = logging.getLogger(__name__)

_MOST_SHOWN = 5
"""The events of other tables that a warning lists."""
_NEW_HISTORIES = ("recreated", "rolled_back")
"""The table changes after which a version isn't the same as before; see `DeltaTableVersionTrigger`."""


@dataclass(frozen=True, slots=True)
class EventRange:
    """The versions that the events of one run are about.

    Attributes:
        after_version: the version after which they begin, -1 for all; None if no event has it.
        version: the last one.
    """

    after_version: int | None
    version: int


def triggering_range(context: Context, table_uri: str) -> EventRange | None:
    """Find the versions of a table that started a run; None if no event has a version of it.

    Several events can start one run; their versions are one range. If an event reports that the table was
    created again or put back to an earlier state, the events before it are obsolete.

    :param context: the context of the task.
    :param table_uri: the table.
    :raises ArgumentError: an event of the table has an invalid version.
    """
    found: EventRange | None = None
    canonical = canonical_uri(table_uri)
    for event in _events(context):
        if event.table != canonical:
            continue
        facts, where = event.facts, event.title
        version = as_version(facts.get("version"), name=f"version of {where}")
        if version is None:
            continue
        name = f"after_version of {where}"
        after = as_version_or_before(facts.get("after_version"), name=name)
        if facts.get("committed") is False:
            # Nothing is new in it.
            after = None if found is None else found.after_version
        if found is None or facts.get("table_change") in _NEW_HISTORIES:
            found = EventRange(after, version)
        else:
            known = [value for value in (found.after_version, after) if value is not None]
            found = EventRange(min(known, default=None), max(found.version, version))
    return found


def requested_version(context: Context, table_uri: str, version: int | str | None) -> int | None:
    """Find the version that an argument means; None for the newest.

    :param context: the context of the task.
    :param table_uri: the table.
    :param version: the version in the argument, or `TRIGGERING_EVENT`, which means the newest version if no
        event with a version of the table has started the run.
    :raises ArgumentError: an event of the table has an invalid version.
    """
    if version != TRIGGERING_EVENT:
        return None if version is None else int(version)
    found = triggering_range(context, table_uri)
    if found is None:
        log_newest(_log, context, table_uri)
    return None if found is None else found.version


def log_newest(log: Any, context: Context, table_uri: str) -> None:
    """Log that the newest version is used, because no event with a version of the table started the run.

    It is a warning if other events have started the run. Then an asset may have another spelling of the
    location than the task, or the writer doesn't put the version into its events.

    :param log: where to log it: a logger of `logging`, or of a hook of Airflow.
    :param context: the context of the task.
    :param table_uri: the table.
    """
    canonical = canonical_uri(table_uri)
    events = _events(context)
    if not events:
        log.info("no event with a version of %s has started this run: take the newest", table_uri)
    elif any(event.table == canonical for event in events):
        log.warning(
            "the asset events of %s that have started this run have no version: take the newest; the task "
            "that writes the table must put the version into them",
            canonical,
        )
    else:
        log.warning(
            "none of the asset events that have started this run is of %s: take the newest; they are of %s",
            canonical,
            _listed(event.table for event in events),
        )


def _listed(tables: Iterable[str]) -> str:
    names = sorted(set(tables))
    more = len(names) - _MOST_SHOWN
    return ", ".join(names[:_MOST_SHOWN]) + (f" and {more} more" if more > 0 else "")


@dataclass(frozen=True, slots=True)
class _Event:
    """An asset event that has started a run.

    Attributes:
        table: the canonical location of the table.
        facts: its entries.
        title: its name for messages.
    """

    table: str
    facts: Mapping[str, Any]
    title: str


def _events(context: Context) -> list[_Event]:
    """The events that have started a run, in the order of time."""
    triggering = context.get("triggering_asset_events") or {}
    # An event that came through an alias is listed under its asset too.
    events = [
        (event, asset)
        for asset, found in triggering.items()
        if not isinstance(asset, AssetAlias)
        for event in found
    ]
    made = []
    for event, asset in sorted(events, key=lambda pair: pair[0].timestamp):
        facts = _facts(event.extra)
        table = facts.get("table_uri")
        canonical = canonical_uri(table if isinstance(table, str) else asset.uri)
        title = f"the event of the asset {asset.name!r} at {event.timestamp}"
        made.append(_Event(canonical, facts, title))
    return made


def _facts(extra: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """The entries of an event: the payload of a watcher, or the ``extra`` that a task has set."""
    facts = extra or {}
    if facts.get("from_trigger"):
        payload = facts.get("payload")
        return payload if isinstance(payload, Mapping) else {}
    return facts
