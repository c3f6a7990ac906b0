"""Backfill a managed Delta table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow_delta.hooks.failures import with_failures_by_policy
from airflow_delta.hooks.reports import log_report
from airflow_delta.operators.lineage.task import with_lineage
from airflow_delta.operators.table_task import TableTask, with_readers
from airflow_delta.operators.template_values import as_pinned_version
from airflow_delta.operators.triggering_event import requested_version
from airflow_delta.version_compat import Context

__all__ = ["BackfillOperator"]


class BackfillOperator(TableTask):
    """Have the commit owner of a managed table copy ratified commits to ``_delta_log``.

    After that, readers that don't use the commit owner see the commits, and they can be
    checkpointed and compacted. A retry is harmless: backfilled commits aren't changed.

    Returns a dictionary with ``table_uri``, ``version`` and ``backfilled_version`` (the newest backfilled
    version), ``ratified_version``, ``lag`` (the number of ratified versions that aren't backfilled),
    ``num_backfilled`` (by this try, or by others meanwhile) and ``duration_ms``.

    :param table_uri: the table's path or URI. (templated)
    :param version: the last version to be backfilled; None: all ratified versions; ``triggering_event``:
        that of the asset event that has started the DAG run, or all if none has. (templated)
    :param delta_conn_id: the connection with the credentials of the table's store; None: the
        default connection of the URI's scheme. (templated)
    :param commit_owner_conn_id: the connection of the SQL commit owner; None:
        ``delta_commit_owner_default`` if it exists, else the environment variable
        ``AIRFLOW_DELTA_COMMIT_OWNER_URL``. (templated)
    """

    template_fields: Sequence[str] = (*TableTask.template_fields, "version")
    arguments = with_readers(
        TableTask,
        version=as_pinned_version,
    )

    def __init__(self, *, version: int | str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.version = version
        self.check_arguments()

    @with_lineage
    @with_failures_by_policy
    def execute(self, context: Context) -> dict[str, Any]:
        """Backfill the table.

        :raises TableFailure: the table isn't managed, or the owner hasn't ratified the version;
            see `airflow_delta.hooks.failures`.
        :raises DeltaError: the owner can't be reached, or the store fails.
        """
        hook = self.hook()
        version = requested_version(context, self.table_uri, self.argument("version"))
        result = hook.backfill(self.table_uri, version=version)
        log_report(self.log, "backfill", result)
        return result
