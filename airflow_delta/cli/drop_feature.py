"""``airflow-delta drop-feature URI FEATURE``: remove a table feature from the protocol."""

from __future__ import annotations

import argparse
from typing import Any

from airflow_delta.cli.allowed import add_allowed_outside, open_table
from airflow_delta.cli.reports import add_report_options, print_report

__all__ = ["add_parser", "run"]

NOT_YET = 3
"""The exit status if the feature isn't dropped yet: files must be rewritten, or history must expire."""


def add_parser(subcommands: Any) -> None:
    """Add this subcommand to the command's parser."""
    parser = subcommands.add_parser(
        "drop-feature",
        help="remove a table feature from the protocol; exit status 3: not yet, run it again as it says",
    )
    add_report_options(parser)
    add_allowed_outside(parser)
    parser.add_argument("feature", metavar="FEATURE", help="its name, such as deletionVectors")
    parser.add_argument(
        "--truncate-history",
        action="store_true",
        help="let the versions with the feature expire and clean them up, instead of hiding them behind "
        "protected checkpoints; this needs two runs",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Drop the feature, and print the result.

    Returns:
        0, or `NOT_YET` if more has to be done.

    Raises:
        DeltaError: the feature can't be dropped, or the store failed.
    """
    result = open_table(options).drop_feature(
        options.feature, truncate_history=options.truncate_history, dry_run=options.dry_run
    )
    print_report(options, result.to_dict())
    return 0 if result.status in ("dropped", "planned") else NOT_YET
