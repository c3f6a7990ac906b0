"""``airflow-delta vacuum URI``: delete the files that a table needs no more."""

from __future__ import annotations

import argparse
from typing import Any

from airflow_delta.cli.reports import add_report_options, hours, print_report

__all__ = ["add_parser", "run"]


def add_parser(verbs: Any) -> None:
    """Add this verb to the command's parser."""
    parser = verbs.add_parser(
        "vacuum", help="delete files that no version within the retention needs"
    )
    add_report_options(parser)
    parser.add_argument(
        "--retention-hours",
        type=hours,
        metavar="HOURS",
        help="how old files must be; default: as delta.deletedFileRetentionDuration says",
    )
    candidates = parser.add_mutually_exclusive_group()
    candidates.add_argument(
        "--lite",
        action="store_true",
        help="look only at what commits have removed since the last vacuum, and list nothing",
    )
    candidates.add_argument(
        "--inventory",
        metavar="FILE",
        help="a Parquet file of the files to be looked at in place of a listing",
    )
    parser.add_argument(
        "--ignore-retention",
        action="store_true",
        help="allow less than the table's property says; nobody may be using the table",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Vacuum the table, and print what was done.

    Raises:
        RetentionError: less was asked for than the table's property says.
        DeltaError: the table can't be read or vacuumed.
    """
    from airflow_delta.engine import DeltaTable

    result = DeltaTable(options.uri).vacuum(
        retention_hours=options.retention_hours,
        mode="lite" if options.lite else "full",
        inventory=options.inventory,
        enforce_retention=not options.ignore_retention,
        dry_run=options.dry_run,
    )
    print_report(options, result.to_dict())
