"""Write the rows of a source to a Delta table, exactly once in a DAG run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow_delta.hooks.failures import with_failures_by_policy
from airflow_delta.hooks.spark.row_changes import SparkRowChanges
from airflow_delta.operators.lineage.rules import writes_rows
from airflow_delta.operators.lineage.task import with_lineage
from airflow_delta.operators.row_source import RowSourceTask
from airflow_delta.operators.run_identity import run_identity
from airflow_delta.operators.table_commits import row_commit, with_table_commit
from airflow_delta.operators.table_task import with_readers
from airflow_delta.operators.template_values import (
    as_bytes,
    as_names,
    as_text,
    as_texts,
    choice,
    switch,
)
from airflow_delta.version_compat import Context

__all__ = ["WriteOperator"]

_OPTIONS = (
    "partition_by",
    "cluster_by",
    "properties",
    "replace_where",
    "partition_overwrite",
    "merge_schema",
    "overwrite_schema",
    "optimize_write",
    "target_file_size",
    "user_metadata",
)


def _as_choice_of_user(value: bool | None, *, name: str) -> bool | None:
    """True, False, or None: not decided here."""
    return None if value is None else switch(default=False)(value, name=name)


class WriteOperator(RowSourceTask):
    """Write the rows of a source to a table with PySpark, as one commit.

    The source is files, a SQL query over pinned versions of tables, or a Python function::

        write = WriteOperator(
            task_id="write",
            table_uri="s3://lake/orders",
            source_uri="s3://landing/orders/{{ ds }}/",
            source_format="json",
            mode="overwrite",
            replace_where="day = '{{ ds }}'",
        )

    See `airflow_delta.spark.write` for the arguments of the write.

    The commit contains the transaction identifier of the task in its DAG run. A retry, or the cleared task,
    finds this commit and writes nothing, while the log still has the commit; also if it was made by the
    driver of a killed task.

    Returns a dictionary with ``table_uri``, ``table_id`` (None without a commit), ``version`` (of the
    commit; without one, the newest), ``committed`` (False only if the mode is ``ignore`` and the table
    exists), ``repeated`` (whether an earlier try made the commit), ``metrics``, the operation metrics of
    the commit (None if the commit is no longer in the log), and ``compaction``: if small files were
    compacted after the write, a dictionary with ``version``, ``num_removed_files``, ``num_added_files`` and
    ``error``; else None.

    :param table_uri: the table's path or URI; it is created if it doesn't exist. (templated)
    :param source_uri: the path or URI of files, may have wildcards. (templated)
    :param source_format: their format, one that Spark reads, such as ``json``; default ``parquet``.
        (templated)
    :param source_schema: their columns, as in ``CREATE TABLE``; None: Spark finds out. (templated)
    :param source_options: options of Spark's reader. (templated)
    :param source_query: a SQL query, or the path of a file ``….sql`` with one. (templated)
    :param source_function: a Python function as ``module:name``, which gets the Spark session, and returns
        a DataFrame. (templated)
    :param source_arguments: its other arguments by name, as JSON values. (templated)
    :param source_tables: the tables for query or function: for each name, the URI and the version of a
        table, or a dictionary with ``table_uri`` and ``version`` such as the result of
        `TimeTravelSnapshotOperator`. The version may be ``triggering_event``: that of the asset event that
        has started the DAG run, or the newest if none has. They are temporary views of these names.
        (templated)
    :param mode: ``append``, ``overwrite``, ``error`` or ``ignore``. (templated)
    :param partition_by: the partition columns of a new table. (templated)
    :param cluster_by: the clustering columns of a new table. (templated)
    :param properties: the properties of a new table. (templated)
    :param replace_where: with ``overwrite``, the condition of the rows to replace. (templated)
    :param partition_overwrite: with ``overwrite``: ``static``, or ``dynamic`` to replace only the
        partitions of the new rows. (templated)
    :param merge_schema: add columns of the rows that the table lacks.
    :param overwrite_schema: with ``overwrite``, replace the columns of the table by those of the rows.
    :param optimize_write: shuffle the rows by partition first; None: as the property
        ``delta.autoOptimize.optimizeWrite`` says; without it, if the table is partitioned or
        ``target_file_size`` is given.
    :param target_file_size: the size in bytes of the files of such a shuffle. (templated)
    :param user_metadata: a text for the commit. (templated)
    :param spark_conn_id: the Spark connection; must exist. (templated)
    :param spark_conf: Spark properties of the job. (templated)
    :param delta_conn_id: the connection with the credentials of the store of table and source; None: the
        default connection of the URI's scheme. (templated)
    :param commit_owner_conn_id: the connection of the SQL commit owner, for managed tables; None:
        ``delta_commit_owner_default`` if it exists, else the environment variable
        ``AIRFLOW_DELTA_COMMIT_OWNER_URL``. (templated)
    """

    template_fields: Sequence[str] = (
        *RowSourceTask.template_fields,
        "mode",
        "partition_by",
        "cluster_by",
        "properties",
        "replace_where",
        "partition_overwrite",
        "target_file_size",
        "user_metadata",
    )
    arguments = with_readers(
        RowSourceTask,
        mode=choice("append", "overwrite", "error", "ignore", default="append"),
        partition_by=as_names,
        cluster_by=as_names,
        properties=as_texts,
        replace_where=as_text,
        partition_overwrite=choice("static", "dynamic", default="static"),
        merge_schema=switch(default=False),
        overwrite_schema=switch(default=False),
        optimize_write=_as_choice_of_user,
        target_file_size=as_bytes,
        user_metadata=as_text,
    )

    datasets = writes_rows

    def __init__(
        self,
        *,
        mode: str = "append",
        partition_by: Sequence[str] | str | None = None,
        cluster_by: Sequence[str] | str | None = None,
        properties: Mapping[str, Any] | None = None,
        replace_where: str | None = None,
        partition_overwrite: str = "static",
        merge_schema: bool = False,
        overwrite_schema: bool = False,
        optimize_write: bool | None = None,
        target_file_size: int | str | None = None,
        user_metadata: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.mode = mode
        self.partition_by = partition_by
        self.cluster_by = cluster_by
        self.properties = properties
        self.replace_where = replace_where
        self.partition_overwrite = partition_overwrite
        self.merge_schema = merge_schema
        self.overwrite_schema = overwrite_schema
        self.optimize_write = optimize_write
        self.target_file_size = target_file_size
        self.user_metadata = user_metadata
        self.check_arguments()

    @with_lineage
    @with_table_commit(row_commit("WRITE"))
    @with_failures_by_policy
    def execute(self, context: Context) -> dict[str, Any]:
        """Write the rows.

        :raises TableFailure: the rows don't fit the table or break one of its rules; an argument, the query
            or the function is invalid; or the table can't be written. See `airflow_delta.hooks.failures`.
        :raises DeltaError: the store failed, or another writer was faster.
        :raises AirflowException: the job failed.
        """
        # Made before ``table_uri`` is used, from which `hook` takes the connection.
        hook = self.hook()
        changes = SparkRowChanges(hook, lambda: self.begin_job(context), txn=run_identity(context))
        self.pin_sources(hook, context)
        options = {name: self.argument(name) for name in _OPTIONS}
        result = changes.write(
            self.table_uri, self.source(), mode=self.argument("mode"), options=options
        )
        self.log.info("rows written to %s: %s", self.table_uri, result)
        return result
