"""Hand the commits of a Delta table over to a commit owner, and take them back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow_delta.hooks.managed_commits import convert_to_file_system, convert_to_managed
from airflow_delta.operators.table_task import TableTask
from airflow_delta.version_compat import Context

__all__ = ["ConvertToFileSystemOperator", "ConvertToManagedCommitOperator"]


class ConvertToManagedCommitOperator(TableTask):
    """Let a commit owner ratify the commits of a table from now on.

    Returns a dictionary with ``table_uri``, ``version`` (of the commit that hands the table over, or of
    the table where nothing was to be done), ``owner`` and ``converted``. A retry is harmless: a table
    that has the owner already stays as it is, and ``converted`` is false.

    :param table_uri: the table's path or URI. (templated)
    :param commit_owner: the name of the commit owner: ``sql``, or one that an installed package has.
        (``owner`` is what Airflow calls who is responsible for a task.) (templated)
    :param conf: what the owner is to know of the table, such as ``{"backfill": "10"}``. Everybody may
        read it who may read the table, so it must hold no secrets. (templated)
    :param delta_conn_id: the connection with the credentials of the table's store; None: the
        default connection of the URI's scheme. (templated)
    :param commit_owner_conn_id: the connection of the SQL commit owner; None:
        ``delta_commit_owner_default`` where that exists, else what the environment says. (templated)
    """

    template_fields: Sequence[str] = (*TableTask.template_fields, "commit_owner", "conf")

    def __init__(
        self,
        *,
        commit_owner: str = "sql",
        conf: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.commit_owner = commit_owner
        self.conf = conf

    def execute(self, context: Context) -> dict[str, Any]:  # noqa: ARG002  (Airflow's signature)
        """Hand the table over.

        :raises DeltaError: the table can't be read, has another owner, or can't be handed over.
        """
        result = convert_to_managed(
            self.hook(), self.table_uri, owner=self.commit_owner, conf=self.conf
        )
        self.log.info("%s: %s", self.table_uri, result)
        return result


class ConvertToFileSystemOperator(TableTask):
    """Let the file system order the commits of a managed table again, and all writers make them.

    All commits are backfilled before. Returns a dictionary with ``table_uri``, ``version`` (of the
    commit that gives the table back, or of the table where nothing was to be done), ``owner`` (None)
    and ``converted``. A retry is harmless: a table without an owner stays as it is, and ``converted``
    is false.

    :param table_uri: the table's path or URI. (templated)
    :param delta_conn_id: the connection with the credentials of the table's store; None: the
        default connection of the URI's scheme. (templated)
    :param commit_owner_conn_id: the connection of the SQL commit owner; None:
        ``delta_commit_owner_default`` where that exists, else what the environment says. (templated)
    """

    def execute(self, context: Context) -> dict[str, Any]:  # noqa: ARG002  (Airflow's signature)
        """Take the table back.

        :raises DeltaError: the table can't be read, or its owner can't be asked or doesn't give it back.
        """
        result = convert_to_file_system(self.hook(), self.table_uri)
        self.log.info("%s: %s", self.table_uri, result)
        return result
