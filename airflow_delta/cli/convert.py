"""``airflow-delta convert URI``: convert a directory of Parquet files to a Delta table."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from airflow_delta.cli.reports import add_report_options, print_report

__all__ = ["add_parser", "run"]


def add_parser(subcommands: Any) -> None:
    """Add this subcommand to the command's parser."""
    parser = subcommands.add_parser(
        "convert", help="convert a directory of Parquet files to a Delta table, in place"
    )
    add_report_options(parser)
    parser.add_argument(
        "--partition",
        action="append",
        default=[],
        type=_column_type,
        metavar="COLUMN:TYPE",
        help="a column in the names of subdirectories, such as day:date; may be given more than once, in "
        "the order of the table's partition columns",
    )
    parser.add_argument(
        "--files-from",
        type=Path,
        metavar="FILE",
        help="a text with the paths of the files below the directory, a line each; default: all files",
    )
    parser.add_argument(
        "--property",
        action="append",
        default=[],
        type=_property,
        metavar="NAME=VALUE",
        help="a table property; may be given more than once",
    )
    parser.add_argument(
        "--no-statistics",
        action="store_true",
        help="make no statistics from the footers of the files",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Convert the directory, and print what was done.

    Raises:
        DeltaError: the files can't be one table, or can't be read.
    """
    from airflow_delta.engine import DeltaTable

    result = DeltaTable.convert(
        options.uri,
        dict(options.partition),
        files=None if options.files_from is None else _lines(options.files_from),
        properties=dict(options.property),
        collect_statistics=not options.no_statistics,
        dry_run=options.dry_run,
    )
    print_report(options, result.to_dict())


def _column_type(text: str) -> tuple[str, str]:
    # Names of columns may contain a colon; those of types don't.
    column, _, kind = text.rpartition(":")
    return _checked(column, kind, ":", text)


def _property(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return _checked(name, value, "=", text)


def _checked(name: str, value: str, separator: str, text: str) -> tuple[str, str]:
    if not (name and value):
        raise argparse.ArgumentTypeError(
            f"expected a name, {separator!r} and a value, found {text!r}"
        )
    return name, value


def _lines(file: Path) -> list[str]:
    from airflow_delta.engine.errors import InvalidArgumentError

    try:
        return [line for line in file.read_text(encoding="utf-8").split("\n") if line]
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgumentError(f"files: {str(file)!r} can't be read: {error}") from error
