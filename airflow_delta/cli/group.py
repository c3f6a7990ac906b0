"""The command ``airflow-delta``: its subcommands, each of which is imported when it is needed."""

from __future__ import annotations

from importlib import import_module

import click

from airflow_delta.engine.version import VERSION

__all__ = ["PROGRAM", "SUBCOMMANDS", "airflow_delta"]

PROGRAM = "airflow-delta"

SUBCOMMANDS = (
    "describe",
    "history",
    "commits",
    "doctor",
    "health",
    "checkpoint",
    "compact-log",
    "backfill",
    "cleanup",
    "convert",
    "optimize",
    "vacuum",
    "restore",
    "drop-feature",
)
"""The subcommands, in the order of ``--help``; each is a module with a function of its name."""


class _Subcommands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(SUBCOMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in SUBCOMMANDS:
            return None
        name = cmd_name.replace("-", "_")
        command = getattr(import_module(f"airflow_delta.cli.{name}"), name)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        # click would quote the first argument, which may be a misplaced storage option.
        if args[0] not in SUBCOMMANDS and not args[0].startswith("-"):
            found = args[0] if args[0].isidentifier() else "something else"
            ctx.fail(f"expected a subcommand, found {found}: {', '.join(SUBCOMMANDS)}")
        return super().resolve_command(ctx, args)


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
