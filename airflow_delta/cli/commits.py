"""``airflow-delta commits URI``: show a table's commit owner and its ratified and backfilled versions.

The environment names the database of the SQL commit owner, as for every process outside Airflow. If
the owner can't be reached, the facts from the log are printed before the error: the owner and the
backfilled version.

Two options change the owner's records, but not the table: ``--relocate`` after the table has moved,
and ``--accept-log`` to give up lost commits, which is a dry run without ``--yes``. The result is printed
with the facts. They work with the SQL owner only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from airflow_delta.cli.options import (
    VERSION_NUMBER,
    at_most_one,
    json_option,
    only_with,
    subcommand,
)
from airflow_delta.cli.output import print_json, print_line
from airflow_delta.cli.reports import print_how_to_proceed
from airflow_delta.cli.target import Target, table_options

if TYPE_CHECKING:
    from airflow_delta.engine import DeltaTable

__all__ = ["commits"]

_UNKNOWN = "?"

_DONE = {
    "relocated_from": "relocated from",
    "relocated_to": "relocated to",
    "accepted_version": "accepted version",
    "given_up_version": "given up version",
}
"""The facts about changes of the owner's records, with their names for people."""
_PLANNED = {"accepted_version": "would accept version", "given_up_version": "would give up version"}
"""The names in a dry run."""


@subcommand(
    "commits", help="Show the commit owner, and which versions are ratified and backfilled."
)
@table_options()
@click.option(
    "--relocate",
    is_flag=True,
    help="Record in the owner's database that the table has moved here; refused if it seems to be at its "
    "old location still.",
)
@click.option(
    "--accept-log",
    type=VERSION_NUMBER,
    metavar="VERSION",
    help="Have the owner permanently give up the commits after VERSION, which must be the newest one that "
    "is left after the loss of ratified commits; first stop all writers. A dry run without --yes.",
)
@click.option("--yes", "-y", is_flag=True, help="Give up the commits, with --accept-log.")
@click.option(
    "--dry-run",
    is_flag=True,
    help="With --accept-log, only report what would be given up: the default.",
)
@json_option
def commits(
    target: Target,
    *,
    relocate: bool,
    accept_log: int | None,
    yes: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Make the requested change of the owner's records, and print the facts.

    Raises:
        InvalidArgumentError: a change is requested, and the table has no owner, or another one than SQL.
        CommitOwnerError: the table's commit owner can't be reached, or refuses; the facts from the log are
            printed.
        DeltaError: the table can't be read.
    """
    from airflow_delta.engine.errors import CommitOwnerError

    at_most_one(relocate=relocate, accept_log=accept_log)
    at_most_one(yes=yes, dry_run=dry_run)
    at_most_one(relocate=relocate, dry_run=dry_run)
    only_with("accept_log", accept_log, yes=yes, dry_run=dry_run)
    table = target.open()
    try:
        done = _repair(table, accept_log, relocate=relocate, dry_run=not yes)
        facts = {"table_uri": target.uri, **table.commit_status().to_dict(), **done}
    except CommitOwnerError:
        _print(_backfilled_commits(table), as_json=as_json)
        raise
    _print(facts, as_json=as_json)
    if accept_log is not None:
        print_how_to_proceed("given up", yes=yes, dry_run=dry_run, as_json=as_json)


def _repair(
    table: DeltaTable, accept_log: int | None, *, relocate: bool, dry_run: bool
) -> dict[str, Any]:
    """Make the requested change of the owner's records, and return facts about it; empty for none."""
    if relocate:
        return {
            "relocated_from": table.relocate(),
            "relocated_to": table.storage.canonical_location,
        }
    if accept_log is not None:
        latest = table.accept_log(accept_log, dry_run=dry_run)
        return {"accepted_version": accept_log, "given_up_version": latest, "dry_run": dry_run}
    return {}


def _backfilled_commits(table: DeltaTable) -> dict[str, Any]:
    """The same facts from the log alone; the others are None."""
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
    lines = {
        "owner": facts["owner"] or "- (the file system)",
        "standing": facts["standing"] or (_UNKNOWN if facts["owner"] else "-"),
        "accepts commits": {True: "yes", False: "no", None: _UNKNOWN}[facts["accepts_commits"]],
        **{
            name.replace("_", " "): _UNKNOWN if facts[name] is None else facts[name]
            for name in ("ratified_version", "backfilled_version", "lag")
        },
    }
    names = {**_DONE, **_PLANNED} if facts.get("dry_run") else _DONE
    lines |= {text: facts[name] for name, text in names.items() if name in facts}
    width = max(map(len, lines))
    for name, value in lines.items():
        print_line(f"{name:<{width}}  {value}")
