"""``airflow-delta drop-feature URI FEATURE``: take a table feature out of the protocol."""

from __future__ import annotations

import argparse
from typing import Any

from airflow_delta.cli.allowed import add_allowed_outside, open_table
from airflow_delta.cli.reports import add_report_options, print_report

__all__ = ["add_parser", "run"]

NOT_YET = 3
"""The exit status where the feature isn't dropped yet: files must be written anew, or history expire."""


def add_parser(verbs: Any) -> None:
    """Add this verb to the command's parser."""
    parser = verbs.add_parser(
        "drop-feature",
        help="take a table feature out of the protocol; exit status 3: not yet, run it again as it says",
    )
    add_report_options(parser)
    add_allowed_outside(parser)
    parser.add_argument("feature", metavar="FEATURE", help="its name, such as deletionVectors")
    parser.add_argument(
        "--truncate-history",
        action="store_true",
        help="have the versions with the feature expire and be cleaned up, instead of hiding them behind "
        "protected checkpoints: takes two runs",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Drop the feature, and print how far it has come.

    Returns:
        0; `NOT_YET` where more has to be done for it.

    Raises:
        DeltaError: the feature can't be dropped, or the store failed.
    """
    result = open_table(options).drop_feature(
        options.feature, truncate_history=options.truncate_history, dry_run=options.dry_run
    )
    print_report(options, result.to_dict())
    return 0 if result.status in ("dropped", "planned") else NOT_YET
