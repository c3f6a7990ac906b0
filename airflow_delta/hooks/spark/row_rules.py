"""Have Spark check the rows of a table, and add a rule for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from airflow_delta.hooks.delta import DeltaHook

if TYPE_CHECKING:
    from airflow_delta.hooks.spark.job import SparkJobHook

__all__ = ["SparkRowRules"]


class SparkRowRules:
    """New rules for the rows of a table, each by a job, unless an earlier try has committed.

    :param hook: gives access to the tables and their commit owners.
    :param begin_job: makes the hook that submits the job; called only if a job is needed.
    :param txn: application id and version, by which a retry finds the commit of an earlier try.
    """

    def __init__(
        self, hook: DeltaHook, begin_job: Callable[[], SparkJobHook], *, txn: tuple[str, int]
    ) -> None:
        self._hook = hook
        self._begin_job = begin_job
        self._txn = txn

    def add_constraint(self, table_uri: str, *, name: str, expression: str) -> dict[str, Any]:
        """Add a CHECK constraint, if all rows satisfy it.

        :param name: the constraint's name.
        :param expression: its condition.
        :returns: ``table_uri``, ``version`` and ``repeated``.
        :raises DeltaError: rows break the constraint, or it can't be added.
        :raises AirflowException: the job failed.
        """
        return self._add(table_uri, {"name": name, "expression": expression})

    def set_not_null(self, table_uri: str, *, column: str) -> dict[str, Any]:
        """Make a column NOT NULL, if it has no nulls.

        :param column: the column, as SQL names it, such as ``address.city``.
        :returns: ``table_uri``, ``version`` and ``repeated``.
        :raises InvalidArgumentError: the text isn't the name of one column.
        :raises DeltaError: rows have nulls in the column, or it can't be changed.
        :raises AirflowException: the job failed.
        """
        from airflow_delta.engine.errors import InvalidArgumentError, InvalidTableError
        from airflow_delta.engine.model.sql_names import split_names

        try:
            (path,) = split_names(column)
        except (InvalidTableError, ValueError) as error:
            raise InvalidArgumentError(
                f"column={column!r}: expected the name of one column, such as amount, address.city or "
                "`odd name`",
                table=table_uri,
            ) from error
        return self._add(table_uri, {"column": list(path)})

    def _add(self, table_uri: str, rule: dict[str, Any]) -> dict[str, Any]:
        app_id, app_version = self._txn
        earlier = self._hook.table(table_uri).version_of_transaction(app_id, app_version)
        if earlier is not None:
            return {"table_uri": table_uri, "version": earlier, "repeated": True}
        parameters = {
            "table_uri": table_uri,
            **rule,
            "app_id": app_id,
            "app_version": app_version,
            **self._hook.allowed_parameter(table_uri),
        }
        report = self._begin_job().run(
            "row_rule",
            parameters,
            storage_options=self._hook.storage_options(table_uri),
            commit_owner_url=self._hook.owner_url_for_job(table_uri),
        )
        return dict(report)
