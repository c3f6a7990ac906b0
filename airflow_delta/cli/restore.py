"""``airflow-delta restore URI``: bring back an earlier version of a table, and write a checkpoint of it."""

from __future__ import annotations

import argparse
from typing import Any

from airflow_delta.cli.allowed import add_allowed_outside, open_table
from airflow_delta.cli.reports import add_report_options, print_report

__all__ = ["add_parser", "run"]


def add_parser(verbs: Any) -> None:
    """Add this verb to the command's parser."""
    parser = verbs.add_parser("restore", help="bring back an earlier version by a commit")
    add_report_options(parser)
    add_allowed_outside(parser)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--version", type=int, help="bring back this version")
    which.add_argument(
        "--timestamp", help="bring back the newest version at this time, as ISO-8601 with offset"
    )
    parser.add_argument(
        "--ignore-missing-files",
        action="store_true",
        help="don't look whether the files are there that come back",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Restore the table, and print what was done.

    Raises:
        ObjectNotFoundError: files that should come back are gone.
        DeltaError: the version can't be restored, or the checkpoint can't be written; the report is
            printed all the same where the commit was made.
    """
    table = open_table(options)
    result = table.restore(
        options.version,
        options.timestamp,
        ignore_missing_files=options.ignore_missing_files,
        dry_run=options.dry_run,
    )
    print_report(options, result.to_dict())
    if result.checkpoint_due:
        # The commit may name as many files as the table has, and whoever opens the table reads it.
        table.checkpoint(result.version, backfill_first=True)
