"""``airflow-delta cleanup URI``: delete the expired part of a log."""

from __future__ import annotations

from datetime import timedelta

import click

from airflow_delta.cli.options import HOURS, at_most_one, json_option, subcommand, yes_option
from airflow_delta.cli.reports import print_how_to_proceed, print_report
from airflow_delta.cli.target import Target, table_options

__all__ = ["cleanup"]


@subcommand(
    "cleanup",
    help="Delete commits and checkpoints that are older than the log's retention. Only reports them "
    "without --yes.",
    is_long=True,
)
@table_options()
@click.option(
    "--older-than-hours",
    type=HOURS,
    metavar="HOURS",
    help="The age of the commits to delete; default: the property delta.logRetentionDuration.",
)
@click.option(
    "--force",
    is_flag=True,
    help="Clean up even if the table's properties forbid it or have a longer retention.",
)
@click.option(
    "--write-checkpoint",
    is_flag=True,
    help="First write a checkpoint of an older version, if more can be deleted then.",
)
@yes_option("Delete the commits and checkpoints.")
@json_option
def cleanup(
    target: Target,
    *,
    older_than_hours: float | None,
    force: bool,
    write_checkpoint: bool,
    yes: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Clean up, and print what was done.

    Raises:
        RetentionError: the table's property keeps the log for longer.
        DeltaError: the table can't be read, or its log can't be cleaned up.
    """
    at_most_one(yes=yes, dry_run=dry_run)
    result = target.open().cleanup_metadata(
        older_than=None if older_than_hours is None else timedelta(hours=older_than_hours),
        force=force,
        write_checkpoint=write_checkpoint,
        dry_run=not yes,
    )
    print_report(target.uri, result.to_dict(), as_json=as_json, dry_run=not yes)
    print_how_to_proceed("deleted", yes=yes, dry_run=dry_run, as_json=as_json)
