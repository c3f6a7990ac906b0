"""Write the new versions of changed rows, and the rows that a change inserts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_delta.spark.writer.file_writing import write_aligned

if TYPE_CHECKING:
    from airflow_delta.spark.writer.alignment import AlignedRows
    from airflow_delta.spark.writer.new_files import NewFiles
    from airflow_delta.spark.writer.target import WriteTarget

__all__ = ["write_new_versions"]

_FEW_ROWS = 1_000_000
"""Up to so many rows are shuffled, which costs little. Otherwise each task that has found some of them
would write a small file."""


def write_new_versions(
    aligned: AlignedRows,
    target: WriteTarget,
    new_files: NewFiles,
    *,
    num_rows: int | None,
    directory: str | None = None,
) -> None:
    """Write the rows of a change into new data files.

    Args:
        aligned: the rows.
        target: the table.
        new_files: gets the files.
        num_rows: about how many rows there are; None if unknown.
        directory: a new directory of ``new_files``; None for its first one.

    Raises:
        ConstraintViolationError: the rows break a rule of the table.
        StorageError: Spark can't read or write a file.
        PySparkException: Spark's other errors.
    """
    has_few = num_rows is not None and num_rows <= _FEW_ROWS
    unset = target.properties.optimize_write is None
    write_aligned(
        aligned,
        target,
        new_files,
        optimize_write=True if has_few and unset else None,
        directory=directory,
    )
