"""``airflow-delta cleanup URI``: delete the part of a log that its table's retention doesn't protect."""

from __future__ import annotations

import argparse
from datetime import timedelta
from typing import Any

from airflow_delta.cli.reports import add_report_options, hours, print_report

__all__ = ["add_parser", "run"]


def add_parser(verbs: Any) -> None:
    """Add this verb to the command's parser."""
    parser = verbs.add_parser(
        "cleanup", help="delete commits and checkpoints that are older than the log's retention"
    )
    add_report_options(parser)
    parser.add_argument(
        "--older-than-hours",
        type=hours,
        metavar="HOURS",
        help="how old commits must be to go; default: as delta.logRetentionDuration says",
    )
    parser.add_argument(
        "--force",
        action="store_true",
        help="clean up though the table's properties forbid it, or keep more than is asked for",
    )
    parser.add_argument(
        "--write-checkpoint",
        action="store_true",
        help="write the checkpoint that would let more go, where there is none to begin the log with",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Clean up, and print what was done.

    Raises:
        RetentionError: the table keeps its log for longer.
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
