"""Pin one version of a Delta table for a DAG run, and copy it where asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow_delta.hooks.snapshot_copy import SnapshotCopy, check_format
from airflow_delta.operators.run_identity import run_identity
from airflow_delta.operators.table_task import TableTask
from airflow_delta.operators.template_values import as_timestamp, as_version
from airflow_delta.version_compat import Context, task_state

__all__ = ["TimeTravelSnapshotOperator"]

_STATE_KEY = "pinned"


class TimeTravelSnapshotOperator(TableTask):
    """Resolve a version of a table and pin it in XCom; with a target, copy it there with PySpark.

    Tasks that read the pinned version all see the same state, however many commits follow::

        pin = TimeTravelSnapshotOperator(task_id="pin", table_uri="s3://lake/sales")
        report = CheckpointOperator(
            task_id="checkpoint",
            table_uri="s3://lake/sales",
            version="{{ ti.xcom_pull(task_ids='pin')['version'] }}",
        )

    Returns a dictionary with ``table_uri``, ``version``, ``timestamp_ms``, ``num_files``,
    ``size_in_bytes`` and ``num_rows``, and with a target also ``target_uri``, ``target_version``
    (the version of a copy in Delta format, else None), ``target_num_files`` and
    ``target_num_rows`` (None where the statistics don't tell).

    A retry, and the task when it is cleared, pins what the first try of the DAG run pinned. A Delta
    copy of that version which an earlier try has committed is found and not made again. A Delta
    copy keeps the columns and partition columns that it began with: when the table gets others,
    choose another target, or empty it; a parquet copy follows any.

    :param table_uri: the table's path or URI. (templated)
    :param version: the version to pin. (templated)
    :param timestamp: pin the newest version at this time: ISO-8601 with an offset, or epoch
        milliseconds. At most one of version and timestamp; with neither it is the newest version.
        (templated)
    :param target_uri: where to copy the pinned version to; None: nothing is copied. (templated)
    :param target_format: the format of the copy: ``delta`` or ``parquet``. (templated)
    :param replace_newer: replace a copy of a later version, too. A late run of a DAG does not undo
        the work of the run after it unless this is set.
    :param delta_conn_id: the connection with the credentials of the tables' store; None: the
        default connection of the URI's scheme. (templated)
    :param commit_owner_conn_id: the connection of the SQL commit owner; None:
        ``delta_commit_owner_default`` where that exists, else what the environment says. (templated)
        A pinned version that isn't backfilled is backfilled before it is copied.
    :param spark_conn_id: the Spark connection that copies; must exist. (templated)
    :param spark_conf: Spark properties of the copying job. (templated)
    """

    template_fields: Sequence[str] = (
        *TableTask.template_fields,
        "version",
        "timestamp",
        "target_uri",
        "target_format",
        "spark_conn_id",
        "spark_conf",
    )

    def __init__(
        self,
        *,
        version: int | str | None = None,
        timestamp: int | str | None = None,
        target_uri: str | None = None,
        target_format: str = "delta",
        replace_newer: bool = False,
        spark_conn_id: str = "spark_default",
        spark_conf: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.version = version
        self.timestamp = timestamp
        self.target_uri = target_uri
        self.target_format = target_format
        self.replace_newer = replace_newer
        self.spark_conn_id = spark_conn_id
        self.spark_conf = spark_conf
        self._job: Any = None

    def execute(self, context: Context) -> dict[str, Any]:
        """Pin the version, and copy it where there is a target.

        :raises ValueError: both a version and a timestamp are given, or the version is no number.
        :raises DeltaError: the table or the version can't be read, or the target of a Delta copy.
        :raises AirflowFailException: the target's format is unknown, or the target must not or can't
            be replaced; see `airflow_delta.spark.copies`.
        :raises AirflowException: the copying job failed.
        """
        if self.target_uri:
            check_format(self.target_format)
        pinned = self._pin(context)
        self.log.info("pinned version %s of %s", pinned["version"], self.table_uri)
        if not self.target_uri:
            return pinned
        copied = self._copy(pinned, context)
        self.log.info("copied version %s: %s", pinned["version"], copied)
        return {**pinned, **copied}

    def on_kill(self) -> None:
        """End the copying job."""
        if self._job is not None:
            self._job.on_kill()

    def _pin(self, context: Context) -> dict[str, Any]:
        version = as_version(self.version, name="version")
        timestamp = as_timestamp(self.timestamp)
        if version is not None and timestamp is not None:
            raise ValueError(
                f"{self.table_uri}: both version={version} and timestamp={timestamp!r} are given; "
                "give one of them, or neither for the newest version"
            )
        hook = self.hook()
        if version is not None:
            return hook.pin(self.table_uri, version=version)
        # "The newest" and a time that has not come yet mean another version at each try.
        asked = {"table_uri": self.table_uri, "timestamp": timestamp}
        state = task_state(context)
        earlier = state.get(_STATE_KEY) if state is not None else None
        if earlier and all(earlier.get(name) == value for name, value in asked.items()):
            return hook.pin(self.table_uri, version=earlier["version"])
        pinned = hook.pin(self.table_uri, timestamp=timestamp)
        if state is not None:
            state.set(_STATE_KEY, {**asked, "version": pinned["version"]})
        return pinned

    def _copy(self, pinned: Mapping[str, Any], context: Context) -> dict[str, Any]:
        # Imported here: DAG files are parsed often, and the Spark provider's hook imports a lot.
        from airflow_delta.hooks.spark_job import SparkJobHook

        identity = run_identity(context)
        copy = SnapshotCopy(
            self.hook(),
            table_uri=self.table_uri,
            version=pinned["version"],
            target_uri=str(self.target_uri),
            target_format=self.target_format,
            identity=identity,
            replace_newer=self.replace_newer,
        )
        earlier = copy.earlier()
        if earlier is not None:
            self.log.info("an earlier try has copied it: %s", earlier)
            return earlier
        self._job = SparkJobHook(self.spark_conn_id, conf=self.spark_conf, name=identity[0])
        return copy.submit(self._job)
