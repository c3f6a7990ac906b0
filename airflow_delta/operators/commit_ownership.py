"""Hand the commits of a Delta table over to a commit owner, and take them back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow_delta.hooks.failures import with_failures_by_policy
from airflow_delta.hooks.managed_commits import convert_to_file_system, convert_to_managed
from airflow_delta.operators.table_task import TableTask, with_readers
from airflow_delta.operators.template_values import as_conf, as_text, switch
from airflow_delta.version_compat import Context

__all__ = ["ConvertToFileSystemOperator", "ConvertToManagedCommitOperator"]

_SQL = "sql"


class ConvertToManagedCommitOperator(TableTask):
    """Let a commit owner ratify the commits of a table from now on.

    Returns a dictionary with ``table_uri``, ``version`` (of the commit that hands the table over, or of
    the table where nothing was to be done), ``owner`` and ``converted``. A retry is harmless: a table
    that has the owner already stays as it is, and ``converted`` is false. Without ``conf`` that holds as
    well while the owner can't be reached.

    :param table_uri: the table's path or URI. (templated)
    :param commit_owner: the name of the commit owner: ``sql``, or one that an installed package has.
        (``owner`` is what Airflow calls who is responsible for a task.) (templated)
    :param conf: what the owner is to know of the table, such as ``{"backfill": "10"}``; None: what it
        has, and the owner's defaults for a table that is handed over now. A key whose value is None
        counts as left out. Everybody who may read the table may read it, so it must hold no secrets.
        (templated)
    :param delta_conn_id: the connection with the credentials of the table's store; None: the
        default connection of the URI's scheme. (templated)
    :param commit_owner_conn_id: the connection of the SQL commit owner; None:
        ``delta_commit_owner_default`` where that exists, else what the environment says. (templated)
    """

    template_fields: Sequence[str] = (*TableTask.template_fields, "commit_owner", "conf")
    arguments = with_readers(
        TableTask,
        commit_owner=as_text,
        conf=as_conf,
    )

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

    @with_failures_by_policy
    def execute(self, context: Context) -> dict[str, Any]:  # noqa: ARG002  (Airflow's signature)
        """Hand the table over.

        :raises TableFailure: the owner doesn't understand ``conf``; or the table has another owner, or this
            one with another ``conf``; or it can't be read. See `airflow_delta.hooks.failures`.
        :raises DeltaError: the owner can't be asked, or the store failed.
        """
        result = convert_to_managed(
            self.hook(),
            self.table_uri,
            owner=self.argument("commit_owner") or _SQL,
            conf=self.argument("conf"),
        )
        self.log.info("%s: %s", self.table_uri, result)
        return result


class ConvertToFileSystemOperator(TableTask):
    """Let the file system order the commits of a managed table again.

    All commits are backfilled before. Then every writer may commit who knows the features that the table
    has left. One of them is ``inCommitTimestamp``, which came with the owner at the latest, and which not
    all engines know: deltalake 1.6.6 writes to no table that has it, Delta Spark does.

    Returns a dictionary with ``table_uri``, ``version`` (of the
    commit that gives the table back, or of the table where nothing was to be done), ``owner`` (None)
    and ``converted``. A retry is harmless: a table without an owner stays as it is, and ``converted``
    is false.

    :param table_uri: the table's path or URI. (templated)
    :param keep_in_commit_timestamps: leave in-commit timestamps on. Without them the same commit removes
        the feature and its properties, and the time of every version is the modification time of its
        file again: of a managed commit, when it was backfilled. Of a table that is given back already
        nothing is removed.
    :param delta_conn_id: the connection with the credentials of the table's store; None: the
        default connection of the URI's scheme. (templated)
    :param commit_owner_conn_id: the connection of the SQL commit owner; None:
        ``delta_commit_owner_default`` where that exists, else what the environment says. (templated)
    """

    arguments = with_readers(
        TableTask,
        keep_in_commit_timestamps=switch(default=True),
    )

    def __init__(self, *, keep_in_commit_timestamps: bool = True, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.keep_in_commit_timestamps = keep_in_commit_timestamps
        self.check_arguments()

    @with_failures_by_policy
    def execute(self, context: Context) -> dict[str, Any]:  # noqa: ARG002  (Airflow's signature)
        """Take the table back.

        :raises TableFailure: the table can't be read; see `airflow_delta.hooks.failures`.
        :raises DeltaError: its owner can't be asked or doesn't give it back, or the store failed.
        """
        result = convert_to_file_system(
            self.hook(),
            self.table_uri,
            keep_in_commit_timestamps=self.argument("keep_in_commit_timestamps"),
        )
        self.log.info("%s: %s", self.table_uri, result)
        return result
