"""``airflow-delta checkpoint URI``: write a checkpoint of a version."""

from __future__ import annotations

import argparse
from typing import Any

from airflow_delta.cli.reports import add_report_options, print_report, version_number

__all__ = ["add_parser", "run"]


def add_parser(subcommands: Any) -> None:
    """Add this subcommand to the command's parser."""
    parser = subcommands.add_parser("checkpoint", help="write a checkpoint of a version")
    add_report_options(parser)
    parser.add_argument(
        "--version",
        type=version_number,
        metavar="VERSION",
        help="the version to checkpoint; default: the newest",
    )
    parser.add_argument(
        "--policy",
        choices=("classic", "v2"),
        help="the kind of checkpoint; default: the property delta.checkpointPolicy",
    )
    parser.add_argument(
        "--if-needed",
        action="store_true",
        help="write none if there are fewer than delta.checkpointInterval commits since the last one",
    )
    parser.add_argument(
        "--backfill-first",
        action="store_true",
        help="first have the commit owner of a managed table backfill the version",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Write the checkpoint, and print what was done.

    Raises:
        DeltaError: the version can't be read, or its checkpoint can't be written.
    """
    from airflow_delta.engine import DeltaTable

    result = DeltaTable(options.uri).checkpoint(
        options.version,
        policy=options.policy,
        if_needed=options.if_needed,
        backfill_first=options.backfill_first,
        dry_run=options.dry_run,
    )
    print_report(options, result.to_dict())
