"""``airflow-delta restore URI``: restore an earlier version of a table, and write a checkpoint."""

from __future__ import annotations

import click

from airflow_delta.cli.options import (
    dry_run_option,
    exactly_one,
    json_option,
    subcommand,
    version_options,
)
from airflow_delta.cli.reports import print_report
from airflow_delta.cli.target import Target, table_options

__all__ = ["restore"]


@subcommand("restore", help="Restore an earlier version by a commit.", is_long=True)
@table_options(outside=True)
@version_options("Restore")
@click.option(
    "--ignore-missing-files", is_flag=True, help="Don't check that the restored files exist."
)
@dry_run_option
@json_option
def restore(
    target: Target,
    *,
    version: int | None,
    timestamp: str | None,
    ignore_missing_files: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Restore the table, and print what was done.

    Raises:
        ObjectNotFoundError: files of the version are gone.
        DeltaError: the version can't be restored, or the checkpoint can't be written; after the commit, the
            report is printed in any case.
    """
    exactly_one(version=version, timestamp=timestamp)
    table = target.open()
    result = table.restore(
        version, timestamp, ignore_missing_files=ignore_missing_files, dry_run=dry_run
    )
    print_report(target.uri, result.to_dict(), as_json=as_json, dry_run=dry_run)
    if result.checkpoint_due:
        # The commit may have as many actions as the table has files, and every reader would read it.
        table.checkpoint(result.version, backfill_first=True)
