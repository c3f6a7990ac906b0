"""Parse the command line and run one subcommand; see ``group.py`` for the subcommands.

Exit status:

* 0: success;
* 1: the table can't be read or changed, its commit owner can't be reached, or standard output can't be
  written, with the reason on standard error; or ``doctor`` has found an error;
* 2: the command line is wrong;
* 3: only ``drop-feature``: not dropped yet, run it again;
* 130: interrupted.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import click
from click.shell_completion import shell_complete

from airflow_delta.cli.completion import COMPLETE_VARIABLE
from airflow_delta.cli.group import PROGRAM, airflow_delta
from airflow_delta.cli.output import (
    flush_results,
    print_error,
    print_interrupt,
    print_usage,
    print_usage_error,
    warnings_as_lines,
)
from airflow_delta.engine.errors import DeltaError, InvalidArgumentError

__all__ = ["main"]

_WRONG_COMMAND_LINE = 2
_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None, *, program: str = PROGRAM) -> int:
    """Run the command.

    Args:
        arguments: the command line after the command's name; None: that of the process.
        program: the name of the command, for its usage.

    Returns:
        The exit status.

    Raises:
        SystemExit: the command line is wrong, or contains ``--help``.
    """
    if instruction := os.environ.get(COMPLETE_VARIABLE):
        return shell_complete(airflow_delta, {}, PROGRAM, COMPLETE_VARIABLE, instruction)
    words = sys.argv[1:] if arguments is None else list(arguments)
    as_json = "--json" in words
    if sys.stderr is None:  # It is closed, and `print` would take standard output instead.
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - never closed
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A character that the terminal lacks mustn't end the command, perhaps after its work.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        with warnings_as_lines(as_json=as_json):
            return _run(words, program)
    except click.exceptions.Exit as ended:
        raise SystemExit(ended.exit_code) from None
    except click.exceptions.NoArgsIsHelpError as wrong:
        if as_json:
            print_usage_error("", "a subcommand is missing; see --help", as_json=True)
        else:
            print_usage(wrong.format_message())
        raise SystemExit(_WRONG_COMMAND_LINE) from None
    except click.UsageError as wrong:
        usage = "" if wrong.ctx is None else wrong.ctx.get_usage()
        print_usage_error(usage, wrong.format_message(), as_json=as_json)
        raise SystemExit(_WRONG_COMMAND_LINE) from None
    except DeltaError as error:
        print_error(error, as_json=as_json)
        return 1
    except KeyboardInterrupt:
        print_interrupt(as_json=as_json)
        return _INTERRUPTED
    except BrokenPipeError:
        return 0  # The reader, for example `head`, has enough.


def _run(words: list[str], program: str) -> int:
    if sys.stdout is None:
        raise InvalidArgumentError(
            "standard output is closed, so nothing was done; redirect it to /dev/null if you don't need "
            "the result"
        )
    try:
        with airflow_delta.make_context(program, words) as context:
            status = airflow_delta.invoke(context) or 0
    except OSError:
        flush_results()  # This is the reason if click couldn't print the help.
        raise
    flush_results()
    return status
