"""Catalyst, Spark's own trees of plans and expressions, as far as conditions on a table need them."""

from __future__ import annotations

from typing import Any, TypeAlias

from pyspark.sql import Column, SparkSession
from pyspark.sql import types as T  # noqa: N812

__all__ = [
    "Tree",
    "analyzed_condition",
    "catalyst",
    "condition_text",
    "conjuncts",
    "is_fixed",
    "kind",
    "operands",
]

Tree: TypeAlias = Any
"""A Catalyst tree in the JVM."""


def analyzed_condition(spark: SparkSession, schema: T.StructType, condition: Column | str) -> Tree:
    """Resolve a condition with the columns of a schema.

    Args:
        spark: the session.
        schema: the columns.
        condition: a condition as for `DataFrame.where`.

    Returns:
        Spark's plan, a ``Filter`` for most conditions, of an empty relation with these columns.

    Raises:
        AnalysisException: Spark can't resolve the condition.
    """
    nothing = spark.createDataFrame([], schema)
    return nothing.where(condition)._jdf.queryExecution().analyzed()  # noqa: SLF001


def catalyst(spark: SparkSession) -> Any:
    """Catalyst's package in the JVM."""
    jvm: Any = spark._jvm  # noqa: SLF001
    return jvm.org.apache.spark.sql.catalyst


def condition_text(condition: Column | str) -> str:
    """A condition as text for messages; of a Column, as Spark shows it."""
    if isinstance(condition, str):
        return condition
    # The text of the Column itself is Column<'…'>.
    node: Any = condition._jc  # noqa: SLF001
    return str(node.toString())


def conjuncts(condition: Tree) -> list[Tree]:
    """The operands of a conjunction; the condition itself if it is none."""
    return operands(condition, "And")


def operands(condition: Tree, of: str) -> list[Tree]:
    """The operands of nested nodes of one kind; without recursion, because a long list is a deep tree."""
    found, stack = [], [condition]
    while stack:
        part = stack.pop()
        if kind(part) == of:
            stack += [part.right(), part.left()]
        else:
            found.append(part)
    return found


def is_fixed(part: Tree, spark: SparkSession) -> bool:
    """Whether a condition always has the same value for a row."""
    pattern = catalyst(spark).trees.TreePattern
    changing = (pattern.CURRENT_LIKE(), pattern.PLAN_EXPRESSION(), pattern.PYTHON_UDF())
    return part.deterministic() and not any(map(part.containsPattern, changing))


def kind(node: Tree) -> str:
    """The name of a node's class, such as ``And``."""
    return str(node.getClass().getSimpleName())
