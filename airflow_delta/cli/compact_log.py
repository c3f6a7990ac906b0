"""``airflow-delta compact-log URI``: write a log compaction of a range of commits."""

from __future__ import annotations

import argparse
from typing import Any

from airflow_delta.cli.reports import add_report_options, print_report, version_number

__all__ = ["add_parser", "run"]


def add_parser(subcommands: Any) -> None:
    """Add this subcommand to the command's parser."""
    parser = subcommands.add_parser(
        "compact-log",
        help="write a log compaction, which readers use instead of a range of commits",
    )
    add_report_options(parser)
    parser.add_argument(
        "--start",
        type=version_number,
        metavar="VERSION",
        help="the first version; default: the first that no checkpoint and no compaction covers",
    )
    parser.add_argument(
        "--end",
        type=version_number,
        metavar="VERSION",
        help="the last version; default: the newest",
    )
    parser.add_argument(
        "--backfill-first",
        action="store_true",
        help="first have the commit owner of a managed table backfill the range",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Compact the range, and print what was done.

    Raises:
        DeltaError: the range can't be read, or its compaction can't be written.
    """
    from airflow_delta.engine import DeltaTable

    result = DeltaTable(options.uri).compact_log(
        options.start,
        options.end,
        backfill_first=options.backfill_first,
        dry_run=options.dry_run,
    )
    print_report(options, result.to_dict())
