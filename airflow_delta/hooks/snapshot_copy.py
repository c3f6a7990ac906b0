"""Copies of a snapshot, for tasks: find the copy of an earlier try, or submit a Spark job that makes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow_delta.hooks.delta import DeltaHook

if TYPE_CHECKING:
    from airflow_delta.copies.request import CopyRequest
    from airflow_delta.copies.source import CopySource
    from airflow_delta.hooks.spark.job import SparkJobHook

__all__ = ["SnapshotCopy"]

_JOB = "materialize"


class SnapshotCopy:
    """One copy of one version of a table.

    Args:
        hook: gives access to the table and the target.
        table_uri: the table.
        version: its version.
        target_uri: the location of the copy.
        target_format: ``delta``, ``parquet``, ``csv`` or ``json``.
        identity: application id and version by which a retry finds the commit of a Delta copy.
        replace_newer: whether to replace a copy of a later version.
        expire_after_ms: the age at which the copy expires, in ms; None: never.

    Raises:
        InvalidArgumentError: ``expire_after_ms`` is out of range; see `CopyRequest`.
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
        expire_after_ms: int | None = None,
    ) -> None:
        from airflow_delta.copies.request import CopyRequest

        self._hook = hook
        self._identity = identity
        self._request: CopyRequest = CopyRequest(
            table_uri, version, target_uri, target_format, identity, replace_newer, expire_after_ms
        )

    def earlier(self) -> dict[str, Any] | None:
        """Find the Delta copy that an earlier try has made; None if it must be made.

        This also checks, before Spark starts, that the format can hold the table and that the target may be
        replaced. The job checks again, at the version that its commit is based on.

        Raises:
            InvalidArgumentError: the format is unknown or can't hold the table, or the target can't be
                replaced.
            CopyBeingDeletedError: an expired copy is being deleted there.
            DeltaError: the table or the target can't be read.
        """
        from airflow_delta.copies.formats import check_columns, check_format
        from airflow_delta.copies.source import CopySource

        request = self._request
        check_format(request.format)
        if request.format == "parquet":
            return None  # it can hold any table, and the job checks the target
        table = self._hook.table(request.table_uri)
        source = CopySource(table, table.snapshot(request.version))
        check_columns(request.format, source.snapshot.schema, table=request.table_uri)
        return self._earlier_commit(source) if request.format == "delta" else None

    def _earlier_commit(self, source: CopySource) -> dict[str, Any] | None:
        from airflow_delta.copies.lease import CopyWatch
        from airflow_delta.copies.request import (
            check_delta_target,
            load_earlier_copy,
            mark_delta_copy,
        )
        from airflow_delta.engine.clock import now_ms

        request, hook = self._request, self._hook
        target = hook.table(request.target_uri)
        watch = CopyWatch(request, target.storage)
        if not target.exists():
            return None
        app_id, app_version = self._identity
        commit = hook.committed_version(request.target_uri, app_id=app_id, app_version=app_version)
        if commit is not None and (copy := load_earlier_copy(request, source, target, commit)):
            marker = mark_delta_copy(request, source, copy, watch.check())
            # An expired copy may be deleted at any time, so it is made again.
            if not marker.has_expired(now_ms()):
                pinned = hook.pin(request.target_uri, version=commit)
                return _copy_facts(pinned, commit, marker.expires_at)
        check_delta_target(request, source, target.snapshot())
        return None

    def submit(self, job: SparkJobHook) -> dict[str, Any]:
        """Have Spark make the copy.

        The version of a managed table is backfilled first, so that the job finds it wherever its
        driver runs. If the target is managed, the job gets the URL of its commit owner.

        Raises:
            DeltaError: the version can't be backfilled, or the target's owner can't be reached.
            AirflowException: the job failed.
        """
        request = self._request
        app_id, app_version = self._identity
        self._hook.backfill_missing(request.table_uri, request.version)
        commits = request.format == "delta"
        owner_url = self._hook.owner_url_for_job(request.target_uri) if commits else None
        expire_after = request.expire_after_ms
        expiry = {} if expire_after is None else {"expire_after_ms": expire_after}
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
                **self._hook.allowed_parameter(request.table_uri),
                **expiry,
            },
            storage_options=self._hook.common_storage_options(
                request.table_uri, request.target_uri
            ),
            commit_owner_url=owner_url,
        )
        return _copy_facts(
            {**report, "table_uri": request.target_uri},
            report.get("committed_version"),
            report.get("expires_at"),
        )


def _copy_facts(
    copy: Mapping[str, Any], version: int | None, expires_at: str | None
) -> dict[str, Any]:
    """The facts of a copy, named differently from those of the table."""
    return {
        "target_uri": copy["table_uri"],
        "target_version": version,
        "target_num_files": copy["num_files"],
        "target_num_rows": copy["num_rows"],
        "expires_at": expires_at,
    }
