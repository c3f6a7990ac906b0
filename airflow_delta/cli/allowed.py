"""What verbs have in common that open the files of a table: what the table may read outside of its root."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_delta.engine import DeltaTable

__all__ = ["add_allowed_outside", "open_table"]


def add_allowed_outside(parser: argparse.ArgumentParser) -> None:
    """Add the locations outside of the table below which it may read."""
    parser.add_argument(
        "--allowed-outside",
        action="append",
        default=[],
        metavar="LOCATION",
        help="a location outside of the table below which it may read files that its log names, as a "
        "shallow clone has them; may be given more than once",
    )


def open_table(options: argparse.Namespace) -> DeltaTable:
    """The table of the command line.

    Raises:
        InvalidArgumentError: its location, or an allowed one, makes no sense.
    """
    from airflow_delta.engine import DeltaTable

    return DeltaTable(options.uri, allowed_outside=options.allowed_outside)
