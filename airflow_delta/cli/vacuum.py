"""``airflow-delta vacuum URI``: delete files that no retained version of a table needs."""

from __future__ import annotations

import argparse
from typing import Any

from airflow_delta.cli.reports import add_report_options, hours, print_report

__all__ = ["add_parser", "run"]


def add_parser(subcommands: Any) -> None:
    """Add this subcommand to the command's parser."""
    parser = subcommands.add_parser(
        "vacuum", help="delete files that no version within the retention needs"
    )
    add_report_options(parser)
    parser.add_argument(
        "--retention-hours",
        type=hours,
        metavar="HOURS",
        help="the age of the files to delete; default: the property delta.deletedFileRetentionDuration",
    )
    candidates = parser.add_mutually_exclusive_group()
    candidates.add_argument(
        "--lite",
        action="store_true",
        help="check only files that commits have removed since the last vacuum, without a listing",
    )
    candidates.add_argument(
        "--inventory",
        metavar="FILE",
        help="a Parquet file that lists the files, instead of a listing of the store",
    )
    parser.add_argument(
        "--ignore-retention",
        action="store_true",
        help="allow a shorter retention than the table's property; nobody may be using the table",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Vacuum the table, and print what was done.

    Raises:
        RetentionError: the retention is shorter than the table's property.
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
