"""``airflow-delta checkpoint URI``: write a checkpoint of a version."""

from __future__ import annotations

from typing import Literal

import click

from airflow_delta.cli.options import VERSION_NUMBER, dry_run_option, json_option, subcommand
from airflow_delta.cli.reports import print_report
from airflow_delta.cli.target import Target, table_options

__all__ = ["checkpoint"]


@subcommand("checkpoint", help="Write a checkpoint of a version.", is_long=True)
@table_options()
@click.option(
    "--version",
    type=VERSION_NUMBER,
    metavar="VERSION",
    help="The version to checkpoint; default: the newest.",
)
@click.option(
    "--policy",
    type=click.Choice(("classic", "v2")),
    help="The kind of checkpoint; default: the property delta.checkpointPolicy.",
)
@click.option(
    "--if-needed",
    is_flag=True,
    help="Write none if there are fewer than delta.checkpointInterval commits since the last one.",
)
@click.option(
    "--backfill-first",
    is_flag=True,
    help="First have the commit owner of a managed table backfill the version.",
)
@dry_run_option
@json_option
def checkpoint(
    target: Target,
    *,
    version: int | None,
    policy: Literal["classic", "v2"] | None,
    if_needed: bool,
    backfill_first: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Write the checkpoint, and print what was done.

    Raises:
        DeltaError: the version can't be read, or its checkpoint can't be written.
    """
    result = target.open().checkpoint(
        version,
        policy=policy,
        if_needed=if_needed,
        backfill_first=backfill_first,
        dry_run=dry_run,
    )
    print_report(target.uri, result.to_dict(), as_json=as_json, dry_run=dry_run)
