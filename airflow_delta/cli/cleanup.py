"""``airflow-delta cleanup URI``: delete the expired part of a log."""

from __future__ import annotations

import argparse
from datetime import timedelta
from typing import Any

from airflow_delta.cli.reports import add_report_options, hours, print_report

__all__ = ["add_parser", "run"]


def add_parser(subcommands: Any) -> None:
    """Add this subcommand to the command's parser."""
    parser = subcommands.add_parser(
        "cleanup", help="delete commits and checkpoints that are older than the log's retention"
    )
    add_report_options(parser)
    parser.add_argument(
        "--older-than-hours",
        type=hours,
        metavar="HOURS",
        help="the age of the commits to delete; default: the property delta.logRetentionDuration",
    )
    parser.add_argument(
        "--force",
        action="store_true",
        help="clean up even if the table's properties forbid it or have a longer retention",
    )
    parser.add_argument(
        "--write-checkpoint",
        action="store_true",
        help="first write a checkpoint of an older version, if more can be deleted then",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Clean up, and print what was done.

    Raises:
        RetentionError: the table's property keeps the log for longer.
        DeltaError: the table can't be read, or its log can't be cleaned up.
    """
    from airflow_delta.engine import DeltaTable

    older_than = options.older_than_hours
    result = DeltaTable(options.uri).cleanup_metadata(
        older_than=None if older_than is None else timedelta(hours=older_than),
        force=options.force,
        write_checkpoint=options.write_checkpoint,
        dry_run=options.dry_run,
    )
    print_report(options, result.to_dict())
