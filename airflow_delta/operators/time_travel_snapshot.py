"""Pin a version of a Delta table for a DAG run, and optionally copy it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow_delta.hooks.copy_expiry import ExpiredCopies
from airflow_delta.hooks.failures import ArgumentError, with_failures_by_policy
from airflow_delta.hooks.snapshot_copy import SnapshotCopy
from airflow_delta.operators.arguments import is_certain
from airflow_delta.operators.durations import Duration, as_duration_ms
from airflow_delta.operators.lineage.rules import copies_version
from airflow_delta.operators.lineage.task import with_lineage
from airflow_delta.operators.pinned_version import pinned_version
from airflow_delta.operators.run_identity import run_identity
from airflow_delta.operators.spark_task import SPARK_CONNECTION, JobTask
from airflow_delta.operators.table_commits import target_commit, with_table_commit
from airflow_delta.operators.table_task import TableTask, with_readers
from airflow_delta.operators.template_values import (
    as_pinned_version,
    as_spark_conf,
    as_text,
    as_timestamp,
    choice,
    location,
    switch,
)
from airflow_delta.version_compat import Context

__all__ = ["FORMATS", "TimeTravelSnapshotOperator"]

FORMATS = ("delta", "parquet", "csv", "json")
"""The formats of copies."""


class TimeTravelSnapshotOperator(JobTask):
    """Resolve a version of a table and return it as XCom; with a target, copy it there with PySpark.

    Tasks that read the pinned version all see the same state, even if commits follow::

        pin = TimeTravelSnapshotOperator(task_id="pin", table_uri="s3://lake/sales")
        report = CheckpointOperator(
            task_id="checkpoint",
            table_uri="s3://lake/sales",
            version=pin.output["version"],
        )

    Returns a dictionary with ``table_uri``, ``version``, ``timestamp_ms``, ``num_files``,
    ``size_in_bytes`` and ``num_rows``, and with a target also ``target_uri``, ``target_version``
    (the version of a copy in Delta format, else None), ``target_num_files``, ``target_num_rows``
    (None if statistics are missing), ``expires_at`` (None for a copy that doesn't expire) and
    ``deleted_copies``, the locations of expired copies that were deleted.

    With ``version="triggering_event"`` there is also ``after_version``: the versions after it, up to
    ``version``, started the run, by one event or several. It is None if no event has it.

    A retry, or the cleared task, pins the same version as the first try of the DAG run, and doesn't
    repeat a committed copy. A copy in Delta format is a clone; later copies to it add only the files
    that it lacks.

    :param table_uri: the table's path or URI. (templated)
    :param version: the version to pin; ``triggering_event`` for the version of the asset event that has
        started the DAG run, or the newest version if none has. (templated)
    :param timestamp: pin the newest version at this time: ISO-8601 with an offset, or epoch
        milliseconds. A time after the newest commit means the newest version; a time in the future is an
        error. At most one of version and timestamp; with neither it is the newest version. (templated)
    :param check_files: fail without retries if a vacuum has deleted files of the version, and name them;
        warn if it may delete some at any time. Only files that the newest version doesn't have are checked,
        with a request each, or a listing of the table if they are very many.
    :param target_uri: the location of the copy; None: nothing is copied. (templated)
    :param target_format: the format of the copy: ``delta``, ``parquet``, ``csv`` or ``json``. (templated)
    :param replace_newer: replace even a copy of a later version. Without this, a late run of a DAG doesn't
        undo the work of the run after it.
    :param expire_after: the age at which the copy expires: a timedelta, a number of seconds, or an
        ISO-8601 duration such as ``P7D``; None: it is kept. Each run deletes expired copies of the same
        table in the directory that contains its target. (templated)
    :param delta_conn_id: the connection with the credentials of the tables' store; None: the
        default connection of the URI's scheme. (templated)
    :param commit_owner_conn_id: the connection of the SQL commit owner; None:
        ``delta_commit_owner_default`` if it exists, else the environment variable
        ``AIRFLOW_DELTA_COMMIT_OWNER_URL``. (templated)
        A pinned version that isn't backfilled is backfilled before it is copied.
    :param spark_conn_id: the Spark connection of the job; must exist if there is a target. (templated)
    :param spark_conf: Spark properties of the job. (templated)
    """

    template_fields: Sequence[str] = (
        *TableTask.template_fields,
        "version",
        "timestamp",
        "target_uri",
        "target_format",
        "expire_after",
        "spark_conn_id",
        "spark_conf",
    )
    arguments = with_readers(
        TableTask,
        version=as_pinned_version,
        timestamp=as_timestamp,
        check_files=switch(default=True),
        target_uri=location,
        target_format=choice(*FORMATS, default="delta"),
        replace_newer=switch(default=False),
        expire_after=as_duration_ms,
        spark_conn_id=as_text,
        spark_conf=as_spark_conf,
    )
    exclusive = (("version", "timestamp"),)

    datasets = copies_version

    def __init__(
        self,
        *,
        version: int | str | None = None,
        timestamp: int | str | None = None,
        check_files: bool = True,
        target_uri: str | None = None,
        target_format: str = "delta",
        replace_newer: bool = False,
        expire_after: Duration | None = None,
        spark_conn_id: str = SPARK_CONNECTION,
        spark_conf: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.version = version
        self.timestamp = timestamp
        self.check_files = check_files
        self.target_uri = target_uri
        self.target_format = target_format
        self.replace_newer = replace_newer
        self.expire_after = expire_after
        self.spark_conn_id = spark_conn_id
        self.spark_conf = spark_conf
        self.check_arguments()

    @classmethod
    def check_together(cls, known: Mapping[str, Any]) -> None:
        """Check that ``expire_after`` isn't given without a target.

        :raises ArgumentError: it is.
        """
        if known.get("expire_after") is not None and known.get("target_uri", "") is None:
            raise ArgumentError(
                "expire_after is given without target_uri, so there is no copy to expire; give both, or "
                "neither"
            )

    @classmethod
    def spark_arguments(cls, given: Mapping[str, Any]) -> Sequence[str]:
        """``target_uri``: Spark makes the copy."""
        return ["target_uri"] if is_certain(given.get("target_uri")) else []

    @with_lineage
    @with_table_commit(target_commit("CLONE", metrics=("target_num_files", "target_num_rows")))
    @with_failures_by_policy
    def execute(self, context: Context) -> dict[str, Any]:
        """Pin the version, and copy it if there is a target.

        :raises TableFailure: there is no such version; its files are gone, and ``check_files`` is set; or
            the target can't be replaced, see `airflow_delta.spark.copy.copies`. See
            `airflow_delta.hooks.failures`.
        :raises DeltaError: the store failed; or an expired copy is being deleted at the target.
        :raises AirflowException: the copying job failed.
        """
        expire_after_ms = self.argument("expire_after")
        pinned = self._pin(context)
        self.log.info("pinned version %s of %s", pinned["version"], self.table_uri)
        if not self.target_uri:
            return pinned
        copied = self._copy(pinned, expire_after_ms, context)
        self.log.info("copied version %s: %s", pinned["version"], copied)
        deleted = []
        if expire_after_ms is not None:
            deleted = ExpiredCopies(
                self.hook(), table_uri=self.table_uri, target_uri=self.target_uri
            ).delete()
        return {**pinned, **copied, "deleted_copies": deleted}

    def _pin(self, context: Context) -> dict[str, Any]:
        return pinned_version(
            self.hook(),
            context,
            self.table_uri,
            version=self.argument("version"),
            timestamp=self.argument("timestamp"),
            check_files=self.argument("check_files"),
        )

    def _copy(
        self, pinned: Mapping[str, Any], expire_after_ms: int | None, context: Context
    ) -> dict[str, Any]:
        identity = run_identity(context)
        copy = SnapshotCopy(
            self.hook(),
            table_uri=self.table_uri,
            version=pinned["version"],
            target_uri=str(self.target_uri),
            target_format=self.argument("target_format"),
            identity=identity,
            replace_newer=self.argument("replace_newer"),
            expire_after_ms=expire_after_ms,
        )
        earlier = copy.earlier()
        if earlier is not None:
            self.log.info("an earlier try has copied it: %s", earlier)
            return earlier
        job = self.begin_job(context)
        return copy.submit(job)
