"""``airflow-delta backfill URI``: have the commit owner of a managed table backfill its commits."""

from __future__ import annotations

import argparse
from typing import Any

from airflow_delta.cli.reports import add_report_options, print_report, version_number

__all__ = ["add_parser", "run"]


def add_parser(subcommands: Any) -> None:
    """Add this subcommand to the command's parser."""
    parser = subcommands.add_parser(
        "backfill", help="copy the ratified commits of a managed table to _delta_log"
    )
    add_report_options(parser)
    parser.add_argument(
        "--version",
        type=version_number,
        metavar="VERSION",
        help="the last version to be backfilled; default: all ratified versions",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Backfill, and print what was done.

    Raises:
        InvalidArgumentError: the table isn't managed.
        CommitOwnerError: the table's commit owner can't be reached, or refuses.
        DeltaError: the table can't be read, or the store failed.
    """
    from airflow_delta.engine import DeltaTable

    result = DeltaTable(options.uri).backfill(options.version, dry_run=options.dry_run)
    print_report(options, result.to_dict())
