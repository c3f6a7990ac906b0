"""``airflow-delta drop-feature URI FEATURE``: remove a table feature from the protocol."""

from __future__ import annotations

import click

from airflow_delta.cli.options import at_most_one, json_option, subcommand
from airflow_delta.cli.reports import print_how_to_proceed, print_report
from airflow_delta.cli.target import Target, table_options

__all__ = ["NOT_YET", "drop_feature"]

NOT_YET = 3
"""The exit status if the feature isn't dropped yet: files must be rewritten, or history must expire."""


@subcommand(
    "drop-feature",
    help="Remove a table feature from the protocol. Exit status 3: not yet, run it again as it says.",
    is_long=True,
)
@table_options(outside=True)
@click.argument("feature", metavar="FEATURE")
@click.option(
    "--truncate-history",
    is_flag=True,
    help="Let the versions with the feature expire and clean them up, instead of hiding them behind "
    "protected checkpoints; this needs two runs, and is a dry run without --yes.",
)
@click.option("--yes", "-y", is_flag=True, help="Delete versions, with --truncate-history.")
@click.option("--dry-run", is_flag=True, help="Only report what would be done.")
@json_option
def drop_feature(
    target: Target,
    *,
    feature: str,
    truncate_history: bool,
    yes: bool,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Drop the feature, and print the result.

    Returns:
        0, or `NOT_YET` if more has to be done.

    Raises:
        DeltaError: the feature can't be dropped, or the store failed.
    """
    at_most_one(yes=yes, dry_run=dry_run)
    only_plan = dry_run or (truncate_history and not yes)
    result = target.open().drop_feature(
        feature, truncate_history=truncate_history, dry_run=only_plan
    )
    print_report(target.uri, result.to_dict(), as_json=as_json, dry_run=only_plan)
    print_how_to_proceed("deleted", yes=not only_plan, dry_run=dry_run, as_json=as_json)
    return 0 if result.status in ("dropped", "planned") else NOT_YET
