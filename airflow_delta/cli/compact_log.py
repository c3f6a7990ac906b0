"""``airflow-delta compact-log URI``: write a log compaction of a range of commits."""

from __future__ import annotations

import click

from airflow_delta.cli.options import VERSION_NUMBER, dry_run_option, json_option, subcommand
from airflow_delta.cli.reports import print_report
from airflow_delta.cli.target import Target, table_options

__all__ = ["compact_log"]


@subcommand(
    "compact-log",
    help="Write a log compaction, which readers use instead of a range of commits.",
    is_long=True,
)
@table_options()
@click.option(
    "--start",
    type=VERSION_NUMBER,
    metavar="VERSION",
    help="The first version; default: the first that no checkpoint and no compaction covers.",
)
@click.option(
    "--end",
    type=VERSION_NUMBER,
    metavar="VERSION",
    help="The last version; default: the newest.",
)
@click.option(
    "--backfill-first",
    is_flag=True,
    help="First have the commit owner of a managed table backfill the range.",
)
@dry_run_option
@json_option
def compact_log(
    target: Target,
    *,
    start: int | None,
    end: int | None,
    backfill_first: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Compact the range, and print what was done.

    Raises:
        DeltaError: the range can't be read, or its compaction can't be written.
    """
    result = target.open().compact_log(start, end, backfill_first=backfill_first, dry_run=dry_run)
    print_report(target.uri, result.to_dict(), as_json=as_json, dry_run=dry_run)
