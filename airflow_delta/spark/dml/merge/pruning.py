"""Find out from the condition of a merge which files of the table may have rows that match.

* Parts of the condition that name the table alone hold for every match: ``target.day > '2026-01-01'``.
* Of a part ``target.key = source.key`` the least and the greatest key of the source are known. If the key
  is a partition column, so are all its values.

What was found is what the transaction notes as read, so that commits of others in other partitions are no
conflicts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.spark.reader.catalyst import Tree, catalyst, conjuncts, is_fixed, kind
from airflow_delta.spark.reader.char_columns import has_char
from airflow_delta.spark.reader.columns import frame_schema, quoted
from airflow_delta.spark.reader.pruning import pruning_expression, translated
from airflow_delta.spark.reader.translation import Expression

if TYPE_CHECKING:
    from airflow_delta.spark.dml.merge.source import MergeSource
    from airflow_delta.spark.writer.target import WriteTarget

__all__ = ["matching_files_expression"]

_ORDERED = (
    T.ByteType,
    T.ShortType,
    T.IntegerType,
    T.LongType,
    T.DecimalType,
    T.StringType,
    T.DateType,
)
"""The types of keys that come from Spark to Python and back unharmed, and have one order everywhere."""

_MOST_PARTITIONS = 200
"""Up to so many values of a partition column are listed one by one."""


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
    plan = _analyzed(source, schema, on, aliases, target.table)
    table_side, source_side = plan.left(), plan.right()
    parts = conjuncts(plan.condition().get())
    _check_repeatable(source, parts, on, target.table)
    own = _names(table_side)
    others = _names(source_side)
    keys = [
        (own[left], others[right])
        for part in parts
        if kind(part) == "EqualTo"
        for left, right in _attributes(part)
        if left in own and right in others
    ]
    usable = [
        (name, other)
        for name, other in keys
        if _is_ordered(schema[name]) and _is_ordered(source.rows.schema[other])
    ]
    number, ranges = _key_ranges(source, usable)
    found = [
        _condition(source, name, other, ends, is_partition=name in target.partition_by)
        for (name, other), ends in zip(usable, ranges, strict=True)
    ]
    expressions = [
        pruning_expression(spark, schema, reduce(and_, found)) if found else None,
        _of_table_alone(source, table_side, parts, schema, own),
    ]
    known = [expression for expression in expressions if expression is not None]
    return (reduce(and_, known) if known else None), number


def _analyzed(
    source: MergeSource,
    schema: T.StructType,
    on: Column | str,
    aliases: tuple[str, str],
    table: str,
) -> Tree:
    """Spark's plan of a join of nothing with nothing by the condition."""
    spark, (own, other) = source.spark, aliases
    left = spark.createDataFrame([], schema).alias(own)
    right = spark.createDataFrame([], source.rows.schema).alias(other)
    try:
        joined = left.join(right, F.expr(on) if isinstance(on, str) else on)
    except AnalysisException as error:
        raise InvalidArgumentError(
            f"Spark can't resolve the condition {on} with the columns of the table (as {own}) and of the "
            f"source (as {other}): {str(error).strip().partition(chr(10))[0]}",
            table=table,
        ) from error
    return joined._jdf.queryExecution().analyzed()  # noqa: SLF001


def _check_repeatable(
    source: MergeSource, parts: Sequence[Tree], on: Column | str, table: str
) -> None:
    subquery = catalyst(source.spark).trees.TreePattern.PLAN_EXPRESSION()
    if any(not part.deterministic() or part.containsPattern(subquery) for part in parts):
        raise InvalidArgumentError(
            f"the condition {on} has a subquery, or isn't the same for a pair of rows each time it is "
            "evaluated: use columns and constants",
            table=table,
        )


def _names(plan: Tree) -> dict[int, str]:
    """The columns of a plan, by Catalyst's ids."""
    output = plan.output()
    columns = (output.apply(i) for i in range(output.size()))
    return {column.exprId().id(): str(column.name()) for column in columns}


def _attributes(part: Tree) -> Iterator[tuple[int, int]]:
    """The two columns of an equality, without casts, each in the place of the other too."""
    sides = []
    for side in (part.left(), part.right()):
        while kind(side) == "Cast":
            side = side.child()
        if kind(side) != "AttributeReference":
            return
        sides.append(side.exprId().id())
    yield sides[0], sides[1]
    yield sides[1], sides[0]


def _is_ordered(field: T.StructField) -> bool:
    plain = not isinstance(field.dataType, T.StringType) or field.dataType == T.StringType()
    return isinstance(field.dataType, _ORDERED) and plain and not has_char(field.metadata or {})


def _key_ranges(
    source: MergeSource, keys: Sequence[tuple[str, str]]
) -> tuple[int, list[tuple[Any, Any]]]:
    """The number of rows of the source, and the least and the greatest value of its keys, in one pass."""
    columns = [F.count(F.lit(1)).alias("n")]
    for i, (_, other) in enumerate(keys):
        column = F.col(quoted(other))
        columns += [F.min(column).alias(f"least_{i}"), F.max(column).alias(f"greatest_{i}")]
    row = source.rows.agg(*columns).toArrow().to_pylist()[0]
    return row["n"], [(row[f"least_{i}"], row[f"greatest_{i}"]) for i in range(len(keys))]


def _condition(
    source: MergeSource, name: str, other: str, ends: tuple[Any, Any], *, is_partition: bool
) -> Column:
    """A condition on the table's key that holds for every match."""
    column, type_ = F.col(quoted(name)), source.rows.schema[other].dataType
    least, greatest = ends
    if least is None:
        # All keys are null, which equal nothing.
        return F.lit(False)
    if is_partition:
        distinct = source.rows.select(quoted(other)).distinct().limit(_MOST_PARTITIONS + 1)
        values = [value for value in distinct.toArrow()[0].to_pylist() if value is not None]
        if len(values) <= _MOST_PARTITIONS:
            return column.isin([F.lit(value).cast(type_) for value in values])
    return (column >= F.lit(least).cast(type_)) & (column <= F.lit(greatest).cast(type_))


def _of_table_alone(
    source: MergeSource,
    table_side: Tree,
    parts: Sequence[Tree],
    schema: T.StructType,
    own: dict[int, str],
) -> Expression | None:
    kept = [
        part
        for part in parts
        if is_fixed(part, source.spark) and _referenced(part) <= set(own) and _referenced(part)
    ]
    if not kept:
        return None
    both = catalyst(source.spark).expressions.And
    return translated(source.spark, table_side, reduce(both, kept), schema)


def _referenced(part: Tree) -> set[int]:
    references = part.references().toSeq()
    return {references.apply(i).exprId().id() for i in range(references.size())}
