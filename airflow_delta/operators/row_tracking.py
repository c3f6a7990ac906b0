"""Enable row tracking on a Delta table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow_delta.hooks.failures import with_failures_by_policy
from airflow_delta.hooks.reports import log_report
from airflow_delta.operators.lineage.rules import alters_table_if
from airflow_delta.operators.lineage.task import with_lineage
from airflow_delta.operators.table_commits import maintenance_commits, with_table_commit
from airflow_delta.operators.table_task import TableTask, with_readers
from airflow_delta.operators.template_values import flag
from airflow_delta.version_compat import Context

__all__ = ["EnableRowTrackingOperator"]


class EnableRowTrackingOperator(TableTask):
    """Enable row tracking on a table, also on one with data. It doesn't use Spark.

    Files that have no row ids are committed again in batches, as they are, which gives them row ids; then
    the property ``delta.enableRowTracking`` is set. A retry continues where the previous try stopped. If
    row tracking is enabled already, nothing is done.

    Returns a dictionary with ``table_uri``, ``version``, ``enabled``, ``files``, ``files_backfilled``,
    ``num_commits``, ``first_version``, ``last_version``, ``steps``, ``dry_run`` and ``duration_ms``: see
    the reference. The task's log has the same facts.

    :param table_uri: the table's path or URI. (templated)
    :param dry_run: only report what would be done. (templated)
    :param delta_conn_id: the connection with the credentials of the table's store; None: the
        default connection of the URI's scheme. (templated)
    :param commit_owner_conn_id: the connection of the SQL commit owner, for managed tables; None:
        ``delta_commit_owner_default`` if it exists, else the environment variable
        ``AIRFLOW_DELTA_COMMIT_OWNER_URL``. (templated)
    """

    template_fields: Sequence[str] = (*TableTask.template_fields, "_dry_run")
    arguments = with_readers(TableTask, dry_run=flag(default=False))

    datasets = alters_table_if("last_version")

    def __init__(self, *, dry_run: bool | str = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        # With an underscore, because every operator of Airflow has a method of that name.
        self._dry_run = dry_run
        self.check_arguments()

    @with_lineage
    @with_table_commit(
        maintenance_commits("SET TBLPROPERTIES", metrics=("files_backfilled", "num_commits"))
    )
    @with_failures_by_policy
    def execute(self, context: Context) -> dict[str, Any]:  # noqa: ARG002  (Airflow's signature)
        """Enable row tracking.

        :raises TableFailure: row tracking is suspended, a file has no number of records in its statistics,
            or the engine can't write the table. See `airflow_delta.hooks.failures`.
        :raises DeltaError: the store failed, or other writers were faster again and again.
        """
        report = self.hook().enable_row_tracking(self.table_uri, dry_run=self.argument("dry_run"))
        log_report(self.log, "row tracking", report)
        return report
