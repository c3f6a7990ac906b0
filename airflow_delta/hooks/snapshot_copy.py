"""Copies of a snapshot, as a task has them made: found where they are made already, else submitted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow_delta.hooks.delta import DeltaHook
from airflow_delta.hooks.managed_commits import backfill_missing, owner_url_for_job
from airflow_delta.version_compat import AirflowFailException

if TYPE_CHECKING:
    from airflow_delta.hooks.spark_job import SparkJobHook
    from airflow_delta.spark.copy_rules import CopyRequest

__all__ = ["SnapshotCopy", "check_format"]

_JOB = "materialize"


def check_format(name: str) -> None:
    """Check that copies of a format can be made.

    Raises:
        AirflowFailException: they can't, however often the task is tried.
    """
    from airflow_delta.engine.errors import InvalidArgumentError
    from airflow_delta.spark import copy_rules

    try:
        copy_rules.check_format(name)
    except InvalidArgumentError as error:
        raise AirflowFailException(f"target_format: {error}") from error


class SnapshotCopy:
    """One copy of one version of a table.

    Args:
        hook: reaches the table and the target.
        table_uri: the table.
        version: its version.
        target_uri: where the copy goes.
        target_format: ``delta`` or ``parquet``.
        identity: application id and version by which a retry finds the commit of a Delta copy.
        replace_newer: whether to replace a copy of a later version, too.
    """

    def __init__(
        self,
        hook: DeltaHook,
        *,
        table_uri: str,
        version: int,
        target_uri: str,
        target_format: str,
        identity: tuple[str, int],
        replace_newer: bool,
    ) -> None:
        from airflow_delta.spark.copy_rules import CopyRequest

        self._hook = hook
        self._identity = identity
        self._request: CopyRequest = CopyRequest(
            table_uri, version, target_uri, target_format, identity, replace_newer
        )

    def earlier(self) -> dict[str, Any] | None:
        """The Delta copy that an earlier try has made; None where it is still to be made.

        What must not be replaced is refused here, before Spark starts. The job looks again, at the
        version that its commit is based on.

        Raises:
            AirflowFailException: the target must not or can't be replaced.
            DeltaError: the table or the target can't be read.
        """
        from airflow_delta.engine.errors import InvalidArgumentError
        from airflow_delta.spark.copy_rules import check_delta_target, copied_by

        request, hook = self._request, self._hook
        target = hook.table(request.target_uri)
        if request.format != "delta" or not target.exists():
            return None
        source = hook.table(request.table_uri).snapshot(request.version)
        app_id, app_version = self._identity
        commit = hook.committed_version(request.target_uri, app_id=app_id, app_version=app_version)
        if commit is not None and copied_by(request, source, target, commit):
            return _told(hook.pin(request.target_uri, version=commit), commit)
        try:
            check_delta_target(request, source, target.snapshot())
        except InvalidArgumentError as error:
            raise AirflowFailException(str(error)) from error
        return None

    def submit(self, job: SparkJobHook) -> dict[str, Any]:
        """Have Spark make the copy.

        The version of a managed table is backfilled before, so that the job finds it wherever its
        driver runs. Where the target is one, the job is told of its commit owner.

        Raises:
            DeltaError: the version can't be backfilled, or the target's owner can't be asked.
            AirflowException: the job failed.
        """
        request = self._request
        app_id, app_version = self._identity
        backfill_missing(self._hook, request.table_uri, request.version)
        commits = request.format == "delta"
        owner_url = owner_url_for_job(self._hook, request.target_uri) if commits else None
        report = job.run(
            _JOB,
            {
                "table_uri": request.table_uri,
                "version": request.version,
                "target_uri": request.target_uri,
                "format": request.format,
                "app_id": app_id,
                "app_version": app_version,
                "replace_newer": request.replace_newer,
            },
            storage_options=self._hook.common_storage_options(
                request.table_uri, request.target_uri
            ),
            commit_owner_url=owner_url,
        )
        return _told({**report, "table_uri": request.target_uri}, report.get("committed_version"))


def _told(copy: Mapping[str, Any], version: int | None) -> dict[str, Any]:
    """The facts of a copy, by names of their own beside those of the table."""
    return {
        "target_uri": copy["table_uri"],
        "target_version": version,
        "target_num_files": copy["num_files"],
        "target_num_rows": copy["num_rows"],
    }
