"""``airflow-delta history URI``: the commits of a table, newest first."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from typing import Any

from airflow_delta.cli.output import print_json, print_line
from airflow_delta.engine.public_text import printable

__all__ = ["add_parser", "history", "run"]


def add_parser(subcommands: Any) -> None:
    """Add this subcommand to the command's parser."""
    parser = subcommands.add_parser("history", help="the commits, newest first")
    parser.add_argument("uri", metavar="URI", help="the table's path or URI")
    parser.add_argument("--limit", type=_positive, help="the number of newest commits to show")
    parser.add_argument("--json", action="store_true", help="print one JSON object for each commit")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Print the commits.

    Raises:
        DeltaError: the table can't be read.
    """
    commits = history(options.uri, limit=options.limit)
    if options.json:
        for commit in commits:
            print_json(commit, indent=None)
        return
    print_line(f"{'version':>7}  {'timestamp':<24}  {'operation':<20}  parameters")
    for commit in commits:
        when = "-" if commit["timestamp"] is None else commit["timestamp"]
        parameters = json.dumps(commit["operation_parameters"] or {})
        operation = printable(commit["operation"] or "-")
        line = f"{commit['version']:>7}  {when:<24}  {operation:<20}  {parameters}"
        print_line(line + _writer(commit["task_run"]))


def _writer(task_run: Mapping[str, Any] | None) -> str:
    """The end of a line: the run of the Airflow task that made the commit, if it is known."""
    if task_run is None:
        return ""
    index = "" if task_run["map_index"] is None else f"[{task_run['map_index']}]"
    number = "" if task_run["try_number"] is None else f", try {task_run['try_number']}"
    task = printable(f"{task_run['dag_id']}.{task_run['task_id']}{index}")
    return f"  by {task} in {printable(task_run['run_id'])}{number}"


def history(uri: str, *, limit: int | None = None) -> list[dict[str, Any]]:
    """The commits of a table as JSON values, newest first.

    Raises:
        DeltaError: the table can't be read.
    """
    from airflow_delta.engine import DeltaTable

    return [info.to_dict() for info in DeltaTable(uri).history(limit=limit)]


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected a number of 1 or more, found {text!r}")
    return number
