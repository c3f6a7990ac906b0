"""Write a checkpoint of a Delta table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow_delta.hooks.delta import DeltaHook
from airflow_delta.operators.template_values import as_version
from airflow_delta.version_compat import BaseOperator, Context

__all__ = ["CheckpointOperator"]


class CheckpointOperator(BaseOperator):
    """Write a checkpoint, so that readers open the table from one file and not from many commits.

    Returns a dictionary with ``table_uri``, ``version``, ``path``, ``written``, ``size_in_bytes``,
    ``num_actions`` and ``num_files``. A retry is harmless: a complete checkpoint of the version is
    left as it is, and ``written`` is false.

    :param table_uri: the table's path or URI. (templated)
    :param version: the version to write a checkpoint of; None: the newest. (templated)
    :param delta_conn_id: the connection with the credentials of the table's store; None: the
        default connection of the URI's scheme. (templated)
    """

    template_fields: Sequence[str] = ("table_uri", "version", "delta_conn_id")
    ui_color = "#d7ecf3"

    def __init__(
        self,
        *,
        table_uri: str,
        version: int | str | None = None,
        delta_conn_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.table_uri = table_uri
        self.version = version
        self.delta_conn_id = delta_conn_id

    def execute(self, context: Context) -> dict[str, Any]:  # noqa: ARG002  (Airflow's signature)
        """Write the checkpoint.

        :raises ValueError: the rendered version isn't a number.
        :raises DeltaError: the table can't be read or the checkpoint can't be written.
        """
        version = as_version(self.version, name="version")
        result = DeltaHook(self.delta_conn_id).checkpoint(self.table_uri, version=version)
        self.log.info("%s: checkpoint of version %s: %s", self.table_uri, result["version"], result)
        return result
