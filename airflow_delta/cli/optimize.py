"""``airflow-delta optimize URI``: rewrite small files, and files with many deleted rows; sort rows."""

from __future__ import annotations

import argparse
from typing import Any

from airflow_delta.cli.allowed import add_allowed_outside, open_table
from airflow_delta.cli.reports import add_report_options, print_report

__all__ = ["add_parser", "run"]


def add_parser(subcommands: Any) -> None:
    """Add this subcommand to the command's parser."""
    parser = subcommands.add_parser(
        "optimize", help="rewrite small files, and files with many deleted rows; sort rows"
    )
    add_report_options(parser)
    add_allowed_outside(parser)
    parser.add_argument(
        "--where", metavar="CONDITION", help="choose partitions, such as \"day >= '2026-01-01'\""
    )
    parser.add_argument(
        "--min-file-size",
        type=int,
        metavar="BYTES",
        help="rewrite files of fewer bytes; default: half of the size of new files",
    )
    parser.add_argument(
        "--max-file-size",
        type=int,
        metavar="BYTES",
        help="the size of new files; default: the property delta.targetFileSize, or 128 MiB",
    )
    parser.add_argument(
        "--max-deleted-ratio",
        type=float,
        metavar="RATIO",
        help="rewrite files with a larger part of deleted rows; default: 0.05",
    )
    parser.add_argument(
        "--purge", action="store_true", help="rewrite just the files with deleted rows, however few"
    )
    parser.add_argument(
        "--z-order-by",
        default="",
        metavar="COLUMNS",
        help="sort the files of each partition by these columns, such as day,address.city (Z-order)",
    )
    parser.add_argument(
        "--full",
        action="store_true",
        help="sort also what is sorted already; of a clustered table also what others have clustered",
    )
    parser.add_argument(
        "--min-cube-size",
        type=int,
        metavar="BYTES",
        help="files that were clustered together stay if they have so many bytes; default: 100 GiB",
    )
    parser.add_argument(
        "--max-bytes", type=int, metavar="BYTES", help="the most bytes to rewrite in this run"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Optimize the table, and print what was done.

    Raises:
        DeltaError: the table can't be read or optimized.
    """
    from airflow_delta.engine.model.sql_names import listed_columns

    result = open_table(options).optimize(
        options.where,
        min_file_size=options.min_file_size,
        max_file_size=options.max_file_size,
        max_deleted_ratio=options.max_deleted_ratio,
        purge=options.purge,
        z_order_by=listed_columns(options.z_order_by, "--z-order-by"),
        full=options.full,
        max_bytes=options.max_bytes,
        min_cube_size=options.min_cube_size,
        dry_run=options.dry_run,
    )
    print_report(options, result.to_dict())
