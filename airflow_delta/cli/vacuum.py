"""``airflow-delta vacuum URI``: delete files that no retained version of a table needs."""

from __future__ import annotations

import click

from airflow_delta.cli.options import HOURS, at_most_one, json_option, subcommand, yes_option
from airflow_delta.cli.reports import print_how_to_proceed, print_report
from airflow_delta.cli.target import Target, table_options

__all__ = ["vacuum"]


@subcommand(
    "vacuum",
    help="Delete files that no version within the retention needs. Only reports them without --yes.",
    is_long=True,
)
@table_options()
@click.option(
    "--retention-hours",
    type=HOURS,
    metavar="HOURS",
    help="The age of the files to delete; default: the property delta.deletedFileRetentionDuration.",
)
@click.option(
    "--lite",
    is_flag=True,
    help="Check only files that commits have removed since the last vacuum, without a listing.",
)
@click.option(
    "--inventory",
    metavar="FILE",
    help="A Parquet file that lists the files, instead of a listing of the store.",
)
@click.option(
    "--ignore-retention",
    is_flag=True,
    help="Allow a shorter retention than the table's property; nobody may be using the table.",
)
@yes_option("Delete the files.")
@json_option
def vacuum(
    target: Target,
    *,
    retention_hours: float | None,
    lite: bool,
    inventory: str | None,
    ignore_retention: bool,
    yes: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Vacuum the table, and print what was done.

    Raises:
        RetentionError: the retention is shorter than the table's property.
        DeltaError: the table can't be read or vacuumed.
    """
    at_most_one(lite=lite, inventory=inventory)
    at_most_one(yes=yes, dry_run=dry_run)
    result = target.open().vacuum(
        retention_hours=retention_hours,
        mode="lite" if lite else "full",
        inventory=inventory,
        enforce_retention=not ignore_retention,
        dry_run=not yes,
    )
    print_report(target.uri, result.to_dict(), as_json=as_json, dry_run=not yes)
    print_how_to_proceed("deleted", yes=yes, dry_run=dry_run, as_json=as_json)
