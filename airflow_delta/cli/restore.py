"""``airflow-delta restore URI``: restore an earlier version of a table, and write a checkpoint."""

from __future__ import annotations

import argparse
from typing import Any

from airflow_delta.cli.allowed import add_allowed_outside, open_table
from airflow_delta.cli.reports import add_report_options, print_report

__all__ = ["add_parser", "run"]


def add_parser(subcommands: Any) -> None:
    """Add this subcommand to the command's parser."""
    parser = subcommands.add_parser("restore", help="restore an earlier version by a commit")
    add_report_options(parser)
    add_allowed_outside(parser)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--version", type=int, help="restore this version")
    which.add_argument(
        "--timestamp", help="restore the newest version at this time, as ISO-8601 with offset"
    )
    parser.add_argument(
        "--ignore-missing-files",
        action="store_true",
        help="don't check that the restored files exist",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Restore the table, and print what was done.

    Raises:
        ObjectNotFoundError: files of the version are gone.
        DeltaError: the version can't be restored, or the checkpoint can't be written; after the commit, the
            report is printed in any case.
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
        # The commit may have as many actions as the table has files, and every reader would read it.
        table.checkpoint(result.version, backfill_first=True)
