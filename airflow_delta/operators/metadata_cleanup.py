"""Clean up the log of a Delta table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow_delta.hooks.failures import with_failures_by_policy
from airflow_delta.hooks.reports import log_report
from airflow_delta.operators.lineage.task import with_lineage
from airflow_delta.operators.table_task import TableTask, with_readers
from airflow_delta.operators.template_values import as_hours, flag, switch
from airflow_delta.version_compat import Context

__all__ = ["MetadataCleanupOperator"]


class MetadataCleanupOperator(TableTask):
    """Delete the part of a log that is older than ``delta.logRetentionDuration``.

    The log then begins with the newest complete checkpoint before that time, and older versions
    can't be read any more. Run it once a day, after the checkpoint. If there is nothing to delete,
    the task succeeds, and ``reason`` says why; a retry continues where the previous try stopped.

    Returns a dictionary with ``table_uri``, ``version`` (the newest one of the log),
    ``earliest_version`` (the first one that can be read now), the planned ``files`` and ``bytes``,
    ``num_deleted``, numbers of deleted and kept files by kind, ``reason``, ``wanted_checkpoint``
    and more: see the reference. The task's log has the same facts.

    :param table_uri: the table's path or URI. (templated)
    :param older_than_hours: the age of the commits to delete; None: ``delta.logRetentionDuration``.
        (templated)
    :param force: clean up even if ``delta.enableExpiredLogCleanup`` is false, and even if
        ``older_than_hours`` is less than ``delta.logRetentionDuration``.
    :param write_checkpoint: first write a checkpoint of an older version, if more can be deleted then.
    :param backfill_first: first have the commit owner of a managed table backfill missing versions,
        because only backfilled commits can be deleted. It has no effect on other tables and on a
        dry run.
    :param dry_run: only report what would be deleted. (templated)
    :param delta_conn_id: the connection with the credentials of the table's store; None: the
        default connection of the URI's scheme. (templated)
    :param commit_owner_conn_id: the connection of the SQL commit owner, for managed tables; None:
        ``delta_commit_owner_default`` if it exists, else the environment variable
        ``AIRFLOW_DELTA_COMMIT_OWNER_URL``. (templated)
    """

    template_fields: Sequence[str] = (*TableTask.template_fields, "older_than_hours", "_dry_run")
    arguments = with_readers(
        TableTask,
        older_than_hours=as_hours,
        force=switch(default=False),
        write_checkpoint=switch(default=False),
        backfill_first=switch(default=False),
        dry_run=flag(default=False),
    )

    def __init__(
        self,
        *,
        older_than_hours: float | str | None = None,
        force: bool = False,
        write_checkpoint: bool = False,
        backfill_first: bool = False,
        dry_run: bool | str = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.older_than_hours = older_than_hours
        self.force = force
        self.write_checkpoint = write_checkpoint
        self.backfill_first = backfill_first
        # With an underscore, because every operator of Airflow has a method of that name.
        self._dry_run = dry_run
        self.check_arguments()

    @with_lineage
    @with_failures_by_policy
    def execute(self, context: Context) -> dict[str, Any]:  # noqa: ARG002  (Airflow's signature)
        """Clean up the log.

        :raises TableFailure: the retention of the table is longer, and ``force`` isn't set; or it can't be
            read. See `airflow_delta.hooks.failures`.
        :raises DeltaError: the store failed.
        """
        report = self.hook().clean_up(
            self.table_uri,
            older_than_hours=self.argument("older_than_hours"),
            force=self.argument("force"),
            write_checkpoint=self.argument("write_checkpoint"),
            backfill_first=self.argument("backfill_first"),
            dry_run=self.argument("dry_run"),
        )
        log_report(self.log, "cleanup of the log", report)
        return report
