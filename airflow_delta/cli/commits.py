"""``airflow-delta commits URI``: who decides about the commits of a table, and how far they have come.

The database of the SQL commit owner is what the environment names, as for every process that isn't a task
of Airflow. Where the owner can't be asked, the facts that the log tells are printed all the same, before
the error: which owner it is, and what is backfilled.

Two options change what the owner knows, and nothing in the table: ``--relocate`` tells it where a table is
that has moved, and ``--accept-log`` makes it give up commits that are lost. What was done is printed with
the facts. They are for our own owner; others have tools of their own.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from airflow_delta.cli.output import print_json, print_line

if TYPE_CHECKING:
    from airflow_delta.engine import DeltaTable

__all__ = ["add_parser", "commits", "run"]

_UNKNOWN = "?"

_DONE = ("relocated_from", "relocated_to", "accepted_version", "given_up_version")
"""The facts that tell what was done."""


def add_parser(verbs: Any) -> None:
    """Add this verb to the command's parser."""
    parser = verbs.add_parser(
        "commits", help="the commit owner, and which versions are ratified and backfilled"
    )
    parser.add_argument("uri", metavar="URI", help="the table's path or URI")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    repairs = parser.add_mutually_exclusive_group()
    repairs.add_argument(
        "--relocate",
        action="store_true",
        help="tell the owner that the table has moved here; refused where it is still at its old place, as "
        "far as that can be seen",
    )
    repairs.add_argument(
        "--accept-log",
        type=int,
        metavar="VERSION",
        help="have the owner give up the commits after VERSION for good, which must be the newest one that "
        "is left where ratified commits are lost; stop all writers before",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Print the facts, after what the owner is to be told.

    Raises:
        InvalidArgumentError: the owner is to be told something, and the table has none, or not ours.
        CommitOwnerError: the table's commit owner can't be asked, or refuses; what the log tells is
            printed.
        DeltaError: the table can't be read.
    """
    from airflow_delta.engine import DeltaTable
    from airflow_delta.engine.errors import CommitOwnerError

    table = DeltaTable(options.uri)
    try:
        done = _repaired(table, options)
        facts = {**commits(table), **done}
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
    return {"table_uri": table.uri, **table.commit_status().to_dict()}


def _repaired(table: DeltaTable, options: argparse.Namespace) -> dict[str, Any]:
    """What the owner was told, as facts; none where nothing was asked for."""
    if options.relocate:
        return {"relocated_from": table.relocate(), "relocated_to": table.storage.place}
    if options.accept_log is not None:
        latest = table.accept_log(options.accept_log)
        return {"accepted_version": options.accept_log, "given_up_version": latest}
    return {}


def _backfilled_commits(table: DeltaTable) -> dict[str, Any]:
    """The same facts as far as the log tells them; the others are None."""
    from airflow_delta.engine.maintenance.backfill.backfilled import open_backfilled

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
        print_json(facts)
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
    told |= {name.replace("_", " "): facts[name] for name in _DONE if name in facts}
    width = max(map(len, told))
    for name, value in told.items():
        print_line(f"{name:<{width}}  {value}")
