"""Check that new files have as many rows as should stay of the files that they replace.

The numbers are those of the log, and of the footers of files whose statistics don't say how many rows they
have.

Spec: PROTOCOL.md, "Per-file Statistics" (``numRecords``), "Deletion Vectors" (``cardinality``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.arrow.statistics.parse import num_records
from airflow_delta.engine.errors import InvalidTableError
from airflow_delta.spark.reader.data_files import read_footer

__all__ = ["check_row_count", "check_row_counts", "rows_that_stay"]


def check_row_counts(
    table: DeltaTable,
    files: pa.Table,
    found: Sequence[int],
    *,
    deleted: Mapping[int, BitMap64] | None = None,
) -> None:
    """Check the number of rows that were written for each file.

    Args:
        table: the table.
        files: the former files, with ``path``, ``stats`` and ``deletionVector``.
        found: the number of rows that were written, for each of them.
        deleted: the rows that were left out, by the index of the file; None: what the files' own deletion
            vectors delete.

    Raises:
        InvalidTableError: they aren't the rows that should stay, according to the statistics of a file.
    """
    expected = _by_statistics(files, deleted)
    for path, count, written in zip(files["path"].to_pylist(), expected, found, strict=True):
        if count is not None and written != count:
            raise _other_rows(table, path, written, count)


def check_row_count(
    table: DeltaTable,
    files: pa.Table,
    found: int,
    stay: Sequence[int],
    *,
    deleted: Mapping[int, BitMap64] | None = None,
) -> None:
    """Check the number of rows that were written for all files together.

    Args:
        table: the table.
        files: see `check_row_counts`; with ``size`` too.
        found: the number of rows that were written.
        stay: the number of rows that should be, of each file (`rows_that_stay`).
        deleted: see `check_row_counts`.

    Raises:
        InvalidTableError: there are more or fewer than should stay.
        StorageError: a footer can't be read.
    """
    if found == sum(stay):
        return
    for index, path in enumerate(files["path"].to_pylist()):
        stored = _by_footer(table, files, deleted, index)
        if stored != stay[index]:
            raise _other_rows(table, path, stored, stay[index])
    raise InvalidTableError(
        f"the rows of {len(stay)} files were rewritten: {found} of them, but {sum(stay)} should stay; "
        "nothing was committed; check the files by DeltaTable.check",
        table=table.uri,
    )


def rows_that_stay(
    table: DeltaTable, files: pa.Table, *, deleted: Mapping[int, BitMap64] | None = None
) -> list[int]:
    """Get the number of rows of each file that aren't deleted.

    Args:
        table: the table.
        files: see `check_row_count`.
        deleted: see `check_row_counts`.

    Raises:
        InvalidTableError: more rows of a file are deleted than it has, according to its statistics.
        StorageError: a footer can't be read.
    """
    found = [
        _by_footer(table, files, deleted, index) if count is None else count
        for index, count in enumerate(_by_statistics(files, deleted))
    ]
    for path, count in zip(files["path"].to_pylist(), found, strict=True):
        if count < 0:
            raise InvalidTableError(
                f"the file {path!r} has {-count} fewer rows according to its statistics than are deleted "
                "in it: nothing was committed; find out what is wrong with the file",
                table=table.uri,
                path=path,
            )
    return found


def _by_statistics(files: pa.Table, deleted: Mapping[int, BitMap64] | None) -> list[int | None]:
    """The rows of each file that stay; None if its statistics don't say how many it has."""
    found: list[int | None] = pc.subtract(
        num_records(files["stats"]), _num_deleted(files, deleted)
    ).to_pylist()
    return found


def _by_footer(
    table: DeltaTable, files: pa.Table, deleted: Mapping[int, BitMap64] | None, index: int
) -> int:
    """The rows of a file that stay, by its footer."""
    path, size = files["path"][index].as_py(), files["size"][index].as_py()
    num_deleted = int(_num_deleted(files.slice(index, 1), _only(deleted, index))[0].as_py())
    return int(read_footer(table, path, size).num_rows) - num_deleted


def _only(deleted: Mapping[int, BitMap64] | None, index: int) -> Mapping[int, BitMap64] | None:
    return None if deleted is None else {0: deleted.get(index, BitMap64())}


def _num_deleted(
    files: pa.Table, deleted: Mapping[int, BitMap64] | None
) -> pa.Array | pa.ChunkedArray:
    if deleted is None:
        return pc.coalesce(pc.struct_field(files["deletionVector"], "cardinality"), 0)
    return pa.array([len(deleted.get(n, ())) for n in range(files.num_rows)], pa.int64())


def _other_rows(table: DeltaTable, path: str, found: int, expected: int) -> InvalidTableError:
    return InvalidTableError(
        f"the file {path!r} has {found} rows that aren't deleted, but according to its "
        f"statistics and its deletion vector it has {expected}: nothing was committed; find out "
        "what is wrong with the file",
        table=table.uri,
        path=path,
    )
