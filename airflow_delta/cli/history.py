"""``airflow-delta history URI``: the commits of a table, newest first."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import click

from airflow_delta.cli.options import POSITIVE, json_option, subcommand
from airflow_delta.cli.output import print_json, print_line
from airflow_delta.cli.target import Target, table_options
from airflow_delta.engine.public_text import printable

__all__ = ["history"]


@subcommand(
    "history",
    help="List the commits, newest first; with --json an object in each line.",
    is_long=True,
)
@table_options()
@click.option("--limit", type=POSITIVE, metavar="N", help="The number of newest commits to show.")
@json_option
def history(target: Target, *, limit: int | None, as_json: bool) -> None:
    """Print the commits.

    Raises:
        DeltaError: the table can't be read.
    """
    commits = [info.to_dict() for info in target.open().history(limit=limit)]
    if as_json:
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
