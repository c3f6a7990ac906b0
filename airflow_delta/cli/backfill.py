"""``airflow-delta backfill URI``: have the commit owner of a managed table backfill its commits."""

from __future__ import annotations

import click

from airflow_delta.cli.options import VERSION_NUMBER, dry_run_option, json_option, subcommand
from airflow_delta.cli.reports import print_report
from airflow_delta.cli.target import Target, table_options

__all__ = ["backfill"]


@subcommand(
    "backfill", help="Copy the ratified commits of a managed table to _delta_log.", is_long=True
)
@table_options()
@click.option(
    "--version",
    type=VERSION_NUMBER,
    metavar="VERSION",
    help="The last version to be backfilled; default: all ratified versions.",
)
@dry_run_option
@json_option
def backfill(target: Target, *, version: int | None, dry_run: bool, as_json: bool) -> None:
    """Backfill, and print what was done.

    Raises:
        InvalidArgumentError: the table isn't managed.
        CommitOwnerError: the table's commit owner can't be reached, or refuses.
        DeltaError: the table can't be read, or the store failed.
    """
    result = target.open().backfill(version, dry_run=dry_run)
    print_report(target.uri, result.to_dict(), as_json=as_json, dry_run=dry_run)
