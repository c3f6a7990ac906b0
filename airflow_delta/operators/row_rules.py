"""Add rules for the rows of a Delta table that has data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from airflow_delta.hooks.failures import with_failures_by_policy
from airflow_delta.hooks.reports import log_report
from airflow_delta.hooks.spark.row_rules import SparkRowRules
from airflow_delta.operators.lineage.rules import alters_table
from airflow_delta.operators.lineage.task import with_lineage
from airflow_delta.operators.run_identity import run_identity
from airflow_delta.operators.spark_task import SparkTask
from airflow_delta.operators.table_commits import maintenance_commit, with_table_commit
from airflow_delta.operators.table_task import with_readers
from airflow_delta.operators.template_values import as_required_text
from airflow_delta.version_compat import Context

__all__ = ["AddConstraintOperator", "SetNotNullOperator"]


def _always(result: Mapping[str, Any]) -> bool:  # noqa: ARG001  (the signature of a decision)
    """Whether there is a commit; these operators make one, or fail."""
    return True


class _RowRuleTask(SparkTask):
    """A task that has Spark check the rows of a table, and then adds a rule for them."""

    spark_argument: ClassVar[str]
    datasets = alters_table

    @classmethod
    def spark_arguments(cls, given: Mapping[str, Any]) -> Sequence[str]:  # noqa: ARG003
        """What the rule is about: Spark evaluates it for each row."""
        return [cls.spark_argument]

    def _rules(self, context: Context) -> SparkRowRules:
        # Made before ``table_uri`` is used, from which `hook` takes the connection.
        return SparkRowRules(
            self.hook(), lambda: self.begin_job(context), txn=run_identity(context)
        )


class AddConstraintOperator(_RowRuleTask):
    """Add a CHECK constraint to a table, if all of its rows satisfy it.

    A Spark job counts the rows of the newest version for which the condition is false or null. If there
    are any, the task fails without retries, and its error has their number and one of them. Otherwise the
    constraint is committed. If another writer adds or removes files in the meantime, that is a conflict,
    and the next try checks again.

    The commit contains the transaction identifier of the task in its DAG run. A retry, or the cleared task,
    finds this commit and makes no other, while the log still has the commit; ``repeated`` is true then.

    Returns a dictionary with ``table_uri``, ``version`` (of the commit) and ``repeated``.

    :param table_uri: the table's path or URI. (templated)
    :param name: the constraint's name; the same in any case, and stored in lower case. (templated)
    :param expression: its condition, a boolean SQL expression over the columns of one row. (templated)
    :param spark_conn_id: the Spark connection; must exist. (templated)
    :param spark_conf: Spark properties of the job. (templated)
    :param delta_conn_id: the connection with the credentials of the table's store; None: the
        default connection of the URI's scheme. (templated)
    :param commit_owner_conn_id: the connection of the SQL commit owner, for managed tables; None:
        ``delta_commit_owner_default`` if it exists, else the environment variable
        ``AIRFLOW_DELTA_COMMIT_OWNER_URL``. (templated)
    """

    template_fields: Sequence[str] = (*_RowRuleTask.template_fields, "name", "expression")
    arguments = with_readers(_RowRuleTask, name=as_required_text, expression=as_required_text)
    spark_argument = "expression"

    def __init__(self, *, name: str, expression: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.name = name
        self.expression = expression
        self.check_arguments()

    @with_lineage
    @with_table_commit(maintenance_commit("ADD CONSTRAINT", committed=_always), commits_once=True)
    @with_failures_by_policy
    def execute(self, context: Context) -> dict[str, Any]:
        """Check the rows, and add the constraint.

        :raises TableFailure: rows break the constraint; there is one of that name; or the condition is
            invalid. See `airflow_delta.hooks.failures`.
        :raises DeltaError: the store failed, or another writer was faster.
        :raises AirflowException: the job failed.
        """
        rules = self._rules(context)
        result = rules.add_constraint(
            self.table_uri, name=self.argument("name"), expression=self.argument("expression")
        )
        log_report(self.log, f"constraint {self.name}", result)
        return result


class SetNotNullOperator(_RowRuleTask):
    """Let a column of a table hold no null, if it has none.

    Like `AddConstraintOperator`, for NOT NULL. The field of a struct is null in a row whose struct is.

    Returns a dictionary with ``table_uri``, ``version`` (of the commit) and ``repeated``.

    :param table_uri: the table's path or URI. (templated)
    :param column: the column; the field of a struct as ``address.city``, and odd names in backticks.
        (templated)
    :param spark_conn_id: the Spark connection; must exist. (templated)
    :param spark_conf: Spark properties of the job. (templated)
    :param delta_conn_id: the connection with the credentials of the table's store; None: the
        default connection of the URI's scheme. (templated)
    :param commit_owner_conn_id: the connection of the SQL commit owner, for managed tables; None:
        ``delta_commit_owner_default`` if it exists, else the environment variable
        ``AIRFLOW_DELTA_COMMIT_OWNER_URL``. (templated)
    """

    template_fields: Sequence[str] = (*_RowRuleTask.template_fields, "column")
    arguments = with_readers(_RowRuleTask, column=as_required_text)
    spark_argument = "column"

    def __init__(self, *, column: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.column = column
        self.check_arguments()

    @with_lineage
    @with_table_commit(maintenance_commit("CHANGE COLUMN", committed=_always), commits_once=True)
    @with_failures_by_policy
    def execute(self, context: Context) -> dict[str, Any]:
        """Check the rows, and change the column.

        :raises TableFailure: rows have nulls in the column; there is no such column, or it lies inside an
            array or a map. See `airflow_delta.hooks.failures`.
        :raises DeltaError: the store failed, or another writer was faster.
        :raises AirflowException: the job failed.
        """
        rules = self._rules(context)
        result = rules.set_not_null(self.table_uri, column=self.argument("column"))
        log_report(self.log, f"NOT NULL for {self.column}", result)
        return result
