"""The last version of a table that a task has processed, in any of its runs.

Airflow finds XComs of earlier runs by logical date, which isn't the order of execution: backfills
and late runs have old dates, and many runs have none. So the progress is in the state store of an
asset, which belongs to no run and doesn't expire. All tasks share one asset, `PROGRESS`, because an
asset must be known before templates are rendered; it has an entry for each task, table and target.
It is an inlet of each task, only to give access to the store.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow_delta.hooks.change_feed import rollback_error
from airflow_delta.version_compat import AirflowFailException, Asset, Context, asset_state

if TYPE_CHECKING:
    from airflow_delta.hooks.change_feed import ChangeFeed

__all__ = ["PROGRESS", "TaskProgress", "with_progress"]

PROGRESS = Asset(name="airflow_delta_change_feeds", uri="delta-change-feeds://progress")
"""The asset whose state store has the progress of all change feeds."""

_LONGEST_NAME = 400
# Airflow keeps keys of up to 512 characters.


def with_progress(inlets: Any) -> list[Any]:
    """Add `PROGRESS` to the inlets that the author of a task has given."""
    several = isinstance(inlets, (list, tuple, set))
    given = list(inlets) if several else [] if inlets is None else [inlets]
    return given if PROGRESS in given else [*given, PROGRESS]


class TaskProgress:
    """The progress of a task with one table and one target.

    Args:
        context: the context of the try.
        feed: the table and the target.

    Raises:
        AirflowFailException: somebody has removed the inlet that gives access to the store.
        DeltaError: a location is invalid.
    """

    def __init__(self, context: Context, feed: ChangeFeed) -> None:
        instance = context["ti"]
        self._feed = feed
        self._run = [getattr(instance, "run_id", None), instance.map_index]
        self._store = asset_state(context, PROGRESS)
        self._task = [instance.dag_id, instance.task_id]
        name = ".".join(self._task)
        # Another task may have the same `name` as a task of a DAG whose id has a dot. Earlier releases
        # stored the progress of both under the key of the name.
        self._key = self._former_key = _key(name, [name, *feed.locations])
        if "." in instance.dag_id:
            self._key = _key(name, [*self._task, *feed.locations])

    def version(self, *, start: int | None = None) -> int | None:
        """The last version that a run has processed; None if the task must start from the beginning.

        It must if no run has processed any version, if the table or the target was created again, or if the
        target has lost changes.

        Args:
            start: the requested first version, if any.

        Raises:
            AirflowFailException: the table was restored from a backup, or nobody can know whether it was
                created again; unless ``start`` is after the last version.
            DeltaError: the table or the target can't be read.
        """
        entry = self._entry()
        if entry is None or self._is_obsolete(entry):
            return None
        last: int = entry["end_version"]
        if start is None or start <= last:
            self._check_certain(entry, last)
        return last

    def is_of_this_run(self) -> bool:
        """Whether this run has made the most progress of all runs."""
        entry = self._entry()
        return entry is not None and entry["run"] == self._run

    def began_after(self, version: int) -> bool:
        """Whether the run with the most progress began after a version, and so hasn't processed it.

        A run begins after the versions that were processed before it. If it began at the version or
        earlier, no other run had processed the version by then.
        """
        entry = self._entry()
        return entry is not None and entry["start_version"] > version

    def advance(
        self,
        table_uri: str,
        table_id: str,
        versions: tuple[int, int],
        *,
        last_appended: int | None,
    ) -> None:
        """Record that this run has processed some versions, if no other run has processed later ones.

        Args:
            table_uri: the table, for readers of the entry.
            table_id: its id at the last version.
            versions: the first and the last version.
            last_appended: the last version that the target has now.
        """
        start, end = versions
        entry = self._entry()
        is_behind = entry is None or entry["end_version"] < end or self._is_obsolete(entry)
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
                "target_told": last_appended,
                "run": self._run,
                "task": self._task,
            },
        )

    def _is_obsolete(self, entry: Mapping[str, Any]) -> bool:
        """Whether an entry is of an earlier table at the location, or of a target that lost changes."""
        recorded = entry["target_told"]
        if recorded is not None and recorded > (
            -1 if self._feed.last_appended is None else self._feed.last_appended
        ):
            return True
        return self._feed.is_same_table(entry["table_id"], entry["end_version"]) is False

    def _check_certain(self, entry: Mapping[str, Any], last: int) -> None:
        """Check that the table is the one whose last version was processed."""
        table_uri, table_id = entry["table_uri"], entry["table_id"]
        reason = self._feed.rollback_evidence(table_id, last, entry["commit_mark"])
        if reason is not None:
            raise rollback_error(table_uri, last, reason)
        if self._feed.is_same_table(table_id, last) is None:
            raise AirflowFailException(
                f"version {last} of {table_uri} was processed last. The table has another id than it had "
                "then, and cleanup has deleted that version, so nobody can know whether it is the same "
                f"table: give a start_version, {last + 1} to go on"
            )

    def _entry(self) -> dict[str, Any] | None:
        if self._store is None:
            return None
        entry: dict[str, Any] | None = self._store.get(self._key)
        if entry is None and self._key != self._former_key:
            entry = self._store.get(self._former_key)
            # An entry of an earlier release names no task. It is of this task, or two tasks with the same
            # name have shared it; then this one goes on from it as before.
            if entry is not None and entry.get("task", self._task) != self._task:
                return None
        return entry


def _key(name: str, identity: Sequence[str | None]) -> str:
    digest = hashlib.sha256(json.dumps(identity).encode()).hexdigest()
    return f"{name[:_LONGEST_NAME]}:{digest}"
