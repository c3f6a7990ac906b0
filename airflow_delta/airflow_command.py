"""``airflow delta …``: the command line of this package as a command of Airflow's.

Airflow calls `get_delta_commands` whenever its command line starts, so this module imports nothing before
the command runs.
"""

from __future__ import annotations

import argparse
import os
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

    _send_logs_to_standard_error()
    words = list(arguments.words)
    sys.exit(main(["--help"] if words in ([], ["help"]) else words, program="airflow delta"))


def _send_logs_to_standard_error() -> None:
    """Keep Airflow's logs out of the results.

    Airflow's loggers hold the stream of standard output. So its file descriptor becomes that of standard
    error, and the results get a new stream.
    """
    if sys.stdout is None or sys.stderr is None:
        return  # It is closed.
    try:
        descriptor = sys.stdout.fileno()
    except (OSError, ValueError):
        return  # It is no file, for example in a test.
    sys.stdout.flush()
    results = os.dup(descriptor)
    os.dup2(sys.stderr.fileno(), descriptor)
    sys.stdout = os.fdopen(
        results, "w", encoding=sys.stdout.encoding, errors=sys.stdout.errors, closefd=False
    )
