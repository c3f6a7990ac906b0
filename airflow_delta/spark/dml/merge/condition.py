"""The condition of a merge, as Spark resolves it: its parts, and the keys in them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.spark.dml.expressions import condition_column
from airflow_delta.spark.dml.live_conditions import guarded
from airflow_delta.spark.dml.merge.keys import MergeKey, has_plain_order
from airflow_delta.spark.reader.catalyst import (
    Tree,
    catalyst,
    column_of,
    conjuncts,
    is_fixed,
    is_repeatable,
    kind,
    output_names,
    referenced,
)
from airflow_delta.spark.reader.snapshot_reader import LOCATION_LIVE

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from airflow_delta.spark.dml.merge.source import MergeSource

__all__ = ["MergeCondition", "live_condition", "resolve_condition"]


@dataclass(frozen=True, slots=True)
class MergeCondition:
    """The parts of the condition of a merge.

    Attributes:
        of_source: a condition on rows of the source, which is true for those that can match.
        of_table: conditions on rows of the table, which are true for those that match.
        keys: the equalities of the table with the source.
    """

    of_source: Column
    of_table: Sequence[Column]
    keys: Sequence[MergeKey]


def resolve_condition(
    rows: DataFrame,
    source: MergeSource,
    on: Column | str,
    aliases: tuple[str, str],
    *,
    table: str,
    partition_by: Collection[str] = (),
) -> MergeCondition:
    """Resolve the condition of a merge.

    Args:
        rows: rows of the table. The columns of the result belong to it, and to the rows of the source.
        source: the source.
        on: the condition.
        aliases: the names of the table and of the source in it.
        table: the table's location, for errors.
        partition_by: its partition columns.

    Raises:
        InvalidArgumentError: Spark can't resolve the condition, it isn't the same for a pair of rows each
            time, or it has a subquery.
    """
    spark = source.spark
    plan = _analyzed(rows.alias(aliases[0]), source, on, aliases, table)
    parts = conjuncts(plan.condition().get())
    if not all(is_repeatable(part, spark) for part in parts):
        raise InvalidArgumentError(
            f"the condition {on} has a subquery, or isn't the same for a pair of rows each time it is "
            "evaluated: use columns and constants",
            table=table,
        )
    names, others = output_names(plan.left()), output_names(plan.right())
    fixed = [part for part in parts if is_fixed(part, spark)]
    of_source = [part for part in fixed if referenced(part) <= others.keys()]
    of_table = [part for part in fixed if referenced(part) <= names.keys()]
    return MergeCondition(
        reduce(and_, (column_of(part, spark) for part in of_source), F.lit(True)),
        [column_of(part, spark) for part in of_table],
        [key for part in fixed for key in _keys(source, part, names, others, partition_by)],
    )


def live_condition(
    rows: DataFrame,
    source: MergeSource,
    on: Column | str,
    aliases: tuple[str, str],
    files: pa.Table,
    *,
    table: str,
    partition_by: Collection[str],
) -> Column:
    """The condition of a merge, guarded against rows of files that aren't rows of the table.

    Args:
        rows: rows of the table, of `SnapshotReader.located_rows` with `LOCATION_LIVE`.
        source: the source.
        on: the condition, which was checked (`resolve_condition`).
        aliases: the names of the table and of the source in it.
        files: the files of the rows.
        table: the table's location, for errors.
        partition_by: its partition columns.
    """
    plan = _analyzed(rows.alias(aliases[0]), source, on, aliases, table)
    parts = conjuncts(plan.condition().get())
    names, others = output_names(plan.left()), output_names(plan.right())
    keys = {
        i: _live_key(source.spark, part, *sides)
        for i, part in enumerate(parts)
        if (sides := next(_equal_sides(part, names, others), None)) is not None
    }
    found = guarded(
        rows,
        rows.crossJoin(source.rows),
        parts,
        files,
        partition_by=partition_by,
        keys=keys,
    )
    return condition_column(on) if found is None else found


def _live_key(spark: SparkSession, part: Tree, own: Tree, other: Tree) -> Column:
    """A key whose side of the table is null for rows of files that aren't rows of the table."""
    side, other_side = F.when(F.col(LOCATION_LIVE), column_of(own, spark)), column_of(other, spark)
    is_null_safe = kind(part) == "EqualNullSafe"
    return side.eqNullSafe(other_side) if is_null_safe else side == other_side


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


def _keys(
    source: MergeSource,
    part: Tree,
    names: Mapping[int, str],
    others: Mapping[int, str],
    partition_by: Collection[str],
) -> Iterator[MergeKey]:
    """The key in a part of the condition, if it is an equality of the table with the source."""
    for own, other in _equal_sides(part, names, others):
        type_ = str(own.dataType().simpleString())
        if has_plain_order(type_):
            yield MergeKey(
                column_of(own, source.spark),
                column_of(other, source.spark),
                type_,
                is_null_safe=kind(part) == "EqualNullSafe",
                is_of_partitions={names[number] for number in referenced(own)} <= set(partition_by),
                is_column=_is_column(own, source.spark),
            )


def _equal_sides(
    part: Tree, names: Mapping[int, str], others: Mapping[int, str]
) -> Iterator[tuple[Tree, Tree]]:
    """The table's side and the source's side of a part, if it is an equality of the two."""
    if kind(part) not in ("EqualTo", "EqualNullSafe"):
        return
    for own, other in ((part.left(), part.right()), (part.right(), part.left())):
        ids, other_ids = referenced(own), referenced(other)
        if ids and other_ids and ids <= names.keys() and other_ids <= others.keys():
            yield own, other


def _is_column(side: Tree, spark: SparkSession) -> bool:
    """Whether an expression is a column, in its own type or in a wider one."""
    if kind(side) == "Cast":
        child = side.child()
        wider = catalyst(spark).expressions.Cast.canUpCast(child.dataType(), side.dataType())
        return bool(wider) and kind(child) == "AttributeReference"
    return kind(side) == "AttributeReference"
