"""Clean up the log of a Delta table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow_delta.hooks.failures import with_failures_by_policy
from airflow_delta.hooks.maintenance import clean_up, log_report
from airflow_delta.operators.table_task import TableTask, with_readers
from airflow_delta.operators.template_values import as_hours, flag, switch
from airflow_delta.version_compat import Context

__all__ = ["MetadataCleanupOperator"]


class MetadataCleanupOperator(TableTask):
    """Delete the part of a log that ``delta.logRetentionDuration`` doesn't protect.

    The log then begins with the newest complete checkpoint from before that, and older versions can't be
    read any more. Meant to run once a day, after the checkpoint. Where nothing is to be deleted the task
    succeeds, and ``reason`` says why; a retry goes on where the try before was broken off.

    Returns a dictionary with ``table_uri``, ``version`` (the newest one of the log), ``earliest_version``
    (the first one that can be read now), ``files`` and ``bytes`` that were to be deleted, ``num_deleted``,
    what goes and what stays by kind, ``reason``, ``wanted_checkpoint`` and more: see the reference. The
    task's log has the same for people.

    :param table_uri: the table's path or URI. (templated)
    :param older_than_hours: how old commits must be to go; None: as ``delta.logRetentionDuration`` says.
        (templated)
    :param force: clean up though ``delta.enableExpiredLogCleanup`` is false; and with
        ``older_than_hours``, less old commits than the table keeps.
    :param write_checkpoint: where a checkpoint of an older version would let more go, write it before.
    :param backfill_first: have the commit owner of a managed table backfill what is missing before: only
        what is backfilled is cleaned up. It makes no difference to other tables, nor to a dry run.
    :param dry_run: only tell what would be deleted. (templated)
    :param delta_conn_id: the connection with the credentials of the table's store; None: the
        default connection of the URI's scheme. (templated)
    :param commit_owner_conn_id: the connection of the SQL commit owner, for managed tables; None:
        ``delta_commit_owner_default`` where that exists, else what the environment says. (templated)
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
        # Not without the underscore: every operator of Airflow has a method of that name.
        self._dry_run = dry_run
        self.check_arguments()

    @with_failures_by_policy
    def execute(self, context: Context) -> dict[str, Any]:  # noqa: ARG002  (Airflow's signature)
        """Clean up the log.

        :raises TableFailure: the table keeps its log for longer, and ``force`` isn't set; or it can't be
            read. See `airflow_delta.hooks.failures`.
        :raises DeltaError: the store failed.
        """
        report = clean_up(
            self.hook(),
            self.table_uri,
            older_than_hours=self.argument("older_than_hours"),
            force=self.argument("force"),
            write_checkpoint=self.argument("write_checkpoint"),
            backfill_first=self.argument("backfill_first"),
            dry_run=self.argument("dry_run"),
        )
        log_report(self.log, "cleanup of the log", report)
        return report
