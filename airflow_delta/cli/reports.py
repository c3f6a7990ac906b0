"""Options and reports of subcommands that change a table."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from airflow_delta.cli.output import print_json, print_line
from airflow_delta.cli.wording import in_cli_words

__all__ = ["add_report_options", "hours", "print_report", "version_number"]

_MOST_HOURS = 1e9


def add_report_options(parser: argparse.ArgumentParser) -> None:
    """Add the table's location, ``--dry-run`` and ``--json``."""
    parser.add_argument("uri", metavar="URI", help="the table's path or URI")
    parser.add_argument("--dry-run", action="store_true", help="only report what would be done")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def hours(text: str) -> float:
    """Parse a number of hours.

    Raises:
        argparse.ArgumentTypeError: it isn't a number, or is negative.
    """
    number = float(text)
    if not 0 <= number <= _MOST_HOURS:
        raise argparse.ArgumentTypeError(f"expected a number of hours, at least 0, found {text!r}")
    return number


def version_number(text: str) -> int:
    """Parse a version.

    Raises:
        argparse.ArgumentTypeError: it isn't a version.
    """
    if not (text.isascii() and text.isdecimal()):
        raise argparse.ArgumentTypeError(f"expected a version, at least 0, found {text!r}")
    return int(text)


def print_report(options: argparse.Namespace, report: Mapping[str, Any]) -> None:
    """Print a report, as text or as one JSON object."""
    from airflow_delta.engine.maintenance.reports import format_report

    facts = {**report, "dry_run": options.dry_run}
    if isinstance(facts.get("reason"), str):
        facts["reason"] = in_cli_words(facts["reason"])
    if options.json:
        print_json({"table_uri": options.uri, **facts})
        return
    for line in format_report(facts):
        print_line(line)
