"""`SparkTask`, the base class of the operators whose work is always done by Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow_delta.operators.run_identity import run_identity
from airflow_delta.operators.table_task import TableTask, with_readers
from airflow_delta.operators.template_values import as_spark_conf, as_text
from airflow_delta.version_compat import Context

__all__ = ["SparkTask"]

_SPARK = "spark_default"


class SparkTask(TableTask):
    """A task on one table that submits a Spark job.

    :param spark_conn_id: the Spark connection; must exist. (templated)
    :param spark_conf: Spark properties of the job. (templated)
    """

    template_fields: Sequence[str] = (*TableTask.template_fields, "spark_conn_id", "spark_conf")
    arguments = with_readers(TableTask, spark_conn_id=as_text, spark_conf=as_spark_conf)

    def __init__(
        self,
        *,
        spark_conn_id: str = _SPARK,
        spark_conf: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.spark_conn_id = spark_conn_id
        self.spark_conf = spark_conf
        self._job: Any = None

    def on_kill(self) -> None:
        """Cancel the Spark job."""
        if self._job is not None:
            self._job.on_kill()

    def begin_job(self, context: Context) -> Any:
        """Create the hook that submits the job."""
        # Imported here, because DAG files are parsed often and the Spark provider imports a lot.
        from airflow_delta.hooks.spark.job import SparkJobHook

        name, _ = run_identity(context)
        connection = self.argument("spark_conn_id") or _SPARK
        self._job = SparkJobHook(connection, conf=self.argument("spark_conf"), name=name)
        return self._job
