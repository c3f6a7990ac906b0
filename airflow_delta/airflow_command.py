"""``airflow delta …``: the command line of this package as a command of Airflow's.

Airflow calls `get_delta_commands` whenever its command line starts, so this module imports nothing before
the command runs.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow.cli.cli_config import CLICommand

__all__ = ["get_delta_commands", "run"]


def get_delta_commands() -> list[CLICommand]:
    """The commands that this provider adds to ``airflow``."""
    from airflow.cli.cli_config import ActionCommand, Arg

    return [
        ActionCommand(
            name="delta",
            help="Inspect and maintain Delta tables",
            description="Inspect and maintain Delta tables, as `airflow-delta` does. "
            "`airflow delta describe --help` has the options of a subcommand, "
            "`airflow delta help` the list of all.",
            func=run,
            args=(
                Arg(  # type: ignore[no-untyped-call]
                    ("words",),
                    nargs=argparse.REMAINDER,
                    metavar="SUBCOMMAND ...",
                    help="The subcommand and its arguments, as for airflow-delta",
                ),
            ),
        )
    ]


def run(arguments: argparse.Namespace) -> None:
    """Run the command, and end the process with its exit status.

    Args:
        arguments: what Airflow has parsed: ``words``, the command line after ``airflow delta``.

    Raises:
        SystemExit: always.
    """
    from airflow_delta.cli.main import main

    words = list(arguments.words)
    sys.exit(main(["--help"] if words in ([], ["help"]) else words, program="airflow delta"))
