"""Write a log compaction of a Delta table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow_delta.hooks.failures import ArgumentError, with_failures_by_policy
from airflow_delta.hooks.reports import log_report
from airflow_delta.operators.lineage.task import with_lineage
from airflow_delta.operators.table_task import TableTask, with_readers
from airflow_delta.operators.template_values import as_version, switch
from airflow_delta.version_compat import AirflowSkipException, Context

__all__ = ["LogCompactionOperator"]


class LogCompactionOperator(TableTask):
    """Write the reconciled actions of a range of commits to one file, for readers to use instead.

    Run it often, between checkpoints: its cost depends on the commits since the last run, not on
    the size of the table. If there is nothing to compact, the task is skipped, and its log has the
    reason; so is a retry after a try that has written the file.

    Returns a dictionary with ``table_uri``, ``version``, ``kind`` (``compaction``), ``start``, ``end``,
    ``path``, ``files``, ``bytes``, ``rows``, ``written`` and ``duration_ms``.

    :param table_uri: the table's path or URI. (templated)
    :param start: the first version of the range; None: the first one that neither the newest checkpoint nor
        a compaction covers. (templated)
    :param end: the last version of the range; None: the newest, or for a managed table the newest
        backfilled one. Without both, fewer than ten commits aren't compacted. (templated)
    :param delta_conn_id: the connection with the credentials of the table's store; None: the
        default connection of the URI's scheme. (templated)
    :param commit_owner_conn_id: the connection of the SQL commit owner, for managed tables; None:
        ``delta_commit_owner_default`` if it exists, else the environment variable
        ``AIRFLOW_DELTA_COMMIT_OWNER_URL``. (templated)
    :param dry_run: only report what would be compacted; ``bytes`` and ``rows`` are None then.
    :param backfill_first: first have the commit owner of a managed table backfill missing versions. It
        has no effect on other tables and on a dry run.
    """

    template_fields: Sequence[str] = (*TableTask.template_fields, "start", "end")
    arguments = with_readers(
        TableTask,
        start=as_version,
        end=as_version,
        dry_run=switch(default=False),
        backfill_first=switch(default=False),
    )

    def __init__(
        self,
        *,
        start: int | str | None = None,
        end: int | str | None = None,
        dry_run: bool = False,
        backfill_first: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.start = start
        self.end = end
        self.backfill_first = backfill_first
        # With an underscore, because every operator of Airflow has a method of that name.
        self._dry_run = dry_run
        self.check_arguments()

    @classmethod
    def check_together(cls, known: Mapping[str, Any]) -> None:
        """Check that the range doesn't end before it starts.

        :raises ArgumentError: it does.
        """
        start, end = known.get("start"), known.get("end")
        if start is not None and end is not None and start > end:
            raise ArgumentError(f"start={start} is after end={end}")

    @with_lineage
    @with_failures_by_policy
    def execute(self, context: Context) -> dict[str, Any]:  # noqa: ARG002  (Airflow's signature)
        """Write the compaction.

        :raises AirflowSkipException: there is nothing to compact.
        :raises TableFailure: the table can't be read, or doesn't have the range; see
            `airflow_delta.hooks.failures`.
        :raises DeltaError: the store failed, or a version of the range isn't backfilled.
        """
        result = self.hook().compact_log(
            self.table_uri,
            start=self.argument("start"),
            end=self.argument("end"),
            dry_run=self.argument("dry_run"),
            backfill_first=self.argument("backfill_first"),
        )
        reason = result.pop("reason")
        if reason is not None:
            raise AirflowSkipException(f"{self.table_uri}: {reason}")
        log_report(self.log, "log compaction", result)
        return result
