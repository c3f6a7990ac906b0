"""How far the runs of a task have come with a table, over runs of whatever date.

XComs of earlier runs are found by logical date, which says nothing about the order in which runs are
executed: backfills and late runs have old ones, and many runs have none. So the progress is kept in the
state store of an asset, which belongs to no run and doesn't expire. All tasks share one asset,
`PROGRESS`, because an asset must be known before anything about the task is rendered; an entry in it is
of one task, one table and one target. Each task has it as an inlet, which only leads to the store.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow_delta.hooks.change_feed import put_back_error
from airflow_delta.version_compat import AirflowFailException, Asset, Context, asset_state

if TYPE_CHECKING:
    from airflow_delta.hooks.change_feed import ChangeFeed

__all__ = ["PROGRESS", "FeedProgress", "with_progress"]

PROGRESS = Asset(name="airflow_delta_change_feeds", uri="delta-change-feeds://progress")
"""The asset in whose state the progress of all change feeds is kept."""

_LONGEST_NAME = 400
# Airflow keeps keys of up to 512 characters.


def with_progress(inlets: Any) -> list[Any]:
    """The inlets of a task, as its author gives them, with the asset of the progress."""
    several = isinstance(inlets, (list, tuple, set))
    given = list(inlets) if several else [] if inlets is None else [inlets]
    return given if PROGRESS in given else [*given, PROGRESS]


class FeedProgress:
    """The last version that a task has processed, of one table for one target.

    Args:
        context: of the try.
        feed: the table and the target.

    Raises:
        AirflowFailException: the task has lost the inlet that leads to the store.
        DeltaError: a location can't be understood.
    """

    def __init__(self, context: Context, feed: ChangeFeed) -> None:
        instance = context["ti"]
        self._feed = feed
        self._run = [getattr(instance, "run_id", None), instance.map_index]
        self._store = asset_state(context, PROGRESS)
        name = f"{instance.dag_id}.{instance.task_id}"
        identity = json.dumps([name, *feed.places])
        digest = hashlib.sha256(identity.encode()).hexdigest()
        self._key = f"{name[:_LONGEST_NAME]}:{digest}"

    def version(self, *, start: int | None = None) -> int | None:
        """The last version that a run has processed; None where none has, and after a new beginning.

        The beginning is new where the table was made anew, or the target, or where the target has lost
        changes that it had.

        Args:
            start: the version to begin with, if it is asked for.

        Raises:
            AirflowFailException: the table was put back to an earlier state, or nobody can tell whether it
                was made anew; and it isn't asked for a version after the last one.
            DeltaError: the table or the target can't be read.
        """
        entry = self._entry()
        if entry is None or self._begins_anew(entry):
            return None
        last: int = entry["end_version"]
        if start is None or start <= last:
            self._check_certain(entry, last)
        return last

    def is_of_this_run(self) -> bool:
        """Whether the run that has come farthest is this one."""
        entry = self._entry()
        return entry is not None and entry["run"] == self._run

    def began_after(self, version: int) -> bool:
        """Whether the run that has come farthest began after a version, and so hasn't told it.

        A run begins after what was processed before. One that began at the version or before it has found
        that no other had told it.
        """
        entry = self._entry()
        return entry is not None and entry["start_version"] > version

    def advance(
        self, table_uri: str, table_id: str, versions: tuple[int, int], *, told: int | None
    ) -> None:
        """Keep that this run has processed some versions, if no other has come farther.

        Args:
            table_uri: the table, for people.
            table_id: its id at the last version.
            versions: the first and the last version.
            told: the last version that the target tells by now.
        """
        start, end = versions
        entry = self._entry()
        is_behind = entry is None or entry["end_version"] < end or self._begins_anew(entry)
        if self._store is None or not is_behind:
            return
        self._store.set(
            self._key,
            {
                "table_uri": table_uri,
                "table_id": table_id,
                "start_version": start,
                "end_version": end,
                "commit_mark": self._feed.commit_mark(end),
                "target_told": told,
                "run": self._run,
            },
        )

    def _begins_anew(self, entry: Mapping[str, Any]) -> bool:
        """Whether what was processed is of another table, or of a target that was made anew."""
        told = entry["target_told"]
        if told is not None and told > (-1 if self._feed.told is None else self._feed.told):
            return True
        return self._feed.goes_on_after(entry["table_id"], entry["end_version"]) is False

    def _check_certain(self, entry: Mapping[str, Any], last: int) -> None:
        """Check that the table is known to go on after the last version that was processed."""
        table_uri, table_id = entry["table_uri"], entry["table_id"]
        reason = self._feed.put_back(table_id, last, entry["commit_mark"])
        if reason is not None:
            raise put_back_error(table_uri, last, reason)
        if self._feed.goes_on_after(table_id, last) is None:
            raise AirflowFailException(
                f"version {last} of {table_uri} was processed last. The table has another id than it had "
                "then, and cleanup has taken that version, so that nobody can tell whether it is the same "
                f"table: give a start_version, {last + 1} to go on"
            )

    def _entry(self) -> dict[str, Any] | None:
        return None if self._store is None else self._store.get(self._key)
