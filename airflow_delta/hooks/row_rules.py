"""Add rules for the rows of a table, which Spark checks first."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from airflow_delta.hooks.delta import DeltaHook
from airflow_delta.hooks.managed_commits import owner_url_for_job

if TYPE_CHECKING:
    from airflow_delta.hooks.spark.job import SparkJobHook

__all__ = ["add_constraint", "set_not_null"]

_JOB = "row_rule"


def add_constraint(
    hook: DeltaHook,
    begin_job: Callable[[], SparkJobHook],
    table_uri: str,
    *,
    name: str,
    expression: str,
    txn: tuple[str, int],
) -> dict[str, Any]:
    """Have Spark check the rows of a table against a CHECK constraint, and add it.

    :param hook: gives access to the table and its commit owner.
    :param begin_job: makes the hook that submits the job. It isn't called if an earlier try has committed.
    :param name: the constraint's name.
    :param expression: its condition.
    :param txn: application id and version, by which a retry finds the commit of an earlier try.
    :returns: ``table_uri``, ``version`` and ``repeated``.
    :raises DeltaError: rows break the constraint, or it can't be added.
    :raises AirflowException: the job failed.
    """
    return _add(hook, begin_job, table_uri, {"name": name, "expression": expression}, txn)


def set_not_null(
    hook: DeltaHook,
    begin_job: Callable[[], SparkJobHook],
    table_uri: str,
    *,
    column: str,
    txn: tuple[str, int],
) -> dict[str, Any]:
    """Have Spark check that a column has no nulls, and make it NOT NULL.

    :param hook: see `add_constraint`.
    :param begin_job: see `add_constraint`.
    :param column: the column, as SQL names it, such as ``address.city``.
    :param txn: see `add_constraint`.
    :returns: see `add_constraint`.
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
    return _add(hook, begin_job, table_uri, {"column": list(path)}, txn)


def _add(
    hook: DeltaHook,
    begin_job: Callable[[], SparkJobHook],
    table_uri: str,
    rule: dict[str, Any],
    txn: tuple[str, int],
) -> dict[str, Any]:
    earlier = hook.table(table_uri).version_of_transaction(*txn)
    if earlier is not None:
        return {"table_uri": table_uri, "version": earlier, "repeated": True}
    app_id, app_version = txn
    parameters = {
        "table_uri": table_uri,
        **rule,
        "app_id": app_id,
        "app_version": app_version,
        **hook.allowed_parameter(table_uri),
    }
    return dict(
        begin_job().run(
            _JOB,
            parameters,
            storage_options=hook.storage_options(table_uri),
            commit_owner_url=owner_url_for_job(hook, table_uri),
        )
    )
