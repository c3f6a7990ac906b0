"""The methods of `DeltaHook` that read: the newest version, a pinned version, an earlier commit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow_delta.hooks.delta.access import TableAccess
from airflow_delta.hooks.lineage.collector import collects
from airflow_delta.hooks.progress import logs_progress
from airflow_delta.hooks.readable_history import readable_history

if TYPE_CHECKING:
    from airflow_delta.engine import DeltaTable, Snapshot

__all__ = ["ReadMethods"]

_MOST_COMMITS = 1_000
"""The number of the newest commits among which those of a task are searched."""

_CLOCKS_DIFFER_MS = 60_000
"""The clock of the scheduler, from which ``{{ ts }}`` comes, may be so far ahead of the worker's."""


class ReadMethods(TableAccess):
    """Find versions of a table."""

    @staticmethod
    def latest_version(
        table: DeltaTable, known: int | None = None, *, confirm: bool = False
    ) -> int | None:
        """Find the newest version of a table; None if there is no table (yet).

        :param known: an earlier result: one request finds out whether it is still the newest.
        :param confirm: also check that ``known`` still exists. If a cleanup has deleted ``known`` and the
            commit after it, ``known`` would otherwise seem to be the newest for ever.
        """
        from airflow_delta.engine.errors import TableNotFoundError

        try:
            return table.latest_version(known, confirm=confirm)
        except TableNotFoundError:
            return None

    @collects("input")
    @logs_progress
    def pin(
        self,
        table_uri: str,
        *,
        version: int | None = None,
        timestamp: str | int | None = None,
        check_files: bool = False,
    ) -> dict[str, Any]:
        """Resolve a version of a table, so that any number of tasks can read the same state.

        :param version: this version; or
        :param timestamp: the newest version at this time: ISO-8601 with offset, or epoch
            milliseconds. A time after the newest commit means the newest version, but it must not be in the
            future, because later commits could still belong to it. Neither: the newest version.
        :param check_files: check that the files of an earlier version exist, and log a warning if a vacuum
            may delete some at any time. See `DeltaTable.check_version` for the costs.
        :returns: ``table_uri``, ``version``, ``timestamp_ms`` (None if a cleanup has deleted the commit),
            ``num_files``, ``size_in_bytes`` and ``num_rows`` (None if statistics are missing).
        :raises MissingFilesError: ``check_files`` is set, and some are gone.
        :raises OutsidePathError: ``check_files`` is set, and some are at locations that the table isn't
            allowed to read.
        :raises TimestampOutOfRangeError: the time is before the log or in the future.
        :raises DeltaError: the table or the version can't be read.
        """
        from airflow_delta.engine.errors import VersionNotFoundError

        table = self._open(table_uri)
        snapshot = table.snapshot(
            version=version,
            timestamp=timestamp,
            can_return_latest=timestamp is not None and _has_come(timestamp, table_uri),
        )
        # The newest version needs no check: its files aren't removed.
        if check_files and (version is not None or timestamp is not None):
            self._check_files(table, snapshot)
        try:
            timestamp_ms = snapshot.timestamp_ms
        except VersionNotFoundError:
            timestamp_ms = None
        return {
            "table_uri": table_uri,
            "version": snapshot.version,
            "timestamp_ms": timestamp_ms,
            "num_files": snapshot.num_files,
            "size_in_bytes": snapshot.size_in_bytes,
            "num_rows": snapshot.num_rows,
        }

    def committed_version(self, table_uri: str, *, app_id: str, app_version: int) -> int | None:
        """Find the version that an earlier try committed, by its transaction identifier.

        Returns None if there is no such commit, or no table yet.
        """
        from airflow_delta.engine.errors import TableNotFoundError

        try:
            return self._open(table_uri).version_of_transaction(app_id, app_version)
        except TableNotFoundError:
            return None

    def commits_of_task(
        self, table_uri: str, run: Mapping[str, Any], *, since_ms: int | None
    ) -> dict[int, int | None]:
        """Find the commits that a task has made in a DAG run, in any of its tries.

        They are searched among the newest 1,000 commits; if the commit owner of a managed table can't be
        reached, among those that are backfilled; if a commit is damaged, among those after it.

        :param run: the run of the task, as `airflow_delta.task_runs.task_run` returns it; its
            ``try_number`` doesn't matter.
        :param since_ms: a time in epoch milliseconds before which the task hasn't committed; commits of
            earlier times aren't read.
        :returns: the number of the try that has made each commit, by version.
        :raises DeltaError: the log can't be read.
        """
        snapshot = self._open(table_uri).snapshot()
        infos = readable_history(snapshot, _MOST_COMMITS, since_ms=since_ms)
        if len(infos) == _MOST_COMMITS:
            self.log.warning(
                "%s: only the commits %s to %s were searched for those of earlier tries",
                table_uri,
                infos[-1].version,
                infos[0].version,
            )
        task = {name: value for name, value in run.items() if name != "try_number"}
        found = {info.version: info.task_run or {} for info in reversed(infos)}
        return {
            version: by.get("try_number")
            for version, by in found.items()
            if by and all(by.get(name) == value for name, value in task.items())
        }

    def _check_files(self, table: DeltaTable, snapshot: Snapshot) -> None:
        found = table.check_version(snapshot)
        if found.num_unprotected:
            self.log.warning(
                "version %s of %s may become unreadable at any time: %s of its files were removed from "
                "the table longer ago than delta.deletedFileRetentionDuration, so the next vacuum "
                "deletes them",
                snapshot.version,
                table.uri,
                found.num_unprotected,
            )


def _has_come(timestamp: str | int, table_uri: str) -> bool:
    """Whether a time isn't in the future, with a tolerance for different clocks."""
    from airflow_delta.engine.clock import now_ms
    from airflow_delta.engine.snapshot.timestamps import epoch_ms

    return epoch_ms(timestamp, table=table_uri) <= now_ms() + _CLOCKS_DIFFER_MS
