"""What a caller may choose about an optimization, with the defaults of the table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.engine.features.column_changes.column_paths import ColumnName
from airflow_delta.engine.maintenance.optimize.sorting.order import (
    SortOrder,
    clustering_order,
    z_order,
)
from airflow_delta.engine.model.properties import TableProperties
from airflow_delta.engine.scan.expressions import read_predicate
from airflow_delta.engine.scan.predicates.reading import PredicateLike, as_expression
from airflow_delta.engine.snapshot.snapshot import Snapshot

__all__ = ["OptimizeRequest", "OptimizeSettings"]

_MAX_FILE_SIZE = 128 << 20
"""The size of new files unless the table or the caller says otherwise."""

_COMMIT_BYTES = 16 << 30

_MIN_CUBE_SIZE = 100 << 30
"""That of Delta Spark."""


@dataclass(frozen=True, slots=True)
class OptimizeRequest:
    """The arguments of `DeltaTable.optimize`; None for a default.

    Attributes:
        where: see `OptimizeSettings`.
        min_file_size: see there.
        max_file_size: see there.
        max_deleted_ratio: see there.
        purge: see there.
        max_bytes: see there.
        commit_bytes: see there.
        z_order_by: the columns of a Z-order; none for none.
        full: see `OptimizeSettings`.
        min_cube_size: see there.
    """

    where: PredicateLike | None = None
    min_file_size: int | None = None
    max_file_size: int | None = None
    max_deleted_ratio: float | None = None
    purge: bool = False
    max_bytes: int | None = None
    commit_bytes: int | None = None
    z_order_by: Sequence[ColumnName] = ()
    full: bool = False
    min_cube_size: int | None = None


@dataclass(frozen=True, slots=True)
class OptimizeSettings:
    """The settings of a run.

    Attributes:
        where: a `pyarrow.compute.Expression` over partition columns that chooses the files; None for all.
        condition: the same as the caller wrote it, for ``commitInfo``; None for none.
        min_file_size: files of fewer bytes are rewritten together.
        max_file_size: the most bytes of a new file, nearly.
        max_deleted_ratio: a file with a larger part of deleted rows is rewritten, even alone.
        purge: whether to rewrite just the files with deleted rows, however few.
        max_bytes: the most bytes of files to rewrite in one run; None for any number.
        commit_bytes: the bytes of files after which what is done is committed.
        order: by which columns rows are sorted; None to keep their order.
        full: whether to sort what is sorted already, and what others have clustered.
        min_cube_size: no other files are clustered with files that were clustered together and have at
            least this many bytes.
    """

    where: Any
    condition: str | None
    min_file_size: int
    max_file_size: int
    max_deleted_ratio: float
    purge: bool
    max_bytes: int | None
    commit_bytes: int
    order: SortOrder | None
    full: bool
    min_cube_size: int

    @classmethod
    def of(cls, request: OptimizeRequest, snapshot: Snapshot) -> OptimizeSettings:
        """Check a request, and complete it.

        Args:
            request: the caller's arguments.
            snapshot: the newest version.

        Raises:
            InvalidArgumentError: an argument makes no sense, or the condition isn't about partition columns
                alone; or the table can't be sorted by the columns.
            InvalidTableError: a property of the table, or its clustering columns, can't be read.
            UnsupportedFeatureError: the table has too many clustering columns.
        """
        table = snapshot.table
        sizes = {
            "min_file_size": request.min_file_size,
            "max_file_size": request.max_file_size,
            "max_bytes": request.max_bytes,
            "commit_bytes": request.commit_bytes,
            "min_cube_size": request.min_cube_size,
        }
        for name, size in sizes.items():
            if size is not None and (type(size) is not int or size < 1):
                raise InvalidArgumentError(
                    f"{name}={size!r}: expected a number of bytes, at least 1", table=table
                )
        ratio = _checked_ratio(request.max_deleted_ratio, table)
        greatest = request.max_file_size or _target_size(snapshot.properties)
        least = request.min_file_size or max(1, greatest // 2)
        if least > greatest:
            raise InvalidArgumentError(
                f"min_file_size={least} is more than max_file_size={greatest}", table=table
            )
        where = _partition_condition(request.where, snapshot)
        order = _order(request, snapshot)
        return cls(
            where,
            None if where is None else _text(request.where),
            least,
            greatest,
            0.0 if request.purge else ratio,
            bool(request.purge),
            request.max_bytes,
            request.commit_bytes or _COMMIT_BYTES,
            order,
            bool(request.full),
            request.min_cube_size or _MIN_CUBE_SIZE,
        )


def _order(request: OptimizeRequest, snapshot: Snapshot) -> SortOrder | None:
    """By which columns to sort."""
    if request.z_order_by not in ((), []):
        if request.purge:
            raise InvalidArgumentError(
                "z_order_by and purge exclude each other: sorting removes deleted rows, too",
                table=snapshot.table,
            )
        order: SortOrder | None = z_order(snapshot, request.z_order_by)
    else:
        order = clustering_order(snapshot)
    if request.full:
        _check_full(request, order, snapshot.table)
    return order


def _check_full(request: OptimizeRequest, order: SortOrder | None, table: str) -> None:
    if order is None:
        raise InvalidArgumentError(
            "full=True: the table has no clustering columns, and no z_order_by is given, so there is "
            "nothing to sort",
            table=table,
        )
    if request.purge or request.max_bytes is not None:
        other = "purge" if request.purge else "max_bytes"
        raise InvalidArgumentError(
            f"full=True and {other} exclude each other: full sorts every file, in one run",
            table=table,
        )


def _target_size(properties: TableProperties) -> int:
    return properties.target_file_size or _MAX_FILE_SIZE


def _checked_ratio(ratio: float | None, table: str) -> float:
    if ratio is None:
        return 0.05
    if type(ratio) not in (int, float) or not 0 <= ratio <= 1:
        raise InvalidArgumentError(
            f"max_deleted_ratio={ratio!r}: expected a number from 0 to 1", table=table
        )
    return float(ratio)


def _partition_condition(where: PredicateLike | None, snapshot: Snapshot) -> Any:
    if where is None:
        return None
    table, partitioning = snapshot.table, snapshot.metadata.partition_columns
    expression = as_expression(where, snapshot.schema, table=table)
    others = {path[0] for path in read_predicate(expression).columns}.difference(partitioning)
    if others:
        has = f"has the partition columns {', '.join(partitioning)}"
        raise InvalidArgumentError(
            f"where: the columns {sorted(others)} don't partition the table, which "
            f"{has if partitioning else 'has no partition columns'}: files are chosen as a whole",
            table=table,
        )
    return expression


def _text(where: PredicateLike | None) -> str:
    return where if isinstance(where, str) else str(where)
