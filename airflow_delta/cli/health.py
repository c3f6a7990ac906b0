"""``airflow-delta health URI``: report the state of a table in numbers, from the log alone."""

from __future__ import annotations

import argparse
from typing import Any

from airflow_delta.cli.output import print_json, print_line
from airflow_delta.cli.wording import in_cli_words

__all__ = ["add_parser", "run"]


def add_parser(subcommands: Any) -> None:
    """Add this subcommand to the command's parser."""
    parser = subcommands.add_parser(
        "health", help="small files, deleted rows, the log: in numbers, and what would be gained"
    )
    parser.add_argument("uri", metavar="URI", help="the table's path or URI")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Print the numbers.

    Raises:
        DeltaError: the table can't be read.
    """
    from airflow_delta.engine import DeltaTable
    from airflow_delta.engine.maintenance.reports import format_report

    facts = DeltaTable(options.uri).health().to_dict()
    gains = facts.pop("gains")
    for gain in gains.values():
        if gain["reason"] is not None:
            gain["reason"] = in_cli_words(gain["reason"])
    if options.json:
        print_json({"table_uri": options.uri, **facts, "gains": gains})
        return
    for line in format_report(
        {**facts, **{f"gain_of_{name}": [gain] for name, gain in gains.items()}}
    ):
        print_line(line)
