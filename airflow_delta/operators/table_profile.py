"""Profile a version of a Delta table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow_delta.hooks.failures import with_failures_by_policy
from airflow_delta.hooks.table_profile import SnapshotProfile
from airflow_delta.operators.arguments import is_certain
from airflow_delta.operators.lineage.task import with_lineage
from airflow_delta.operators.pinned_version import pinned_version
from airflow_delta.operators.spark_task import SPARK_CONNECTION, JobTask
from airflow_delta.operators.table_task import TableTask, with_readers
from airflow_delta.operators.template_values import (
    as_names,
    as_pinned_version,
    as_spark_conf,
    as_text,
    as_timestamp,
    switch,
)
from airflow_delta.version_compat import Context

__all__ = ["TableProfileOperator"]


class TableProfileOperator(JobTask):
    """Profile a version of a table with PySpark: its rows, and nulls, minimum, maximum and more by column.

    The result is small enough for XCom, so that later tasks can act on it::

        profile = TableProfileOperator(
            task_id="profile", table_uri="s3://lake/sales", columns=["amount", "address.city"]
        )

    If only the number of rows is requested (``columns=[]``), it is usually in the log, and Spark
    isn't started.

    Returns a dictionary with ``table_uri``, ``version``, ``timestamp_ms``, ``num_files``,
    ``size_in_bytes``, ``num_partitions``, ``num_rows``, ``counted_by`` (``statistics`` or ``scan``) and
    ``columns``: the figures of each column by its name. See the reference for the figures.

    A retry, or the cleared task, profiles the same version as the first try of the DAG run.

    :param table_uri: the table's path or URI. (templated)
    :param version: the version to profile; ``triggering_event`` for that of the asset event that has
        started the DAG run, see `TimeTravelSnapshotOperator`. (templated)
    :param timestamp: profile the newest version at this time: ISO-8601 with an offset, or epoch
        milliseconds. A time after the newest commit means the newest version; a time in the future is an
        error. At most one of version and timestamp; with neither it is the newest version. (templated)
    :param columns: the columns to profile; fields of a struct as ``address.city``, or all of them as
        ``address``. None: all columns, at most 200. An empty list: only count the rows. A template that
        renders to a JSON list is also possible: ``{{ params.columns | tojson }}``. (templated)
    :param predicate: a Spark condition that selects the rows, such as ``day >= '2026-03-01'``. (templated)
    :param check_files: fail without retries, before Spark starts, if a vacuum has deleted files of an
        earlier version; see `TimeTravelSnapshotOperator`.
    :param delta_conn_id: the connection with the credentials of the table's store; None: the
        default connection of the URI's scheme. (templated)
    :param commit_owner_conn_id: the connection of the SQL commit owner; None:
        ``delta_commit_owner_default`` if it exists, else the environment variable
        ``AIRFLOW_DELTA_COMMIT_OWNER_URL``. (templated)
        A version that isn't backfilled is backfilled before Spark reads it.
    :param spark_conn_id: the Spark connection; must exist if Spark is needed. (templated)
    :param spark_conf: Spark properties of the job. (templated)
    """

    template_fields: Sequence[str] = (
        *TableTask.template_fields,
        "version",
        "timestamp",
        "columns",
        "predicate",
        "spark_conn_id",
        "spark_conf",
    )
    arguments = with_readers(
        TableTask,
        version=as_pinned_version,
        timestamp=as_timestamp,
        columns=as_names,
        predicate=as_text,
        check_files=switch(default=True),
        spark_conn_id=as_text,
        spark_conf=as_spark_conf,
    )
    exclusive = (("version", "timestamp"),)

    def __init__(
        self,
        *,
        version: int | str | None = None,
        timestamp: int | str | None = None,
        columns: Sequence[str] | str | None = None,
        predicate: str | None = None,
        check_files: bool = True,
        spark_conn_id: str = SPARK_CONNECTION,
        spark_conf: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.version = version
        self.timestamp = timestamp
        self.columns = columns
        self.predicate = predicate
        self.check_files = check_files
        self.spark_conn_id = spark_conn_id
        self.spark_conf = spark_conf
        self.check_arguments()

    @classmethod
    def spark_arguments(cls, given: Mapping[str, Any]) -> Sequence[str]:
        """``columns`` and ``predicate``; the number of all rows is usually in the log."""
        if is_certain(given.get("predicate")):
            return ["predicate"]
        columns = given.get("columns", [])
        is_sure = columns is None or (isinstance(columns, list | tuple) and len(columns) > 0)
        return ["columns other than []"] if is_sure else []

    @with_lineage
    @with_failures_by_policy
    def execute(self, context: Context) -> dict[str, Any]:
        """Profile the version.

        :raises TableFailure: there is no such version or column, there are too many columns, or files
            of the version are gone; see `airflow_delta.hooks.failures`.
        :raises DeltaError: the store failed.
        :raises AirflowException: the job failed.
        """
        hook = self.hook()
        pinned = pinned_version(
            hook,
            context,
            self.table_uri,
            version=self.argument("version"),
            timestamp=self.argument("timestamp"),
            check_files=self.argument("check_files"),
        )
        profile = SnapshotProfile(
            hook,
            table_uri=self.table_uri,
            version=pinned["version"],
            columns=self.argument("columns"),
            predicate=self.argument("predicate"),
        )
        profile.check()
        found = profile.by_statistics() or self._by_spark(profile, context)
        result = {**pinned, **found}
        figures = result["columns"]
        self.log.info(
            "version %s of %s: %s rows, by %s",
            result["version"],
            self.table_uri,
            result["num_rows"],
            result["counted_by"],
        )
        for name, column in figures.items():
            self.log.info("column %r: %s", name, column)
        return result

    def _by_spark(self, profile: SnapshotProfile, context: Context) -> Mapping[str, Any]:
        job = self.begin_job(context)
        return profile.submit(job)
