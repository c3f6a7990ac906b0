"""Merge the rows of a source into a Delta table, exactly once in a DAG run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow_delta.hooks.failures import with_failures_by_policy
from airflow_delta.hooks.spark.row_changes import SparkRowChanges
from airflow_delta.operators.lineage.rules import merges_rows
from airflow_delta.operators.lineage.task import with_lineage
from airflow_delta.operators.row_source import RowSourceTask
from airflow_delta.operators.run_identity import run_identity
from airflow_delta.operators.table_commits import row_commit, with_table_commit
from airflow_delta.operators.table_task import with_readers
from airflow_delta.operators.template_values import (
    as_clauses,
    as_required_text,
    as_text,
    switch,
)
from airflow_delta.version_compat import Context

__all__ = ["MergeOperator"]

_OPTIONS = ("source_alias", "target_alias", "merge_schema", "user_metadata")


class MergeOperator(RowSourceTask):
    """Update, delete and insert rows of a table by those of a source, with PySpark, as one commit.

    The source is files, a SQL query over pinned versions of tables, or a Python function::

        upsert = MergeOperator(
            task_id="upsert",
            table_uri="s3://lake/orders",
            source_uri="s3://landing/orders/{{ ds }}/",
            source_format="json",
            on="target.id = source.id",
            clauses=[
                {"when": "matched", "then": "delete", "condition": "source.status = 'void'"},
                {"when": "matched", "then": "update"},
                {"when": "not_matched", "then": "insert"},
            ],
        )

    A clause is a dictionary with ``when`` (``matched``, ``not_matched`` for rows of the source, or
    ``not_matched_by_source`` for rows of the table), ``then`` (``update``, ``delete`` or ``insert``), and
    perhaps ``condition`` (SQL) and ``values``: new values by column, each SQL, a number, a boolean or None.
    Without ``values`` each column gets the value of the source's column of its name. Of the clauses for a
    row the first one whose condition is true applies. See `airflow_delta.spark.merge`.

    A row of the table that matches several rows of the source fails the task without retries. The commit
    contains the transaction identifier of the task in its DAG run. A retry, or the cleared task, finds this
    commit and merges nothing more, while the log still has the commit.

    Returns a dictionary with ``table_uri``, ``table_id``, ``version`` (of the commit), ``committed``,
    ``repeated`` (whether an earlier try made the commit) and ``metrics``, the operation metrics of the
    commit (None if the commit is no longer in the log).

    :param table_uri: the table's path or URI; it must exist. (templated)
    :param on: the condition in SQL for a row of the table and one of the source to match. (templated)
    :param clauses: the clauses, in their order. (templated)
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
    :param source_alias: the name of the source in conditions and values; default ``source``. (templated)
    :param target_alias: the name of the table there; default ``target``. (templated)
    :param merge_schema: add columns of the source that the table lacks, if a clause takes them.
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
        "on",
        "clauses",
        "source_alias",
        "target_alias",
        "user_metadata",
    )
    template_fields_renderers = {  # noqa: RUF012 - as Airflow declares it
        **RowSourceTask.template_fields_renderers,
        "on": "sql",
    }
    arguments = with_readers(
        RowSourceTask,
        on=as_required_text,
        clauses=as_clauses,
        source_alias=as_text,
        target_alias=as_text,
        merge_schema=switch(default=False),
        user_metadata=as_text,
    )

    datasets = merges_rows

    def __init__(
        self,
        *,
        on: str,
        clauses: Sequence[Mapping[str, Any]],
        source_alias: str | None = None,
        target_alias: str | None = None,
        merge_schema: bool = False,
        user_metadata: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.on = on
        self.clauses = clauses
        self.source_alias = source_alias
        self.target_alias = target_alias
        self.merge_schema = merge_schema
        self.user_metadata = user_metadata
        self.check_arguments()

    @with_lineage
    @with_table_commit(row_commit("MERGE"), commits_once=True)
    @with_failures_by_policy
    def execute(self, context: Context) -> dict[str, Any]:
        """Merge the rows.

        :raises TableFailure: a row of the table matches several rows of the source; a condition, a value,
            the query or the function is invalid; a value breaks a rule of the table; or the table can't be
            written. See `airflow_delta.hooks.failures`.
        :raises DeltaError: the store failed, or another writer was faster.
        :raises AirflowException: the job failed.
        """
        # Made before ``table_uri`` is used, from which `hook` takes the connection.
        hook = self.hook()
        changes = SparkRowChanges(hook, lambda: self.begin_job(context), txn=run_identity(context))
        self.pin_sources(hook, context)
        result = changes.merge(
            self.table_uri,
            self.source(),
            on=self.argument("on"),
            clauses=self.argument("clauses"),
            options={name: self.argument(name) for name in _OPTIONS},
        )
        self.log.info("rows merged into %s: %s", self.table_uri, result)
        return result
