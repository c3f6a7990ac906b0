"""Delete rows of a Delta table, exactly once in a DAG run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow_delta.hooks.failures import with_failures_by_policy
from airflow_delta.hooks.spark.row_changes import SparkRowChanges
from airflow_delta.operators.lineage.rules import deletes_rows
from airflow_delta.operators.lineage.task import with_lineage
from airflow_delta.operators.run_identity import run_identity
from airflow_delta.operators.spark_task import SparkTask
from airflow_delta.operators.table_commits import row_commit, with_table_commit
from airflow_delta.operators.table_task import with_readers
from airflow_delta.operators.template_values import as_required_text, as_text, flag
from airflow_delta.version_compat import Context

__all__ = ["DeleteOperator"]


class DeleteOperator(SparkTask):
    """Delete the rows of a table for which a condition is true, with PySpark, as one commit.

    Files whose rows all match are removed by the log alone. In other files, rows are deleted by deletion
    vectors if ``delta.enableDeletionVectors`` is true; otherwise these files are rewritten.

    The commit contains the transaction identifier of the task in its DAG run. A retry, or the cleared task,
    finds this commit and deletes nothing more, while the log still has the commit.

    Returns a dictionary with ``table_uri``, ``table_id``, ``version`` (of the commit), ``committed``,
    ``repeated`` (whether an earlier try made the commit) and ``metrics``, the operation metrics of the
    commit (None if the commit is no longer in the log). A dry run returns ``table_uri``, ``version`` (the
    newest), ``num_files``, ``size_in_bytes`` and ``max_rows`` (of the files that may have such rows; None
    if statistics are missing), ``num_whole_files`` (those that would be removed as a whole) and
    ``examples`` (some of their paths).

    :param table_uri: the table's path or URI. (templated)
    :param condition: the condition in SQL; ``true`` deletes all rows. (templated)
    :param dry_run: only report which files may have such rows. (templated)
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
        "condition",
        "_dry_run",
        "user_metadata",
    )
    arguments = with_readers(
        SparkTask,
        condition=as_required_text,
        dry_run=flag(default=False),
        user_metadata=as_text,
    )

    datasets = deletes_rows

    def __init__(
        self,
        *,
        condition: str,
        dry_run: bool | str = False,
        user_metadata: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.condition = condition
        # With an underscore, because every operator of Airflow has a method of that name.
        self._dry_run = dry_run
        self.user_metadata = user_metadata
        self.check_arguments()

    @classmethod
    def spark_arguments(cls, given: Mapping[str, Any]) -> Sequence[str]:  # noqa: ARG003
        """``condition``: Spark evaluates it."""
        return ["condition"]

    @with_lineage
    @with_table_commit(row_commit("DELETE"), commits_once=True)
    @with_failures_by_policy
    def execute(self, context: Context) -> dict[str, Any]:
        """Delete the rows.

        :raises TableFailure: the condition is invalid, the table is append-only, or it can't be written.
            See
            `airflow_delta.hooks.failures`.
        :raises DeltaError: the store failed, or another writer was faster.
        :raises AirflowException: the job failed.
        """
        # Made before ``table_uri`` is used, from which `hook` takes the connection.
        changes = SparkRowChanges(
            self.hook(), lambda: self.begin_job(context), txn=run_identity(context)
        )
        condition = self.argument("condition")
        if self.argument("dry_run"):
            plan = changes.plan_deletion(self.table_uri, condition=condition)
            self.log.info("rows of %s that would be deleted: %s", self.table_uri, plan)
            return plan
        result = changes.delete(
            self.table_uri, condition=condition, user_metadata=self.argument("user_metadata")
        )
        self.log.info("rows of %s deleted: %s", self.table_uri, result)
        return result
