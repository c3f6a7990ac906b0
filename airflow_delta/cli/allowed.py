"""The option ``--allowed-outside`` of subcommands that open the files of a table."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_delta.engine import DeltaTable

__all__ = ["add_allowed_outside", "open_table"]


def add_allowed_outside(parser: argparse.ArgumentParser) -> None:
    """Add the option ``--allowed-outside``."""
    parser.add_argument(
        "--allowed-outside",
        action="append",
        default=[],
        metavar="LOCATION",
        help="a location outside of the table below which it may read files that its log names, such as "
        "files of a shallow clone; may be given more than once",
    )


def open_table(options: argparse.Namespace) -> DeltaTable:
    """Create the table object for the command line.

    Raises:
        InvalidArgumentError: its location, or an allowed one, is invalid.
    """
    from airflow_delta.engine import DeltaTable

    return DeltaTable(options.uri, allowed_outside=options.allowed_outside)
