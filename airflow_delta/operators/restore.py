"""Restore an earlier version of a Delta table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow_delta.hooks.failures import ArgumentError, with_failures_by_policy
from airflow_delta.hooks.reports import log_report
from airflow_delta.operators.lineage.rules import restores_table
from airflow_delta.operators.lineage.task import with_lineage
from airflow_delta.operators.run_identity import run_identity
from airflow_delta.operators.table_commits import maintenance_commit, with_table_commit
from airflow_delta.operators.table_task import TableTask, with_readers
from airflow_delta.operators.template_values import as_timestamp, as_version, flag, switch
from airflow_delta.version_compat import Context

__all__ = ["RestoreOperator"]


class RestoreOperator(TableTask):
    """Restore an earlier version of a table by a new commit, and write a checkpoint.

    The commit contains the transaction identifier of the task in its DAG run. A retry, or the
    cleared task, finds this commit and makes no other, so that it doesn't undo later commits;
    ``repeated`` is true then. To restore again, run the DAG again. Don't clear the task when the log has
    lost this commit in a cleanup: if a later run has restored the table, too, the cleared task restores
    again, and undoes the commits since.

    Returns a dictionary with ``table_uri``, ``version`` (of the commit, or the newest for a dry run),
    ``restored_version``, ``committed``, ``repeated``, the numbers of added and removed files and bytes,
    ``checkpoint`` and more: see the reference. The task's log has the same facts.

    :param table_uri: the table's path or URI. (templated)
    :param version: the version to restore; give either this or ``timestamp``. (templated)
    :param timestamp: restore the newest version at this time: ISO-8601 with an offset, or epoch
        milliseconds. (templated)
    :param ignore_missing_files: don't check that the restored files exist. Missing files are added as well,
        and reading them fails.
    :param write_checkpoint: write a checkpoint afterwards, because the commit may be large, and every
        reader would have to read it. For a managed table it is skipped if the commit isn't backfilled.
    :param backfill_first: have the commit owner of a managed table backfill the commit before the
        checkpoint. It has no effect on other tables.
    :param dry_run: only report which files would be added and removed. (templated)
    :param delta_conn_id: the connection with the credentials of the table's store; None: the
        default connection of the URI's scheme. (templated)
    :param commit_owner_conn_id: the connection of the SQL commit owner, for managed tables; None:
        ``delta_commit_owner_default`` if it exists, else the environment variable
        ``AIRFLOW_DELTA_COMMIT_OWNER_URL``. (templated)
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

    datasets = restores_table

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
        # With an underscore, because every operator of Airflow has a method of that name.
        self._dry_run = dry_run
        self.check_arguments()

    @classmethod
    def check_together(cls, known: Mapping[str, Any]) -> None:
        """Check that a version or a timestamp is given.

        :raises ArgumentError: neither is.
        """
        if known.get("version", 0) is None and known.get("timestamp", 0) is None:
            raise ArgumentError("give a version or a timestamp to restore")

    @with_lineage
    @with_table_commit(
        maintenance_commit(
            "RESTORE",
            committed=lambda result: result["committed"],
            metrics=("files_restored", "files_removed", "bytes_restored", "bytes_removed"),
        ),
        commits_once=True,
    )
    @with_failures_by_policy
    def execute(self, context: Context) -> dict[str, Any]:
        """Restore the table.

        :raises TableFailure: the version is the newest, or can't be restored; or some of its files
            are gone, and nothing was committed. See `airflow_delta.hooks.failures`.
        :raises DeltaError: the store failed, or another writer was faster.
        """
        dry_run = self.argument("dry_run")
        report = self.hook().restore(
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
