"""Translate a Spark condition for the engine, so that files are skipped before Spark plans its scan.

Spark itself parses the condition, be it SQL or a ``Column``. Its analyser resolves names, casts and
collations with the columns of the table. Its optimizer folds constants, removes casts from columns
and pushes ``NOT`` down to the comparisons. The result is a tree with few kinds of nodes. Those that
statistics can answer become a `pyarrow.compute.Expression` for `Snapshot.files`:

=================================  ===================================================================
node                               translation
=================================  ===================================================================
``=``, ``<``, …, ``<=>``           of columns, also nested in structs, with constants and each other
``IN``, ``IS [NOT] NULL``          the same
``LIKE 'a%'``                      a range of texts
a boolean column, ``AND``, ``OR``  the same
a column from which partition      the same, and what follows for the partition columns
columns are generated              (`generated_partitions`)
all else                           none, which keeps every file; other operands of an ``AND`` still count
=================================  ===================================================================

Parts that may have another value when the query runs aren't used: random numbers, the current time,
subqueries and Python functions. Spark still filters the rows; pruning only skips files of which no
row passes.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

import pyarrow.compute as pc
from pyspark.sql import Column, SparkSession
from pyspark.sql import types as T  # noqa: N812

from airflow_delta.spark.reader.catalyst import (
    Tree,
    analyzed_condition,
    catalyst,
    conjuncts,
    is_fixed,
    kind,
    operands,
)
from airflow_delta.spark.reader.char_columns import has_char
from airflow_delta.spark.reader.translation import Expression, Translation

if TYPE_CHECKING:
    from airflow_delta.spark.reader.generated_partitions import GeneratedPartitions

__all__ = ["implied_expression", "pruning_expression", "translated", "unmatched_expression"]


def pruning_expression(
    spark: SparkSession,
    schema: T.StructType,
    condition: Column | str,
    *,
    others: T.StructType | None = None,
    generated: GeneratedPartitions | None = None,
) -> Expression | None:
    """Translate a condition for data skipping.

    Args:
        spark: the session.
        schema: the table's columns, all nullable and without metadata except for CHAR, because Spark
            simplifies the condition by these properties.
        condition: a condition as for `DataFrame.where`.
        others: other columns that the condition may name; they have no statistics.
        generated: the generated partition columns; None to leave them out of account.

    Returns:
        An expression that is true for every row for which the condition is, and maybe for others; None if
        nothing could be translated.

    Raises:
        AnalysisException: Spark can't resolve the condition with these columns.
    """
    nameable = schema if others is None else T.StructType([*schema.fields, *others.fields])
    return implied_expression(
        spark, schema, analyzed_condition(spark, nameable, condition), generated=generated
    )


def implied_expression(
    spark: SparkSession,
    schema: T.StructType,
    plan: Tree,
    *,
    generated: GeneratedPartitions | None = None,
) -> Expression | None:
    """Like `pruning_expression`, of a condition that Spark has resolved.

    Args:
        spark: the session.
        schema: see `pruning_expression`.
        plan: the plan of `analyzed_condition`, which has the columns of the schema first.
        generated: see `pruning_expression`.
    """
    if kind(plan) != "Filter":
        return None
    kept = [part for part in conjuncts(plan.condition()) if is_fixed(part, spark)]
    if not kept:
        return None
    expressions = catalyst(spark).expressions
    return translated(spark, plan.child(), reduce(expressions.And, kept), schema, generated)


def unmatched_expression(
    spark: SparkSession, schema: T.StructType, plan: Tree
) -> Expression | None:
    """Translate the contrary of a condition: that it is false or null.

    Files that the result excludes have no row but those for which the condition is true.

    Args:
        spark: the session.
        schema: see `pruning_expression`.
        plan: the plan of `analyzed_condition` for the condition and these columns.

    Returns:
        An expression that is true for every row for which the condition isn't, and maybe for others; None
        if nothing could be translated.
    """
    if kind(plan) != "Filter":
        return None
    return translated(spark, plan.child(), _contrary(spark, plan.condition()), schema)


def _contrary(spark: SparkSession, condition: Tree) -> Tree:
    """A resolved condition that is true where this one is false or null, and maybe elsewhere.

    An ``OR`` is true if one operand is, whatever the others are, also null. So all of them must not be.
    """
    expressions = catalyst(spark).expressions
    match form := kind(condition):
        case "And" | "Or":
            joined = expressions.Or if form == "And" else expressions.And
            return reduce(joined, [_contrary(spark, part) for part in operands(condition, form)])
        case "Not" if (form := kind(condition.child())) in ("And", "Or"):
            joined = expressions.And if form == "And" else expressions.Or
            parts = map(expressions.Not, operands(condition.child(), form))
            return reduce(joined, [_contrary(spark, part) for part in parts])
        case "Between" if _is_of_one_type(condition):
            tested = condition.input()
            least = expressions.GreaterThanOrEqual(tested, condition.lower())
            most = expressions.LessThanOrEqual(tested, condition.upper())
            return expressions.Or(_contrary(spark, least), _contrary(spark, most))
        case _ if is_fixed(condition, spark):
            return expressions.Or(expressions.Not(condition), _is_null(spark, condition))
        case _:
            return expressions.Literal.TrueLiteral()


def _is_of_one_type(between: Tree) -> bool:
    """Whether a ``BETWEEN`` compares a column with two constants of its type.

    The analyser converts types in the replacement of a ``BETWEEN`` only, not in its operands.
    """
    tested, bounds = between.input(), (between.lower(), between.upper())
    return kind(tested) == "AttributeReference" and all(
        kind(bound) == "Literal" and bound.dataType().equals(tested.dataType()) for bound in bounds
    )


def _is_null(spark: SparkSession, part: Tree) -> Tree:
    """``IS NULL`` of a resolved expression, of its columns where that is the same.

    The optimizer leaves it as it is for ``=`` and for casts, and `Translation` knows it for columns alone.
    """
    expressions = catalyst(spark).expressions
    match kind(part):
        case "EqualTo" | "LessThan" | "LessThanOrEqual" | "GreaterThan" | "GreaterThanOrEqual":
            sides = _is_null(spark, part.left()), _is_null(spark, part.right())
            return expressions.Or(*sides)
        case "Not":
            return _is_null(spark, part.child())
        case "Cast" if expressions.Cast.canUpCast(part.child().dataType(), part.dataType()):
            return _is_null(spark, part.child())
        case _:
            return expressions.IsNull(part)


def translated(
    spark: SparkSession,
    source: Tree,
    condition: Tree,
    schema: T.StructType,
    generated: GeneratedPartitions | None = None,
) -> Expression | None:
    """Optimize and translate a resolved condition on the columns of a schema.

    Args:
        spark: the session.
        source: the plan that has the columns.
        condition: the resolved condition.
        schema: the columns; see `pruning_expression`.
        generated: see `pruning_expression`.

    Returns:
        See `pruning_expression`.
    """
    filtered = catalyst(spark).plans.logical.Filter(condition, source)
    state = spark._jsparkSession.sessionState()  # noqa: SLF001
    optimized = state.optimizer().execute(filtered)
    match kind(optimized):
        case "Filter":
            output = source.output()
            ids = {
                output.apply(i).exprId().id(): field.name
                for i, field in enumerate(schema.fields)
                # Statistics are those of the texts in the files, but conditions are about padded texts.
                if not has_char(field.metadata)
            }
            return Translation(ids, generated).implied(optimized.condition())
        case "LocalRelation" | "EmptyRelation":
            # The optimizer found that the condition is never true.
            return pc.scalar(False)
        case _:
            return None
