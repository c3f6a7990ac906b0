"""Parse the command line and run one verb; each verb is a module of this package.

Exit status: 0, or what the verb says; 1 where the table can't be read or changed, or its commit owner
can't be asked, with the reason on standard error; 2 for a wrong command line.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from airflow_delta.cli import (
    cleanup,
    commits,
    describe,
    doctor,
    drop_feature,
    history,
    restore,
    vacuum,
)
from airflow_delta.engine.errors import DeltaError
from airflow_delta.engine.version import VERSION

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Args:
        arguments: the words of the command line after the command's name; None: the process's own.

    Returns:
        The exit status.
    """
    parser = argparse.ArgumentParser(
        prog="airflow-delta",
        description="Look at Delta tables, and maintain them. Object stores take their credentials from "
        "the environment, as the tools of their vendors do; the commit owner of managed tables takes its "
        "database from AIRFLOW_DELTA_COMMIT_OWNER_URL.",
    )
    parser.add_argument("--version", action="version", version=f"airflow-delta {VERSION}")
    verbs = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for verb in (describe, history, commits, cleanup, vacuum, restore, drop_feature, doctor):
        verb.add_parser(verbs)
    options = parser.parse_args(arguments)
    try:
        status = options.run(options) or 0
        sys.stdout.flush()
    except DeltaError as error:
        print(f"airflow-delta: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # The reader, `head` for instance, has seen enough. Python flushes standard output again
        # when it exits, which must not fail a second time.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return int(status)
