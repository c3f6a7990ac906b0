"""Submit Spark jobs that change the rows of a table, exactly once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow_delta.hooks.delta import DeltaHook
from airflow_delta.hooks.spark.row_sources import job_source
from airflow_delta.version_compat import AirflowException

if TYPE_CHECKING:
    from airflow_delta.hooks.spark.job import SparkJobHook

__all__ = ["SparkRowChanges"]

_log = logging.getLogger(__name__)


class SparkRowChanges:
    """Changes of the rows of a table, each by a job, unless an earlier try has committed.

    Each method that commits returns ``table_uri``, ``table_id`` (None without a commit), ``version``,
    ``committed``, ``repeated`` and ``metrics``, which has the operation metrics from the log.

    :param hook: gives access to the tables and their commit owners.
    :param begin_job: makes the hook that submits the job; called only if a job is needed.
    :param txn: application id and version, by which a retry finds the commit of an earlier try.
    """

    def __init__(
        self, hook: DeltaHook, begin_job: Callable[[], SparkJobHook], *, txn: tuple[str, int]
    ) -> None:
        self._hook = hook
        self._begin_job = begin_job
        self._txn = txn

    def write(
        self, table_uri: str, source: Mapping[str, Any], *, mode: str, options: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Write the rows of a source.

        The result also has ``compaction``: what the compaction after the write did, as the attributes of
        `AutoCompaction`; None if there was none, or an earlier try has made the commit.

        :param source: the source, see `job_source`.
        :param mode: the mode of the write.
        :param options: other arguments of `airflow_delta.spark.write`; those that are None are left out.
        :raises DeltaError: the rows can't be written.
        :raises AirflowException: the job failed.
        """
        result = self._commit_rows("write", table_uri, source, {"mode": mode, **options})
        return {"compaction": None, **result}

    def delete(
        self, table_uri: str, *, condition: str, user_metadata: str | None
    ) -> dict[str, Any]:
        """Delete the rows for which a condition is true.

        :param condition: the condition.
        :param user_metadata: a text for the commit.
        :raises DeltaError: the rows can't be deleted.
        :raises AirflowException: the job failed.
        """
        if (earlier := self._earlier(table_uri)) is not None:
            return earlier
        given = {} if user_metadata is None else {"user_metadata": user_metadata}
        return self._commit("delete", table_uri, {"condition": condition, **given})

    def update(
        self,
        table_uri: str,
        *,
        new_values: Mapping[str, Any],
        condition: str,
        user_metadata: str | None,
    ) -> dict[str, Any]:
        """Update the rows for which a condition is true.

        :param new_values: SQL, numbers, booleans or None, by column.
        :param condition: the condition.
        :param user_metadata: a text for the commit.
        :raises DeltaError: the rows can't be updated.
        :raises AirflowException: the job failed.
        """
        if (earlier := self._earlier(table_uri)) is not None:
            return earlier
        given = {} if user_metadata is None else {"user_metadata": user_metadata}
        parameters = {"set": dict(new_values), "condition": condition, **given}
        return self._commit("update", table_uri, parameters)

    def merge(
        self,
        table_uri: str,
        source: Mapping[str, Any],
        *,
        on: str,
        clauses: Sequence[Mapping[str, Any]],
        options: Mapping[str, Any],
    ) -> dict[str, Any]:
        """Merge the rows of a source into a table.

        :param source: the source, see `job_source`.
        :param on: the condition by which rows match.
        :param clauses: the clauses, see `airflow_delta.row_changes.clauses.parse_clauses`.
        :param options: other arguments of `airflow_delta.spark.merge`; those that are None are left out.
        :raises DeltaError: the rows can't be merged.
        :raises AirflowException: the job failed.
        """
        parameters = {"on": on, "clauses": list(clauses)}
        return self._commit_rows("merge", table_uri, source, {**parameters, **options})

    def plan_deletion(self, table_uri: str, *, condition: str) -> dict[str, Any]:
        """Find the files that may have rows for which a condition is true.

        :param condition: the condition.
        :returns: ``table_uri``, and the entries of `airflow_delta.spark.dml.dry_run.DeletionPlan`.
        :raises DeltaError: the table can't be read, or the condition is invalid.
        :raises AirflowException: the job failed.
        """
        return self._run("delete", table_uri, {"condition": condition, "dry_run": True})

    def _commit_rows(
        self, job: str, table_uri: str, source: Mapping[str, Any], options: Mapping[str, Any]
    ) -> dict[str, Any]:
        from airflow_delta.row_sources.source import source_locations, source_parameter

        if (earlier := self._earlier(table_uri)) is not None:
            return earlier
        rows = job_source(self._hook, source)
        given = {name: value for name, value in options.items() if value is not None}
        parameters = {"source": source_parameter(rows), **given}
        return self._commit(job, table_uri, parameters, *source_locations(rows))

    def _commit(
        self, job: str, table_uri: str, parameters: Mapping[str, Any], *sources: str
    ) -> dict[str, Any]:
        app_id, app_version = self._txn
        identity = {"app_id": app_id, "app_version": app_version}
        try:
            report = self._run(job, table_uri, {**parameters, **identity}, *sources)
        except AirflowException:
            # The job may have failed after its commit, or because the driver of a killed try was faster.
            if (earlier := self._earlier(table_uri)) is None:
                raise
            _log.warning(
                "the job failed, but its rows are committed as version %s of %s",
                earlier["version"],
                table_uri,
                exc_info=True,
            )
            return earlier
        committed, version = report["committed"], report["version"]
        logged = (
            self._logged(table_uri, version) if committed else {"table_id": None, "metrics": {}}
        )
        return {
            "table_uri": table_uri,
            "version": version,
            "committed": committed,
            "repeated": report["repeated"],
            **logged,
            **({"compaction": report["compaction"]} if "compaction" in report else {}),
        }

    def _run(
        self, job: str, table_uri: str, parameters: Mapping[str, Any], *sources: str
    ) -> dict[str, Any]:
        return self._begin_job().run(
            job,
            {
                "table_uri": table_uri,
                **parameters,
                **self._hook.allowed_parameter(table_uri),
            },
            storage_options=self._hook.common_storage_options(table_uri, *sources),
            commit_owner_url=self._hook.owner_url_for_job(table_uri),
        )

    def _earlier(self, table_uri: str) -> dict[str, Any] | None:
        """The result of an earlier try that has committed; None if there is none."""
        app_id, app_version = self._txn
        version = self._hook.committed_version(table_uri, app_id=app_id, app_version=app_version)
        if version is None:
            return None
        return {
            "table_uri": table_uri,
            "version": version,
            "committed": True,
            "repeated": True,
            **self._logged(table_uri, version),
        }

    def _logged(self, table_uri: str, version: int) -> dict[str, Any]:
        """The table's id, and the operation metrics of a commit; None if it isn't in the log any more."""
        from airflow_delta.engine.errors import ObjectNotFoundError
        from airflow_delta.engine.log.commit_file import read_commit_info
        from airflow_delta.engine.model.commit_info import CommitInfo

        table = self._hook.table(table_uri)
        newest = table.snapshot()
        path, table_id = newest.segment.path_of(version), newest.metadata.id
        try:
            raw = read_commit_info(table.storage, version, path=path)
        except ObjectNotFoundError:
            return {"table_id": table_id, "metrics": None}
        given = CommitInfo.from_json(raw, version=version).operation_metrics or {}
        metrics = {name: int(value) for name, value in given.items() if str(value).isdecimal()}
        return {"table_id": table_id, "metrics": metrics}
