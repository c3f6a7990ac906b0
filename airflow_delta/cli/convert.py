"""``airflow-delta convert URI``: convert a directory of Parquet files to a Delta table."""

from __future__ import annotations

from pathlib import Path

import click

from airflow_delta.cli.options import PairType, dry_run_option, json_option, subcommand
from airflow_delta.cli.reports import print_report
from airflow_delta.cli.target import Target, table_options

__all__ = ["convert"]


@subcommand(
    "convert", help="Convert a directory of Parquet files to a Delta table, in place.", is_long=True
)
@table_options()
@click.option(
    "--partition",
    multiple=True,
    # Names of columns may contain a colon; those of types don't.
    type=PairType(":", is_last=True),
    metavar="COLUMN:TYPE",
    help="A column in the names of subdirectories, such as day:date; may be given more than once, in "
    "the order of the table's partition columns.",
)
@click.option(
    "--files-from",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A text with the paths of the files below the directory, a line each; default: all files.",
)
@click.option(
    "--property",
    "properties",
    multiple=True,
    type=PairType("="),
    metavar="NAME=VALUE",
    help="A table property; may be given more than once.",
)
@click.option(
    "--no-statistics", is_flag=True, help="Make no statistics from the footers of the files."
)
@dry_run_option
@json_option
def convert(
    target: Target,
    *,
    partition: tuple[tuple[str, str], ...],
    files_from: Path | None,
    properties: tuple[tuple[str, str], ...],
    no_statistics: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Convert the directory, and print what was done.

    Raises:
        DeltaError: the files can't be one table, or can't be read.
    """
    from airflow_delta.engine import DeltaTable

    access = target.access()
    result = DeltaTable.convert(
        access.uri,
        dict(partition),
        files=None if files_from is None else _lines(files_from),
        properties=dict(properties),
        collect_statistics=not no_statistics,
        dry_run=dry_run,
        storage_options=access.storage_options,
        commit_owners=access.commit_owners,
    )
    print_report(target.uri, result.to_dict(), as_json=as_json, dry_run=dry_run)


def _lines(file: Path) -> list[str]:
    from airflow_delta.engine.errors import InvalidArgumentError

    try:
        return [line for line in file.read_text(encoding="utf-8").split("\n") if line]
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgumentError(f"files: {str(file)!r} can't be read: {error}") from error
