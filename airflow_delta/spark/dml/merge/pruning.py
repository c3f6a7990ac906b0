"""Find the files of a table that may have matches, by the condition of a merge.

* Parts of the condition that use only columns of the table are true for every match:
  ``target.day > '2026-01-01'``.
* For a part ``<table> = <source>``, such as ``target.key = source.id + 1``, the least and the greatest
  value of the source's side are read. If the table's side has only partition columns, all of its values
  are read (`keys`).

Spark evaluates the source's side, in the type in which it compares the two. The comparison with the table's
side is translated like any other condition (`airflow_delta.spark.reader.pruning`).

The transaction records the resulting expression as read, so commits of others in other partitions aren't
conflicts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING

import pyarrow.compute as pc
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.spark.dml.expressions import condition_column
from airflow_delta.spark.dml.merge.keys import MergeKey, has_plain_order, read_keys
from airflow_delta.spark.reader.catalyst import (
    Tree,
    column_of,
    conjuncts,
    is_fixed,
    is_repeatable,
    kind,
)
from airflow_delta.spark.reader.columns import frame_schema
from airflow_delta.spark.reader.pruning import translated
from airflow_delta.spark.reader.translation import Expression

if TYPE_CHECKING:
    from airflow_delta.spark.dml.merge.source import MergeSource
    from airflow_delta.spark.writer.target import WriteTarget

__all__ = ["matching_files_expression"]


def matching_files_expression(
    source: MergeSource, target: WriteTarget, on: Column | str, aliases: tuple[str, str]
) -> tuple[Expression | None, int]:
    """Translate the condition of a merge for data skipping.

    Args:
        source: the source.
        target: the table.
        on: the condition.
        aliases: the names of the table and of the source in it.

    Returns:
        An expression that is true for every row of the table that matches, None if nothing is known; and
        the number of rows of the source.

    Raises:
        InvalidArgumentError: Spark can't resolve the condition, it isn't the same for a pair of rows each
            time, or it has a subquery.
        PySparkException: Spark's other errors.
    """
    assert target.base is not None
    spark, schema = source.spark, frame_schema(target.base.schema)
    own = spark.createDataFrame([], schema).alias(aliases[0])
    plan = _analyzed(own, source, on, aliases, target.table)
    parts = conjuncts(plan.condition().get())
    if not all(is_repeatable(part, spark) for part in parts):
        raise InvalidArgumentError(
            f"the condition {on} has a subquery, or isn't the same for a pair of rows each time it is "
            "evaluated: use columns and constants",
            table=target.table,
        )
    names, others = _names(plan.left()), _names(plan.right())
    fixed = [part for part in parts if is_fixed(part, spark)]
    of_source = [part for part in fixed if _referenced(part) <= others.keys()]
    of_table = [part for part in fixed if _referenced(part) <= names.keys()]
    candidates = reduce(and_, (column_of(part, spark) for part in of_source), F.lit(True))
    keys = [
        key for part in fixed for key in _keys(source, part, names, others, target.partition_by)
    ]
    found = read_keys(source, keys, candidates)
    if not found.num_matchable:
        return pc.scalar(False), found.num_rows
    conditions = [*(column_of(part, spark) for part in of_table), *found.conditions]
    if not conditions:
        return None, found.num_rows
    filtered = own.where(reduce(and_, conditions))._jdf.queryExecution().analyzed()  # noqa: SLF001
    expression = translated(spark, filtered.child(), filtered.condition(), schema)
    return expression, found.num_rows


def _analyzed(
    own: DataFrame, source: MergeSource, on: Column | str, aliases: tuple[str, str], table: str
) -> Tree:
    """Spark's plan of a join by the condition."""
    try:
        joined = own.join(source.rows.alias(aliases[1]), condition_column(on))
    except AnalysisException as error:
        raise InvalidArgumentError(
            f"Spark can't resolve the condition {on} with the columns of the table (as {aliases[0]}) and "
            f"of the source (as {aliases[1]}): {str(error).strip().partition(chr(10))[0]}",
            table=table,
        ) from error
    return joined._jdf.queryExecution().analyzed()  # noqa: SLF001


def _names(plan: Tree) -> dict[int, str]:
    """The columns of a plan, by Catalyst's ids."""
    output = plan.output()
    columns = (output.apply(i) for i in range(output.size()))
    return {column.exprId().id(): str(column.name()) for column in columns}


def _referenced(part: Tree) -> set[int]:
    references = part.references().toSeq()
    return {references.apply(i).exprId().id() for i in range(references.size())}


def _keys(
    source: MergeSource,
    part: Tree,
    names: Mapping[int, str],
    others: Mapping[int, str],
    partition_by: Sequence[str],
) -> Iterator[MergeKey]:
    """The key in a part of the condition, if it is an equality of the table with the source."""
    if kind(part) not in ("EqualTo", "EqualNullSafe"):
        return
    type_ = str(part.left().dataType().simpleString())
    if not has_plain_order(type_):
        return
    for own, other in ((part.left(), part.right()), (part.right(), part.left())):
        ids, other_ids = _referenced(own), _referenced(other)
        if ids and other_ids and ids <= names.keys() and other_ids <= others.keys():
            yield MergeKey(
                column_of(own, source.spark),
                column_of(other, source.spark),
                type_,
                is_null_safe=kind(part) == "EqualNullSafe",
                is_of_partitions={names[number] for number in ids} <= set(partition_by),
            )
