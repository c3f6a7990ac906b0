"""Update rows of a Delta table, exactly once in a DAG run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow_delta.hooks.failures import with_failures_by_policy
from airflow_delta.hooks.spark.row_changes import SparkRowChanges
from airflow_delta.operators.lineage.rules import updates_rows
from airflow_delta.operators.lineage.task import with_lineage
from airflow_delta.operators.run_identity import run_identity
from airflow_delta.operators.spark_task import SparkTask
from airflow_delta.operators.table_commits import row_commit, with_table_commit
from airflow_delta.operators.table_task import with_readers
from airflow_delta.operators.template_values import as_new_values, as_required_text, as_text
from airflow_delta.version_compat import Context

__all__ = ["UpdateOperator"]


class UpdateOperator(SparkTask):
    """Give the rows for which a condition is true new values, with PySpark, as one commit.

    For example::

        late = UpdateOperator(
            task_id="late",
            table_uri="s3://lake/orders",
            set={"status": "'late'", "reminders": "reminders + 1"},
            condition="status = 'open' AND due < DATE '{{ ds }}'",
        )

    See `airflow_delta.spark.update` for the rules of the new values.

    The commit contains the transaction identifier of the task in its DAG run. A retry, or the cleared task,
    finds this commit and updates nothing more, while the log still has the commit.

    Returns a dictionary with ``table_uri``, ``table_id``, ``version`` (of the commit), ``committed``,
    ``repeated`` (whether an earlier try made the commit) and ``metrics``, the operation metrics of the
    commit (None if the commit is no longer in the log).

    :param table_uri: the table's path or URI. (templated)
    :param set: the new values by column, each SQL over the old values as a text, a number, a boolean or
        None; ``DEFAULT`` is the column's default. A field of a struct is ``"address.city"``. (templated)
    :param condition: the condition in SQL; ``true`` updates all rows. (templated)
    :param user_metadata: a text for the commit. (templated)
    :param spark_conn_id: the Spark connection; must exist. (templated)
    :param spark_conf: Spark properties of the job. (templated)
    :param delta_conn_id: the connection with the credentials of the table's store; None: the
        default connection of the URI's scheme. (templated)
    :param commit_owner_conn_id: the connection of the SQL commit owner, for managed tables; None:
        ``delta_commit_owner_default`` if it exists, else the environment variable
        ``AIRFLOW_DELTA_COMMIT_OWNER_URL``. (templated)
    """

    template_fields: Sequence[str] = (
        *SparkTask.template_fields,
        "set",
        "condition",
        "user_metadata",
    )
    arguments = with_readers(
        SparkTask, set=as_new_values, condition=as_required_text, user_metadata=as_text
    )

    datasets = updates_rows

    def __init__(
        self,
        *,
        set: Mapping[str, Any],  # noqa: A002 - the name that SQL and users of Delta have for it
        condition: str,
        user_metadata: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.set = set
        self.condition = condition
        self.user_metadata = user_metadata
        self.check_arguments()

    @classmethod
    def spark_arguments(cls, given: Mapping[str, Any]) -> Sequence[str]:  # noqa: ARG003
        """``set``: Spark evaluates it."""
        return ["set"]

    @with_lineage
    @with_table_commit(row_commit("UPDATE"), commits_once=True)
    @with_failures_by_policy
    def execute(self, context: Context) -> dict[str, Any]:
        """Update the rows.

        :raises TableFailure: the condition or a new value is invalid, a value breaks a rule of the table,
            the table is append-only, or it can't be written. See `airflow_delta.hooks.failures`.
        :raises DeltaError: the store failed, or another writer was faster.
        :raises AirflowException: the job failed.
        """
        # Made before ``table_uri`` is used, from which `hook` takes the connection.
        changes = SparkRowChanges(
            self.hook(), lambda: self.begin_job(context), txn=run_identity(context)
        )
        result = changes.update(
            self.table_uri,
            new_values=self.argument("set"),
            condition=self.argument("condition"),
            user_metadata=self.argument("user_metadata"),
        )
        self.log.info("rows of %s updated: %s", self.table_uri, result)
        return result
