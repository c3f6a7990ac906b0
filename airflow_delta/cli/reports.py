"""Print the reports of subcommands that change a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_delta.cli.output import print_json, print_line, print_note
from airflow_delta.cli.wording import in_cli_words

__all__ = ["print_how_to_proceed", "print_report"]


def print_report(
    uri: str, report: Mapping[str, Any], *, as_json: bool, dry_run: bool = False
) -> None:
    """Print a report, as text or as one JSON object.

    Args:
        uri: the table.
        report: the report; see ``maintenance/reports.py``.
        as_json: whether as JSON.
        dry_run: whether it only says what would be done.
    """
    from airflow_delta.engine.maintenance.reports import format_report

    facts = {**report, "dry_run": dry_run}
    if isinstance(facts.get("reason"), str):
        facts["reason"] = in_cli_words(facts["reason"])
    if as_json:
        print_json({"table_uri": uri, **facts})
        return
    for line in format_report(facts):
        print_line(line)


def print_how_to_proceed(done: str, *, yes: bool, dry_run: bool, as_json: bool) -> None:
    """Print how to do what has only been reported, unless a dry run was requested.

    Args:
        done: what wasn't done to anything, such as ``deleted``.
        yes: whether it was done.
        dry_run: whether ``--dry-run`` was given.
        as_json: whether the output is for a program; it has ``dry_run`` then.
    """
    if not (yes or dry_run or as_json):
        print_note(f"nothing was {done}; run the command again with --yes to do so")
