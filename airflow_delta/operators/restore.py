"""Bring back an earlier version of a Delta table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow_delta.hooks.failures import ArgumentError, with_failures_by_policy
from airflow_delta.hooks.maintenance import log_report, restore
from airflow_delta.operators.run_identity import run_identity
from airflow_delta.operators.table_task import TableTask, with_readers
from airflow_delta.operators.template_values import as_timestamp, as_version, flag, switch
from airflow_delta.version_compat import Context

__all__ = ["RestoreOperator"]


class RestoreOperator(TableTask):
    """Bring back an earlier version of a table, by a commit of its own, and write a checkpoint of it.

    The commit carries the transaction identifier of the task in its DAG run. A retry finds it, as the task
    does when it is cleared, and makes no second one, so that nothing is undone that came in between;
    ``repeated`` says so. To restore once more, run the DAG once more.

    Returns a dictionary with ``table_uri``, ``version`` (of the commit; of a dry run the newest one),
    ``restored_version``, ``committed``, ``repeated``, how many files and bytes come and go,
    ``checkpoint`` and more: see the reference. The task's log has the same for people.

    :param table_uri: the table's path or URI. (templated)
    :param version: the version to bring back; or (templated)
    :param timestamp: bring back the newest version at this time: ISO-8601 with an offset, or epoch
        milliseconds. (templated)
    :param ignore_missing_files: don't look whether the files are there that come back. Those that are gone
        come back all the same, and reading them fails.
    :param write_checkpoint: write a checkpoint afterwards: the commit may be a large one, and whoever opens
        the table reads it until then. Of a managed table it is left out where the commit isn't backfilled.
    :param backfill_first: have the commit owner of a managed table backfill the commit before the
        checkpoint. It makes no difference to other tables.
    :param dry_run: only tell which files would come and go. (templated)
    :param delta_conn_id: the connection with the credentials of the table's store; None: the
        default connection of the URI's scheme. (templated)
    :param commit_owner_conn_id: the connection of the SQL commit owner, for managed tables; None:
        ``delta_commit_owner_default`` where that exists, else what the environment says. (templated)
    """

    template_fields: Sequence[str] = (
        *TableTask.template_fields,
        "version",
        "timestamp",
        "_dry_run",
    )
    arguments = with_readers(
        TableTask,
        version=as_version,
        timestamp=as_timestamp,
        ignore_missing_files=switch(default=False),
        write_checkpoint=switch(default=True),
        backfill_first=switch(default=False),
        dry_run=flag(default=False),
    )
    exclusive = (("version", "timestamp"),)

    def __init__(
        self,
        *,
        version: int | str | None = None,
        timestamp: int | str | None = None,
        ignore_missing_files: bool = False,
        write_checkpoint: bool = True,
        backfill_first: bool = False,
        dry_run: bool | str = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.version = version
        self.timestamp = timestamp
        self.ignore_missing_files = ignore_missing_files
        self.write_checkpoint = write_checkpoint
        self.backfill_first = backfill_first
        # Not without the underscore: every operator of Airflow has a method of that name.
        self._dry_run = dry_run
        self.check_arguments()

    @classmethod
    def check_together(cls, known: Mapping[str, Any]) -> None:
        """Check that it is said what to bring back.

        :raises ArgumentError: it isn't.
        """
        if known.get("version", 0) is None and known.get("timestamp", 0) is None:
            raise ArgumentError("give a version or a timestamp to bring back")

    @with_failures_by_policy
    def execute(self, context: Context) -> dict[str, Any]:
        """Restore the table.

        :raises TableFailure: the version is the newest, or can't be restored; or files that should come
            back are gone, and nothing was committed. See `airflow_delta.hooks.failures`.
        :raises DeltaError: the store failed, or another writer was faster.
        """
        dry_run = self.argument("dry_run")
        report = restore(
            self.hook(),
            self.table_uri,
            version=self.argument("version"),
            timestamp=self.argument("timestamp"),
            ignore_missing_files=self.argument("ignore_missing_files"),
            once=None if dry_run else run_identity(context),
            write_checkpoint=self.argument("write_checkpoint"),
            backfill_first=self.argument("backfill_first"),
            dry_run=dry_run,
        )
        log_report(self.log, "restore", report)
        return report
