"""Parse the command line and run one subcommand; each subcommand is a module of this package.

Exit status:

* 0: success;
* 1: the table can't be read or changed, or its commit owner can't be reached, with the reason on standard
  error; or ``doctor`` has found an error;
* 2: the command line is wrong;
* 3: only ``drop-feature``: not dropped yet, run it again.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from airflow_delta.cli import (
    backfill,
    checkpoint,
    cleanup,
    commits,
    compact_log,
    convert,
    describe,
    doctor,
    drop_feature,
    health,
    history,
    optimize,
    restore,
    vacuum,
)
from airflow_delta.cli.output import print_error, print_usage_error, warnings_as_lines
from airflow_delta.engine.errors import DeltaError
from airflow_delta.engine.version import VERSION

__all__ = ["main"]

_SUBCOMMANDS = (
    describe,
    history,
    commits,
    doctor,
    health,
    checkpoint,
    compact_log,
    backfill,
    cleanup,
    convert,
    optimize,
    vacuum,
    restore,
    drop_feature,
)

_WRONG_COMMAND_LINE = 2


class _UsageError(Exception):
    """The command line is wrong. Arguments: the usage of its subcommand, and the message."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Raise an error, instead of printing and exiting."""
        raise _UsageError(self.format_usage(), message)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Args:
        arguments: the command line after the command's name; None: that of the process.

    Returns:
        The exit status.

    Raises:
        SystemExit: the command line is wrong, or contains ``--help``.
    """
    words = sys.argv[1:] if arguments is None else list(arguments)
    try:
        options = _parser().parse_args(words)
    except _UsageError as wrong:
        usage, message = wrong.args
        print_usage_error(usage, message, as_json="--json" in words)
        raise SystemExit(_WRONG_COMMAND_LINE) from None
    try:
        with warnings_as_lines(as_json=options.json):
            status = options.run(options) or 0
        sys.stdout.flush()
    except DeltaError as error:
        print_error(error, as_json=options.json)
        return 1
    except BrokenPipeError:
        # The reader, for example `head`, has closed the pipe. Python flushes standard output again at exit,
        # which must not fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return int(status)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="airflow-delta",
        description="Inspect and maintain Delta tables. Credentials of object stores come from the "
        "environment, as for the vendors' own tools; the database of the commit owner of managed tables "
        "comes from AIRFLOW_DELTA_COMMIT_OWNER_URL.",
    )
    parser.add_argument("--version", action="version", version=f"airflow-delta {VERSION}")
    subcommands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for subcommand in _SUBCOMMANDS:
        subcommand.add_parser(subcommands)
    return parser
