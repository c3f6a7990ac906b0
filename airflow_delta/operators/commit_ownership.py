"""Convert Delta tables to managed tables, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow_delta.hooks.failures import with_failures_by_policy
from airflow_delta.hooks.reports import log_report
from airflow_delta.operators.lineage.rules import alters_table_if
from airflow_delta.operators.lineage.task import with_lineage
from airflow_delta.operators.table_commits import maintenance_commit, with_table_commit
from airflow_delta.operators.table_task import TableTask, with_readers
from airflow_delta.operators.template_values import as_conf, as_text, switch
from airflow_delta.version_compat import Context

__all__ = ["ConvertToFileSystemOperator", "ConvertToManagedCommitOperator"]

_SQL = "sql"
_TO_MANAGED = maintenance_commit("SET TBLPROPERTIES", committed=lambda result: result["converted"])
_TO_FILE_SYSTEM = maintenance_commit("DROP FEATURE", committed=lambda result: result["converted"])


class ConvertToManagedCommitOperator(TableTask):
    """Convert a table to a managed table, whose commits a commit owner ratifies.

    Returns a dictionary with ``table_uri``, ``version`` (of the converting commit, or the newest if
    there was nothing to do), ``owner`` and ``converted``. A retry is harmless: a table that has the
    owner already isn't changed, and ``converted`` is false. Without ``conf`` this works even if the
    owner can't be reached.

    :param table_uri: the table's path or URI. (templated)
    :param commit_owner: the name of the commit owner: ``sql``, or one of an installed package.
        (Not ``owner``, which is Airflow's name for the person responsible for a task.) (templated)
    :param conf: the owner's configuration for the table, such as ``{"backfill": "10"}``; None: that of the
        table, or the owner's defaults for a new conversion. A key with the value None is ignored.
        Everybody who may read the table may read it, so it must not contain secrets. (templated)
    :param delta_conn_id: the connection with the credentials of the table's store; None: the
        default connection of the URI's scheme. (templated)
    :param commit_owner_conn_id: the connection of the SQL commit owner; None:
        ``delta_commit_owner_default`` if it exists, else the environment variable
        ``AIRFLOW_DELTA_COMMIT_OWNER_URL``. (templated)
    """

    template_fields: Sequence[str] = (*TableTask.template_fields, "commit_owner", "conf")
    arguments = with_readers(
        TableTask,
        commit_owner=as_text,
        conf=as_conf,
    )

    datasets = alters_table_if("converted")

    def __init__(
        self,
        *,
        commit_owner: str = _SQL,
        conf: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.commit_owner = commit_owner
        self.conf = conf
        self.check_arguments()

    @with_lineage
    @with_table_commit(_TO_MANAGED)
    @with_failures_by_policy
    def execute(self, context: Context) -> dict[str, Any]:  # noqa: ARG002  (Airflow's signature)
        """Convert the table.

        :raises TableFailure: the owner rejects ``conf``; or the table has another owner, or this one with
            another ``conf``; or it can't be read. See `airflow_delta.hooks.failures`.
        :raises DeltaError: the owner can't be reached, or the store failed.
        """
        result = self.hook().convert_to_managed(
            self.table_uri,
            owner=self.argument("commit_owner") or _SQL,
            conf=self.argument("conf"),
        )
        log_report(self.log, "conversion", result)
        return result


class ConvertToFileSystemOperator(TableTask):
    """Convert a managed table back to one without a commit owner.

    First all commits are backfilled. After that, every writer that supports the table's features
    may commit. One of the features is ``inCommitTimestamp``, which managed tables have, and which
    not all engines support: Delta Spark does, deltalake 1.6.6 doesn't write to such tables.

    Returns a dictionary with ``table_uri``, ``version`` (of the converting commit, or the newest if
    there was nothing to do), ``owner`` (None) and ``converted``. A retry is harmless: a table
    without an owner isn't changed, and ``converted`` is false.

    :param table_uri: the table's path or URI. (templated)
    :param keep_in_commit_timestamps: keep in-commit timestamps enabled. With False the same commit removes
        the feature and its properties. Then the timestamp of a version is the modification time of its file
        again, which for a managed commit is the time of its backfill. A table that is converted back
        already isn't changed.
    :param delta_conn_id: the connection with the credentials of the table's store; None: the
        default connection of the URI's scheme. (templated)
    :param commit_owner_conn_id: the connection of the SQL commit owner; None:
        ``delta_commit_owner_default`` if it exists, else the environment variable
        ``AIRFLOW_DELTA_COMMIT_OWNER_URL``. (templated)
    """

    arguments = with_readers(
        TableTask,
        keep_in_commit_timestamps=switch(default=True),
    )

    datasets = alters_table_if("converted")

    def __init__(self, *, keep_in_commit_timestamps: bool = True, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.keep_in_commit_timestamps = keep_in_commit_timestamps
        self.check_arguments()

    @with_lineage
    @with_table_commit(_TO_FILE_SYSTEM)
    @with_failures_by_policy
    def execute(self, context: Context) -> dict[str, Any]:  # noqa: ARG002  (Airflow's signature)
        """Convert the table back.

        :raises TableFailure: the table can't be read; see `airflow_delta.hooks.failures`.
        :raises DeltaError: its owner can't be reached or doesn't release it, or the store failed.
        """
        result = self.hook().convert_to_file_system(
            self.table_uri,
            keep_in_commit_timestamps=self.argument("keep_in_commit_timestamps"),
        )
        log_report(self.log, "conversion", result)
        return result
