"""Evaluate the conditions of users only for rows of the table.

Spark filters the rows of files as early as it can: before it joins them with deletion vectors and partition
values (`airflow_delta.spark.reader.file_rows`). So it may evaluate a condition also for deleted rows, and
for rows of partitions that another part of the condition excludes. There the condition can fail:
``10 DIV v > 4`` does where ``v`` is 0.

========================================  ==============================================================
a part of the condition                   where Spark evaluates it
========================================  ==============================================================
can't fail, such as ``v = 5``             where it likes; it can skip row groups of Parquet files by it
has no columns but those of partitions    where it likes: for the values of the files
can fail                                  for rows of the table (`LOCATION_LIVE`) for which the parts of
                                          partition columns are true
========================================  ==============================================================

If the files have no deletion vectors, and the condition has no partition columns, it stays as it is.

Spark calls a function in Python before the join whatever the condition needs, so also for deleted rows.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from airflow_delta.spark.reader.catalyst import (
    Tree,
    catalyst,
    column_of,
    conjuncts,
    kind,
    output_names,
    referenced,
)
from airflow_delta.spark.reader.snapshot_reader import LOCATION_LIVE

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from airflow_delta.spark.reader.row_tracking import TrackedRows
    from airflow_delta.spark.reader.snapshot_reader import SnapshotReader

__all__ = ["guarded", "matching_rows"]

_MOST_NODES = 1_000
"""The most nodes of a condition that are looked at, each in part of a millisecond; others may fail."""

_CANNOT_FAIL = frozenset(
    {
        "And",
        "AttributeReference",
        "CaseWhen",
        "Coalesce",
        "Contains",
        "CreateNamedStruct",
        "EndsWith",
        "EqualNullSafe",
        "EqualTo",
        "GetStructField",
        "GreaterThan",
        "GreaterThanOrEqual",
        "If",
        "In",
        "InSet",
        "IsNaN",
        "IsNotNull",
        "IsNull",
        "LessThan",
        "LessThanOrEqual",
        "Literal",
        "Not",
        "Or",
        "StartsWith",
    }
)
"""Nodes of Catalyst that have a value whatever those of their children are."""


def matching_rows(
    reader: SnapshotReader,
    files: pa.Table,
    condition: Column | str,
    *,
    partition_by: Collection[str],
    tracked: TrackedRows | None = None,
    columns: Collection[str] | None = None,
) -> DataFrame:
    """Read the rows of some files for which a condition is true.

    Args:
        reader: reads them.
        files: the files, with the columns that `SnapshotReader.located_rows` needs.
        condition: a condition on the table's columns, which was checked (`conditions.choose_files`).
        partition_by: the partition columns.
        tracked: the sources of row ids, to add them.
        columns: the columns that the rows need have, at least those in the condition; None: all.

    Returns:
        The rows of `SnapshotReader.located_rows`, with `LOCATION_LIVE`.
    """
    rows = reader.located_rows(files, columns=columns, tracked=tracked, with_live=True)
    found = rows.where(condition)
    parts = conjuncts(found._jdf.queryExecution().analyzed().condition())  # noqa: SLF001
    safe = guarded(rows, rows, parts, files, partition_by=partition_by)
    return found if safe is None else rows.where(safe)


def guarded(
    rows: DataFrame,
    scope: DataFrame,
    parts: Sequence[Tree],
    files: pa.Table,
    *,
    partition_by: Collection[str],
    keys: Mapping[int, Column] | None = None,
) -> Column | None:
    """Guard a condition against rows of files that aren't rows of the table.

    Args:
        rows: rows of the table, of `SnapshotReader.located_rows` with `LOCATION_LIVE`.
        scope: rows with all columns in the condition.
        parts: the condition, as its conjuncts, which Spark resolved with the columns of ``scope``.
        files: the files of the rows.
        partition_by: the partition columns.
        keys: parts by which Spark joins rows of the table with others, by their index: such that they are
            null for other rows of the files.

    Returns:
        The condition; None if it can stay as it is.
    """
    has_vectors = files["deletionVector"].null_count < files.num_rows
    if not has_vectors and not partition_by:
        return None
    spark = rows.sparkSession
    names = output_names(rows._jdf.queryExecution().analyzed())  # noqa: SLF001
    partitions = {number for number, name in names.items() if name in set(partition_by)}
    own = [referenced(part) & names.keys() for part in parts]
    if not has_vectors and not any(columns & partitions for columns in own):
        return None
    fails, keys = _can_fail(scope, parts), keys or {}
    late = [fails[i] and not own[i] <= partitions and i not in keys for i in range(len(parts))]
    # Spark joins by a key after the join with deletion vectors. But what it knows of the source, such as
    # `10 DIV id > 1`, it infers for the rows of the files, unless the key is null for some of them.
    changed = {i: key for i, key in keys.items() if has_vectors or fails[i]}
    if not any(late) and not changed:
        return None
    columns = [changed.get(i, column_of(part, spark)) for i, part in enumerate(parts)]
    needed = [
        columns[i]
        for i, part in enumerate(parts)
        if own[i] and fails[i] and referenced(part) <= partitions
    ]
    is_live = reduce(and_, needed, F.col(LOCATION_LIVE))
    others = [column for column, is_late in zip(columns, late, strict=True) if not is_late]
    if not any(late):
        return reduce(and_, others)
    failing = reduce(
        and_, (column for column, is_late in zip(columns, late, strict=True) if is_late)
    )
    # Not WHEN alone: where only rows are selected, Spark makes it an AND, and moves its second operand.
    guard = F.coalesce(F.when(is_live, failing), F.lit(False))
    return reduce(and_, [*others, guard])


def _can_fail(rows: DataFrame, parts: Sequence[Tree]) -> list[bool]:
    """Whether each part of a condition may fail for some values.

    Args:
        rows: rows with the columns of the parts; they aren't evaluated.
        parts: the parts.
    """
    spark = rows.sparkSession
    columns = [column_of(part, spark).alias(f"part_{i}") for i, part in enumerate(parts)]
    # The optimizer evaluates constants, and removes casts of columns.
    plan = rows.select(columns)._jdf.queryExecution().optimizedPlan()  # noqa: SLF001
    if kind(plan) != "Project":
        return [True] * len(parts)
    optimized = plan.projectList()
    return [not _cannot_fail(optimized.apply(i), spark) for i in range(len(parts))]


def _cannot_fail(part: Tree, spark: SparkSession) -> bool:
    # A part that is a column of the rows comes without an alias.
    stack = [part.child() if kind(part) == "Alias" else part]
    for _ in range(_MOST_NODES):
        if not stack:
            return True
        node = stack.pop()
        if kind(node) == "InSet":
            stack.append(node.child())
            continue
        if kind(node) == "Cast":
            wider = catalyst(spark).expressions.Cast.canUpCast
            if not wider(node.child().dataType(), node.dataType()):
                return False
        elif kind(node) not in _CANNOT_FAIL or _is_common(node):
            return False
        children = node.children()
        stack += [children.apply(i) for i in range(children.size())]
    return False


def _is_common(node: Tree) -> bool:
    """Whether a node stands for an expression that Spark evaluates once, as of ``BETWEEN``."""
    return kind(node) == "AttributeReference" and str(node.name()).startswith("_common_expr_")
