"""``airflow-delta commits URI``: who decides about the commits of a table, and how far they have come.

The database of the SQL commit owner is what the environment names, as for every process that isn't a task
of Airflow. Where the owner can't be asked, the facts that the log tells are printed all the same, before
the error: which owner it is, and what is backfilled.
"""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_delta.engine import DeltaTable

__all__ = ["add_parser", "commits", "run"]

_UNKNOWN = "?"


def add_parser(verbs: Any) -> None:
    """Add this verb to the command's parser."""
    parser = verbs.add_parser(
        "commits", help="the commit owner, and which versions are ratified and backfilled"
    )
    parser.add_argument("uri", metavar="URI", help="the table's path or URI")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Print the facts.

    Raises:
        CommitOwnerError: the table's commit owner can't be asked; what the log tells is printed.
        DeltaError: the table can't be read.
    """
    from airflow_delta.engine import DeltaTable
    from airflow_delta.engine.errors import CommitOwnerError

    table = DeltaTable(options.uri)
    try:
        facts = commits(table)
    except CommitOwnerError:
        _print(_backfilled_commits(table), as_json=options.json)
        raise
    _print(facts, as_json=options.json)


def commits(table: DeltaTable) -> dict[str, Any]:
    """Who decides about the commits of a table, and how far they have come, as JSON values.

    Of a table that the file system manages ``owner`` and ``standing`` are None, and every version is
    backfilled.

    Raises:
        CommitOwnerError: the table's commit owner can't be asked.
        DeltaError: the table can't be read.
    """
    from airflow_delta.engine.commit.owner import Standing

    status = table.commit_status()
    return {
        "table_uri": table.uri,
        "owner": status.owner,
        "standing": None if status.standing is None else status.standing.value,
        "accepts_commits": status.standing in (None, Standing.ACTIVE),
        "ratified_version": status.ratified_version,
        "backfilled_version": status.backfilled_version,
        "lag": status.lag,
    }


def _backfilled_commits(table: DeltaTable) -> dict[str, Any]:
    """The same facts as far as the log tells them; the others are None."""
    from airflow_delta.engine.maintenance.backfilled import open_backfilled

    newest = open_backfilled(table.storage)
    return {
        "table_uri": table.uri,
        "owner": newest.properties.commit_owner,
        "standing": None,
        "accepts_commits": None,
        "ratified_version": None,
        "backfilled_version": newest.version,
        "lag": None,
    }


def _print(facts: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(facts, indent=2))
        return
    told = {
        "owner": facts["owner"] or "- (the file system)",
        "standing": facts["standing"] or (_UNKNOWN if facts["owner"] else "-"),
        "accepts commits": {True: "yes", False: "no", None: _UNKNOWN}[facts["accepts_commits"]],
        **{
            name.replace("_", " "): _UNKNOWN if facts[name] is None else facts[name]
            for name in ("ratified_version", "backfilled_version", "lag")
        },
    }
    width = max(map(len, told))
    for name, value in told.items():
        print(f"{name:<{width}}  {value}")
