"""``airflow-delta history URI``: the commits of a table, newest first."""

from __future__ import annotations

import argparse
import json
from datetime import datetime, timedelta, timezone
from typing import Any

__all__ = ["add_parser", "history", "run"]

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def add_parser(verbs: Any) -> None:
    """Add this verb to the command's parser."""
    parser = verbs.add_parser("history", help="the commits, newest first")
    parser.add_argument("uri", metavar="URI", help="the table's path or URI")
    parser.add_argument("--limit", type=_positive, help="show only so many of the newest commits")
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
            print(json.dumps(commit))
        return
    print(f"{'version':>7}  {'timestamp':<24}  {'operation':<20}  parameters")
    for commit in commits:
        when = "-" if commit["timestamp"] is None else commit["timestamp"]
        parameters = json.dumps(commit["operation_parameters"] or {})
        print(f"{commit['version']:>7}  {when:<24}  {commit['operation'] or '-':<20}  {parameters}")


def history(uri: str, *, limit: int | None = None) -> list[dict[str, Any]]:
    """The commits of a table as JSON values, newest first.

    Raises:
        DeltaError: the table can't be read.
    """
    from airflow_delta.engine import DeltaTable

    return [
        {
            "version": info.version,
            "timestamp": _iso(
                info.timestamp if info.in_commit_timestamp is None else info.in_commit_timestamp
            ),
            "operation": info.operation,
            "operation_parameters": info.operation_parameters,
            "operation_metrics": info.operation_metrics,
            "engine": info.engine_info,
        }
        for info in DeltaTable(uri).history(limit=limit)
    ]


def _iso(timestamp_ms: int | None) -> str | None:
    if timestamp_ms is None:
        return None
    try:
        when = _EPOCH + timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        # The log is free to hold any number; one that is no time we know is shown as it is.
        return str(timestamp_ms)
    return when.strftime("%Y-%m-%dT%H:%M:%S.") + f"{when.microsecond // 1000:03}Z"


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected a number of 1 or more, found {text!r}")
    return number
