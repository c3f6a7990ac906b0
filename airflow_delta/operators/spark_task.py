"""`SparkTask`, the base class of the operators whose work is always done by Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow_delta.operators.job_task import SPARK_CONNECTION, JobTask
from airflow_delta.operators.table_task import TableTask, with_readers
from airflow_delta.operators.template_values import as_spark_conf, as_text

__all__ = ["SparkTask"]


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
