"""What all tasks have in common: a table, and the connections to reach it by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow_delta.hooks.delta import DeltaHook
from airflow_delta.version_compat import BaseOperator

__all__ = ["TableTask"]


class TableTask(BaseOperator):
    """A task on one table.

    :param table_uri: the table's path or URI. (templated)
    :param delta_conn_id: the connection with the credentials of the table's store; None: the
        default connection of the URI's scheme. (templated)
    :param commit_owner_conn_id: the connection of the SQL commit owner, for managed tables; None:
        ``delta_commit_owner_default`` where that exists, else what the environment says. (templated)
    """

    template_fields: Sequence[str] = ("table_uri", "delta_conn_id", "commit_owner_conn_id")
    ui_color = "#d7ecf3"

    def __init__(
        self,
        *,
        table_uri: str,
        delta_conn_id: str | None = None,
        commit_owner_conn_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.table_uri = table_uri
        self.delta_conn_id = delta_conn_id
        self.commit_owner_conn_id = commit_owner_conn_id

    def hook(self) -> DeltaHook:
        """The way to the table, by what the connections say now."""
        return DeltaHook(self.delta_conn_id, self.commit_owner_conn_id)
