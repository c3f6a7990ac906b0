"""The command ``airflow-delta``: its subcommands, each of which is imported when it is needed."""

from __future__ import annotations

from importlib import import_module

import click

from airflow_delta.cli.options import CommandGroup
from airflow_delta.engine.version import VERSION

__all__ = ["PROGRAM", "SUBCOMMANDS", "airflow_delta"]

PROGRAM = "airflow-delta"

SUBCOMMANDS = (
    "describe",
    "history",
    "files",
    "scan",
    "diff",
    "commits",
    "doctor",
    "health",
    "checkpoint",
    "compact-log",
    "backfill",
    "cleanup",
    "convert",
    "alter",
    "optimize",
    "vacuum",
    "restore",
    "drop-feature",
    "completion",
    "json-schema",
)
"""The subcommands, in the order of ``--help``; each is a module with a function of its name."""


class _Subcommands(CommandGroup):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """List the names of the subcommands, without importing any."""
        return list(SUBCOMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import one subcommand; None if there is none of this name."""
        if cmd_name not in SUBCOMMANDS:
            return None
        name = cmd_name.replace("-", "_")
        command = getattr(import_module(f"airflow_delta.cli.{name}"), name)
        assert isinstance(command, click.Command)
        return command


@click.group(
    cls=_Subcommands,
    name=PROGRAM,
    help="Inspect and maintain Delta tables. Credentials of object stores come from the environment, as "
    "for the vendors' own tools, from --storage-option or from an Airflow connection. The database of the "
    "commit owner of managed tables comes from AIRFLOW_DELTA_COMMIT_OWNER_URL.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(VERSION, prog_name=PROGRAM, message="%(prog)s %(version)s")
def airflow_delta() -> None:
    """The command; each subcommand is a module."""
