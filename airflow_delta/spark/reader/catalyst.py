"""Catalyst, Spark's own trees of plans and expressions, as far as conditions on a table need them."""

from __future__ import annotations

from typing import Any, TypeAlias

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import types as T  # noqa: N812
from pyspark.sql.classic.column import Column as ClassicColumn

__all__ = [
    "Tree",
    "analyzed_condition",
    "catalyst",
    "column_of",
    "condition_text",
    "conjuncts",
    "has_star",
    "is_fixed",
    "is_repeatable",
    "kind",
    "operands",
    "output_names",
    "referenced",
    "resolved_column",
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


def resolved_column(rows: DataFrame, column: Column) -> Column:
    """Bind the names in a column to the columns of a DataFrame, whatever others it is joined with later.

    Args:
        rows: the DataFrame.
        column: a column over it.

    Raises:
        AnalysisException: Spark can't resolve the column.
    """
    plan: Tree = rows.select(column.alias("bound"))._jdf.queryExecution().analyzed()  # noqa: SLF001
    return column_of(plan.projectList().apply(0).child(), rows.sparkSession)


def catalyst(spark: SparkSession) -> Any:
    """Catalyst's package in the JVM."""
    jvm: Any = spark._jvm  # noqa: SLF001
    return jvm.org.apache.spark.sql.catalyst


def column_of(part: Tree, spark: SparkSession) -> Column:
    """A resolved expression as a column, for DataFrames whose plans have the columns in it."""
    jvm: Any = spark._jvm  # noqa: SLF001
    return ClassicColumn(jvm.org.apache.spark.sql.classic.ExpressionUtils.column(part))


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


def is_repeatable(part: Tree, spark: SparkSession) -> bool:
    """Whether a condition has the same value for a row each time that one query evaluates it."""
    subquery = catalyst(spark).trees.TreePattern.PLAN_EXPRESSION()
    return bool(part.deterministic()) and not part.containsPattern(subquery)


def is_fixed(part: Tree, spark: SparkSession) -> bool:
    """Whether a condition always has the same value for a row."""
    pattern = catalyst(spark).trees.TreePattern
    changing = (pattern.CURRENT_LIKE(), pattern.PLAN_EXPRESSION(), pattern.PYTHON_UDF())
    return part.deterministic() and not any(map(part.containsPattern, changing))


def has_star(part: Tree, text: str) -> bool:
    """Whether an expression that isn't resolved yet names columns by ``*``, as in ``struct(*)``.

    Args:
        part: the expression.
        text: its text, which has a ``*`` then; others aren't looked through.
    """
    stack = [part] if "*" in text else []
    while stack:
        node = stack.pop()
        # Also those with EXCEPT or REPLACE, and patterns of names where the session allows them.
        if "Star" in kind(node) or (kind(node) == "UnresolvedRegex" and "*" in node.regexPattern()):
            return True
        children = node.children()
        stack += [children.apply(i) for i in range(children.size())]
    return False


def kind(node: Tree) -> str:
    """The name of a node's class, such as ``And``."""
    return str(node.getClass().getSimpleName())


def output_names(plan: Tree) -> dict[int, str]:
    """The columns of a plan, by Catalyst's ids."""
    output = plan.output()
    columns = (output.apply(i) for i in range(output.size()))
    return {column.exprId().id(): str(column.name()) for column in columns}


def referenced(part: Tree) -> set[int]:
    """The ids of the columns in an expression."""
    references = part.references().toSeq()
    return {references.apply(i).exprId().id() for i in range(references.size())}
