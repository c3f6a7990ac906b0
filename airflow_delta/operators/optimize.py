"""Give the data files of a Delta table a good size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow_delta.hooks.failures import with_failures_by_policy
from airflow_delta.hooks.reports import log_report
from airflow_delta.operators.lineage import with_lineage
from airflow_delta.operators.lineage_rules import optimizes_table
from airflow_delta.operators.table_commits import maintenance_commit, with_table_commit
from airflow_delta.operators.table_task import TableTask, with_readers
from airflow_delta.operators.template_values import (
    as_names,
    as_ratio,
    as_size,
    as_text,
    flag,
)
from airflow_delta.version_compat import Context

__all__ = ["OptimizeOperator"]


class OptimizeOperator(TableTask):
    """Rewrite small files of a table, and files with many deleted rows, in the worker.

    With ``z_order_by``, and if the table is clustered, rows are sorted, so that queries read fewer files.

    The rows stay the same. Concurrent appends don't conflict; files that others change meanwhile are left
    out. If there is nothing to rewrite, the task succeeds, and ``plan["reason"]`` says why. A retry plans
    again: it doesn't rewrite what the previous try has committed.

    Returns a dictionary with ``table_uri``, ``version`` (of the last commit, else the planned one),
    ``commits``, ``files_removed``, ``bytes_removed``, ``files_added``, ``bytes_added``, ``files_copied``,
    ``files_lost``, the ``plan`` and more: see the reference. The task's log has the same facts.

    :param table_uri: the table's path or URI. (templated)
    :param where: a condition over partition columns that chooses the files, such as
        ``day >= '2026-01-01'``; None for all. (templated)
    :param min_file_size: files of fewer bytes are rewritten together; None: half of ``max_file_size``.
        (templated)
    :param max_file_size: the size of new files in bytes; None: ``delta.targetFileSize``, or 128 MiB.
        (templated)
    :param max_deleted_ratio: files with a larger part of deleted rows are rewritten, even alone; None:
        0.05. (templated)
    :param purge: rewrite just the files with deleted rows, however few. (templated)
    :param z_order_by: columns by which the files of each partition are sorted (Z-order), as SQL names them,
        such as ``address.city``. (templated)
    :param full: sort also what is sorted already; of a clustered table also what others have clustered.
        (templated)
    :param max_bytes: the most bytes of files to rewrite in this run; None for any number. (templated)
    :param min_cube_size: of a clustered table: files that were clustered together stay if they have so many
        bytes; None: 100 GiB. (templated)
    :param dry_run: only report what would be rewritten. (templated)
    :param delta_conn_id: the connection with the credentials of the table's store; None: the
        default connection of the URI's scheme. (templated)
    :param commit_owner_conn_id: the connection of the SQL commit owner, for managed tables; None:
        ``delta_commit_owner_default`` if it exists, else the environment variable. (templated)
    """

    template_fields: Sequence[str] = (
        *TableTask.template_fields,
        "where",
        "min_file_size",
        "max_file_size",
        "max_deleted_ratio",
        "purge",
        "z_order_by",
        "full",
        "max_bytes",
        "min_cube_size",
        "_dry_run",
    )
    arguments = with_readers(
        TableTask,
        where=as_text,
        min_file_size=as_size,
        max_file_size=as_size,
        max_deleted_ratio=as_ratio,
        purge=flag(default=False),
        z_order_by=as_names,
        full=flag(default=False),
        max_bytes=as_size,
        min_cube_size=as_size,
        dry_run=flag(default=False),
    )

    datasets = optimizes_table

    def __init__(
        self,
        *,
        where: str | None = None,
        min_file_size: int | str | None = None,
        max_file_size: int | str | None = None,
        max_deleted_ratio: float | str | None = None,
        purge: bool | str = False,
        z_order_by: Sequence[str] | str | None = None,
        full: bool | str = False,
        max_bytes: int | str | None = None,
        min_cube_size: int | str | None = None,
        dry_run: bool | str = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.where = where
        self.min_file_size = min_file_size
        self.max_file_size = max_file_size
        self.max_deleted_ratio = max_deleted_ratio
        self.purge = purge
        self.z_order_by = z_order_by
        self.full = full
        self.max_bytes = max_bytes
        self.min_cube_size = min_cube_size
        # With an underscore, because every operator of Airflow has a method of that name.
        self._dry_run = dry_run
        self.check_arguments()

    @with_lineage
    @with_table_commit(
        maintenance_commit(
            "OPTIMIZE",
            committed=lambda result: result["commits"] > 0,
            metrics=("files_removed", "bytes_removed", "files_added", "bytes_added"),
        )
    )
    @with_failures_by_policy
    def execute(self, context: Context) -> dict[str, Any]:  # noqa: ARG002  (Airflow's signature)
        """Optimize the table.

        :raises TableFailure: the condition isn't about partition columns, a data file is damaged or
            missing, or the table can't be written. See `airflow_delta.hooks.failures`.
        :raises DeltaError: the store failed, or other writers were faster.
        """
        report = self.hook().optimize(
            self.table_uri,
            where=self.argument("where"),
            min_file_size=self.argument("min_file_size"),
            max_file_size=self.argument("max_file_size"),
            max_deleted_ratio=self.argument("max_deleted_ratio"),
            purge=self.argument("purge"),
            z_order_by=self.argument("z_order_by") or (),
            full=self.argument("full"),
            max_bytes=self.argument("max_bytes"),
            min_cube_size=self.argument("min_cube_size"),
            dry_run=self.argument("dry_run"),
        )
        log_report(self.log, "optimization", report)
        return report
