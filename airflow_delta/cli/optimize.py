"""``airflow-delta optimize URI``: rewrite small files, and files with many deleted rows; sort rows."""

from __future__ import annotations

import click

from airflow_delta.cli.options import dry_run_option, json_option, subcommand
from airflow_delta.cli.reports import print_report
from airflow_delta.cli.target import Target, table_options

__all__ = ["optimize"]


@subcommand(
    "optimize",
    help="Rewrite small files, and files with many deleted rows; sort rows.",
    is_long=True,
)
@table_options(outside=True)
@click.option(
    "--where", metavar="CONDITION", help="Choose partitions, such as \"day >= '2026-01-01'\"."
)
@click.option(
    "--min-file-size",
    type=int,
    metavar="BYTES",
    help="Rewrite files of fewer bytes; default: half of the size of new files.",
)
@click.option(
    "--max-file-size",
    type=int,
    metavar="BYTES",
    help="The size of new files; default: the property delta.targetFileSize, or 128 MiB.",
)
@click.option(
    "--max-deleted-ratio",
    type=float,
    metavar="RATIO",
    help="Rewrite files with a larger part of deleted rows; default: 0.05.",
)
@click.option(
    "--purge", is_flag=True, help="Rewrite just the files with deleted rows, however few."
)
@click.option(
    "--z-order-by",
    default="",
    metavar="COLUMNS",
    help="Sort the files of each partition by these columns, such as day,address.city (Z-order).",
)
@click.option(
    "--full",
    is_flag=True,
    help="Sort also what is sorted already; of a clustered table also what others have clustered.",
)
@click.option(
    "--min-cube-size",
    type=int,
    metavar="BYTES",
    help="No other files are clustered with files that were clustered together and have at least this many "
    "bytes; default: 100 GiB.",
)
@click.option(
    "--max-bytes", type=int, metavar="BYTES", help="The most bytes to rewrite in this run."
)
@dry_run_option
@json_option
def optimize(
    target: Target,
    *,
    where: str | None,
    min_file_size: int | None,
    max_file_size: int | None,
    max_deleted_ratio: float | None,
    purge: bool,
    z_order_by: str,
    full: bool,
    min_cube_size: int | None,
    max_bytes: int | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Optimize the table, and print what was done.

    Raises:
        DeltaError: the table can't be read or optimized.
    """
    from airflow_delta.engine.model.sql_names import listed_columns

    result = target.open().optimize(
        where,
        min_file_size=min_file_size,
        max_file_size=max_file_size,
        max_deleted_ratio=max_deleted_ratio,
        purge=purge,
        z_order_by=listed_columns(z_order_by, "--z-order-by"),
        full=full,
        max_bytes=max_bytes,
        min_cube_size=min_cube_size,
        dry_run=dry_run,
    )
    print_report(target.uri, result.to_dict(), as_json=as_json, dry_run=dry_run)
