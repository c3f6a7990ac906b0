"""Make a directory of Parquet files a Delta table, exactly once in a DAG run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow_delta.hooks.failures import with_failures_by_policy
from airflow_delta.hooks.reports import log_report
from airflow_delta.operators.lineage.rules import converts_directory
from airflow_delta.operators.lineage.task import with_lineage
from airflow_delta.operators.run_identity import run_identity
from airflow_delta.operators.table_commits import maintenance_commit, with_table_commit
from airflow_delta.operators.table_task import TableTask, with_readers
from airflow_delta.operators.template_values import (
    as_column_types,
    as_names,
    as_texts_or_json,
    flag,
    switch,
)
from airflow_delta.version_compat import Context

__all__ = ["ConvertToDeltaOperator"]


class ConvertToDeltaOperator(TableTask):
    """Convert a directory of Parquet files to a Delta table, in place; no data file is changed.

    The worker reads the footers of all files, and commits version 0. The commit contains the transaction
    identifier of the task in its DAG run, by which a retry finds it. A directory that is a Delta table
    already stays as it is, and ``reason`` says so.

    Returns a dictionary with ``table_uri``, ``version``, ``converted``, ``repeated`` (whether an earlier
    try has made the commit), ``files``, ``bytes``, ``rows``, ``columns``, ``partition_columns``, ``reason``
    and more: see the reference. The task's log has the same facts.

    :param table_uri: the directory's path or URI. (templated)
    :param partition_schema: the types of the columns in the names of subdirectories, in the order of the
        table's partition columns: ``{"day": "date"}``, or ``["day:date"]``, or the JSON of such a list;
        None: no partition columns. (templated)
    :param files: the files that become the table, as decoded paths below the directory: a list, or the
        JSON of one; None: all whose names don't begin with ``_`` or ``.``. (templated)
    :param properties: table properties, or the JSON of them. (templated)
    :param collect_statistics: make statistics from the footers.
    :param dry_run: only report what the table would be. (templated)
    :param delta_conn_id: the connection with the credentials of the table's store; None: the
        default connection of the URI's scheme. (templated)
    """

    template_fields: Sequence[str] = (
        *TableTask.template_fields,
        "partition_schema",
        "files",
        "properties",
        "_dry_run",
    )
    arguments = with_readers(
        TableTask,
        partition_schema=as_column_types,
        files=as_names,
        properties=as_texts_or_json,
        collect_statistics=switch(default=True),
        dry_run=flag(default=False),
    )

    datasets = converts_directory

    def __init__(
        self,
        *,
        partition_schema: Mapping[str, str] | Sequence[str] | str | None = None,
        files: Sequence[str] | str | None = None,
        properties: Mapping[str, str] | str | None = None,
        collect_statistics: bool = True,
        dry_run: bool | str = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.partition_schema = partition_schema
        self.files = files
        self.properties = properties
        self.collect_statistics = collect_statistics
        # With an underscore, because every operator of Airflow has a method of that name.
        self._dry_run = dry_run
        self.check_arguments()

    @with_lineage
    @with_table_commit(
        maintenance_commit(
            "CONVERT",
            committed=lambda result: result["converted"] or result["repeated"],
            metrics=("files", "bytes", "rows"),
        ),
        commits_once=True,
    )
    @with_failures_by_policy
    def execute(self, context: Context) -> dict[str, Any]:
        """Convert the directory.

        :raises TableFailure: the files can't be one table, or one isn't Parquet. See
            `airflow_delta.hooks.failures`.
        :raises DeltaError: the store failed, or another writer was faster.
        """
        dry_run = self.argument("dry_run")
        report = self.hook().convert(
            self.table_uri,
            partition_schema=self.argument("partition_schema"),
            files=self.argument("files"),
            properties=self.argument("properties"),
            collect_statistics=self.argument("collect_statistics"),
            once=None if dry_run else run_identity(context),
            dry_run=dry_run,
        )
        log_report(self.log, "conversion", report)
        return report
