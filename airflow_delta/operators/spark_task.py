"""The base classes of operators with Spark jobs: `JobTask` may submit one, `SparkTask` always does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow_delta.operators.run_identity import run_identity
from airflow_delta.operators.table_task import TableTask, with_readers
from airflow_delta.operators.template_values import as_spark_conf, as_text
from airflow_delta.version_compat import AirflowException, Context

if TYPE_CHECKING:
    from airflow_delta.hooks.spark.job import SparkJobHook

__all__ = ["SPARK_CONNECTION", "JobTask", "SparkTask"]

SPARK_CONNECTION = "spark_default"
"""The id of the Spark connection, unless a task names another one."""


class JobTask(TableTask):
    """A task on one table that may submit a Spark job, which ends with the task.

    It has the arguments ``spark_conn_id`` and ``spark_conf``.
    """

    _job: SparkJobHook | None = None
    _is_killed = False

    def on_kill(self) -> None:
        """Kill the Spark job; one that wasn't submitted yet never will be.

        Airflow calls it in a handler of a signal. The task goes on afterwards.
        """
        self._is_killed = True
        if self._job is not None:
            self._job.on_kill()

    def begin_job(self, context: Context) -> Any:
        """Create the hook that submits the job.

        :raises AirflowException: the task was killed.
        """
        # Imported here, because DAG files are parsed often and the Spark provider imports a lot.
        from airflow_delta.hooks.spark.job import SparkJobHook

        name, _ = run_identity(context)
        connection = self.argument("spark_conn_id") or SPARK_CONNECTION
        self._job = SparkJobHook(connection, conf=self.argument("spark_conf"), name=name)
        # After the hook was stored: from then on it learns of a kill itself.
        if self._is_killed:
            raise AirflowException("the task was killed before its Spark job was submitted")
        return self._job


class SparkTask(JobTask):
    """A task on one table that submits a Spark job.

    :param spark_conn_id: the Spark connection; must exist. (templated)
    :param spark_conf: Spark properties of the job. (templated)
    """

    template_fields: Sequence[str] = (*TableTask.template_fields, "spark_conn_id", "spark_conf")
    arguments = with_readers(TableTask, spark_conn_id=as_text, spark_conf=as_spark_conf)

    def __init__(
        self,
        *,
        spark_conn_id: str = SPARK_CONNECTION,
        spark_conf: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.spark_conn_id = spark_conn_id
        self.spark_conf = spark_conf
