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
all else                           none, which keeps every file; other operands of an ``AND`` still count
=================================  ===================================================================

Parts that may have another value when the query runs aren't used: random numbers, the current time,
subqueries and Python functions. Spark still filters the rows; pruning only skips files of which no
row passes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import reduce
from operator import and_, eq, ge, gt, le, lt, or_
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, SparkSession
from pyspark.sql import types as T  # noqa: N812

from airflow_delta.spark.reader.char_columns import has_char

__all__ = ["analyzed_condition", "pruning_expression", "unmatched_expression"]

_Expression: TypeAlias = Any
"""A `pyarrow.compute.Expression`."""
_Tree: TypeAlias = Any
"""A Catalyst tree in the JVM."""

_MOST_NODES = 5_000
"""The most nodes that are translated, each in part of a millisecond; the rest isn't used."""
_SEPARATOR = "\x00"
_REPLACED = "\ufffd"


def pruning_expression(
    spark: SparkSession,
    schema: T.StructType,
    condition: Column | str,
    *,
    others: T.StructType | None = None,
) -> _Expression | None:
    """Translate a condition for data skipping.

    Args:
        spark: the session.
        schema: the table's columns, all nullable and without metadata except for CHAR, because Spark
            simplifies the condition by these properties.
        condition: a condition as for `DataFrame.where`.
        others: other columns that the condition may name; they have no statistics.

    Returns:
        An expression that is true for every row for which the condition is, and maybe for others; None if
        nothing could be translated.

    Raises:
        AnalysisException: Spark can't resolve the condition with these columns.
    """
    nameable = schema if others is None else T.StructType([*schema.fields, *others.fields])
    plan = analyzed_condition(spark, nameable, condition)
    if _kind(plan) != "Filter":
        return None
    kept = [part for part in _conjuncts(plan.condition()) if _is_fixed(part, spark)]
    if not kept:
        return None
    expressions = _catalyst(spark).expressions
    return _translated(spark, plan.child(), reduce(expressions.And, kept), schema)


def unmatched_expression(
    spark: SparkSession, schema: T.StructType, condition: Column | str
) -> _Expression | None:
    """Translate the contrary of a condition: that it is false or null.

    Files that the result excludes have no row but those for which the condition is true.

    Args:
        spark: the session.
        schema: see `pruning_expression`.
        condition: a condition as for `DataFrame.where`.

    Returns:
        An expression that is true for every row for which the condition isn't, and maybe for others; None
        if a part of the condition can't be translated.

    Raises:
        AnalysisException: Spark can't resolve the condition with these columns.
    """
    plan = analyzed_condition(spark, schema, condition)
    if _kind(plan) != "Filter":
        return None
    expressions = _catalyst(spark).expressions
    contraries = []
    for part in _conjuncts(plan.condition()):
        if not _is_fixed(part, spark):
            return None
        contrary = expressions.Or(expressions.Not(part), expressions.IsNull(part))
        found = _translated(spark, plan.child(), contrary, schema)
        if found is None:
            return None
        contraries.append(found)
    return reduce(or_, contraries)


def analyzed_condition(spark: SparkSession, schema: T.StructType, condition: Column | str) -> _Tree:
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


def _catalyst(spark: SparkSession) -> Any:
    jvm: Any = spark._jvm  # noqa: SLF001
    return jvm.org.apache.spark.sql.catalyst


def _translated(
    spark: SparkSession, source: _Tree, condition: _Tree, schema: T.StructType
) -> _Expression | None:
    """Optimize and translate a resolved condition on the columns of a schema."""
    filtered = _catalyst(spark).plans.logical.Filter(condition, source)
    state = spark._jsparkSession.sessionState()  # noqa: SLF001
    optimized = state.optimizer().execute(filtered)
    match _kind(optimized):
        case "Filter":
            output = source.output()
            ids = {
                output.apply(i).exprId().id(): field.name
                for i, field in enumerate(schema.fields)
                # Statistics are those of the texts in the files, but conditions are about padded texts.
                if not has_char(field.metadata)
            }
            return _Translation(ids).implied(optimized.condition())
        case "LocalRelation" | "EmptyRelation":
            # The optimizer found that the condition is never true.
            return pc.scalar(False)
        case _:
            return None


def _conjuncts(condition: _Tree) -> list[_Tree]:
    """The operands of a conjunction; without recursion, because a long one is a deep tree."""
    found, stack = [], [condition]
    while stack:
        part = stack.pop()
        if _kind(part) == "And":
            stack += [part.right(), part.left()]
        else:
            found.append(part)
    return found


def _is_fixed(part: _Tree, spark: SparkSession) -> bool:
    """Whether a condition always has the same value for a row."""
    pattern = _catalyst(spark).trees.TreePattern
    changing = (pattern.CURRENT_LIKE(), pattern.PLAN_EXPRESSION(), pattern.PYTHON_UDF())
    return part.deterministic() and not any(map(part.containsPattern, changing))


@dataclass(slots=True)
class _Translation:
    """Translates Catalyst's expressions to Arrow's.

    Attributes:
        names: the table's columns by their Catalyst ids. (A node has the spelling of the condition, which
            may differ in case.)
        left: the number of nodes that may still be translated.
    """

    names: Mapping[int, str]
    left: int = _MOST_NODES

    def implied(self, node: _Tree) -> _Expression | None:
        """An expression that is true whenever the condition is; None if there is no useful one."""
        match _kind(node):
            case "And":
                parts = [part for part in map(self.implied, _flat(node, "And")) if part is not None]
                return reduce(and_, parts) if parts else None
            case "Or":
                alternatives = [self.implied(part) for part in _flat(node, "Or")]
                if any(part is None for part in alternatives):
                    return None
                return reduce(or_, alternatives)
            case _:
                return self._exact(node)

    def _exact(self, node: _Tree) -> _Expression | None:
        """An expression equal to the condition; None if there is none."""
        self.left -= 1
        if self.left < 0:
            return None
        kind = _kind(node)
        match kind:
            case "Not":
                # After the optimizer, NOT applies to single conditions only.
                operand = self._exact(node.child())
                return None if operand is None else ~operand
            case "IsNull" | "IsNotNull":
                column = self._column(node.child())
                if column is None:
                    return None
                return column.is_null() if kind == "IsNull" else column.is_valid()
            case "In" | "InSet":
                return self._is_in(node, kind)
            case "StartsWith":
                return self._starts_with(node)
            case "EqualNullSafe":
                return self._null_safe(node)
            case "AttributeReference" | "GetStructField":
                return self._column(node) if _type(node) == "boolean" else None
            case _ if kind in _COMPARISONS:
                left, right = self._side(node.left()), self._side(node.right())
                if left is None or right is None:
                    return None
                return _COMPARISONS[kind](left, right)
        return None

    def _column(self, node: _Tree) -> _Expression | None:
        path = self._path(node)
        return None if path is None else pc.field(*path)

    def _path(self, node: _Tree) -> tuple[str, ...] | None:
        match _kind(node):
            case "AttributeReference":
                name = self.names.get(node.exprId().id())
                return None if name is None else (name,)
            case "GetStructField":
                outer = self._path(node.child())
                return None if outer is None else (*outer, node.extractFieldName())
        return None

    def _side(self, node: _Tree) -> _Expression | None:
        if _kind(node) == "Literal":
            value = _literal(node)
            return None if value is None else pc.scalar(value)
        # Columns of other types have another order, in particular strings with a collation.
        return self._column(node) if _arrow_type(_type(node)) is not None else None

    def _null_safe(self, node: _Tree) -> _Expression | None:
        sides = [node.left(), node.right()]
        if _kind(sides[0]) == "Literal":
            sides.reverse()
        column, value = map(self._side, sides)
        # Two columns that are both null are equal here, so only a constant can be translated.
        if column is None or value is None or _kind(sides[1]) != "Literal":
            return None
        return (column == value) & column.is_valid()

    def _is_in(self, node: _Tree, kind: str) -> _Expression | None:
        tested = node.value() if kind == "In" else node.child()
        column, type_ = self._column(tested), _arrow_type(_type(tested))
        if column is None or type_ is None:
            return None
        # With a null in the list the condition is null instead of false; both skip the row.
        values = _listed(node.list()) if kind == "In" else _set(node.hset(), type_)
        return None if values is None else column.isin(pa.array(values, type_))

    def _starts_with(self, node: _Tree) -> _Expression | None:
        column = self._side(node.left())
        constant = _literal(node.right()) if _kind(node.right()) == "Literal" else None
        if column is None or constant is None:
            return None
        prefix = constant.as_py()
        after = _text_after(prefix)
        return column >= prefix if after is None else (column >= prefix) & (column < after)


_COMPARISONS: Mapping[str, Callable[[_Expression, _Expression], _Expression]] = {
    "EqualTo": eq,
    "LessThan": lt,
    "LessThanOrEqual": le,
    "GreaterThan": gt,
    "GreaterThanOrEqual": ge,
}

_TYPES: Mapping[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}


def _kind(node: _Tree) -> str:
    return str(node.getClass().getSimpleName())


def _type(node: _Tree) -> str:
    """The type of a node; ``string`` only without a collation."""
    return str(node.dataType().simpleString())


def _arrow_type(name: str) -> pa.DataType | None:
    if name.startswith("decimal("):
        precision, scale = map(int, name.removeprefix("decimal(").rstrip(")").split(","))
        return pa.decimal128(precision, scale)
    return _TYPES.get(name)


def _flat(node: _Tree, kind: str) -> list[_Tree]:
    found, stack = [], [node]
    while stack:
        part = stack.pop()
        if _kind(part) == kind:
            stack += [part.right(), part.left()]
        else:
            found.append(part)
    return found


def _literal(node: _Tree) -> pa.Scalar | None:
    """The value of a literal; None if it is null, of another type or a text that isn't UTF-8."""
    type_, value = _arrow_type(_type(node)), node.value()
    if type_ is None or value is None:
        return None
    if pa.types.is_string(type_):
        try:
            value = bytes(value.getBytes()).decode("utf-8")
        except UnicodeDecodeError:
            return None
    elif pa.types.is_decimal(type_):
        value = Decimal(value.toString())
    return _scalar(value, type_)


def _scalar(value: Any, type_: pa.DataType) -> pa.Scalar:
    """Convert a Catalyst value; dates and times are days and microseconds since 1970."""
    if pa.types.is_date32(type_):
        return pa.scalar(value, pa.int32()).cast(type_)
    if pa.types.is_timestamp(type_):
        return pa.scalar(value, pa.int64()).cast(type_)
    return pa.scalar(value, type_)


def _listed(values: _Tree) -> list[Any] | None:
    """The literals of an ``IN``, without nulls."""
    found = []
    for index in range(values.size()):
        node = values.apply(index)
        if _kind(node) != "Literal":
            return None
        if node.value() is None:
            continue
        value = _literal(node)
        if value is None:
            return None
        found.append(value.as_py())
    return found


def _set(values: _Tree, type_: pa.DataType) -> list[Any] | None:
    """The literals of a long ``IN``, without nulls, in one call to the JVM."""
    if pa.types.is_binary(type_):
        return None
    size = values.size()
    texts = str(values.mkString(_SEPARATOR)).split(_SEPARATOR)
    if len(texts) != size:
        return None
    if pa.types.is_string(type_):
        # A null becomes the text "null", an extra value that only keeps more files. Texts that aren't UTF-8
        # contain the replacement character.
        return None if any(_REPLACED in text for text in texts) else texts
    parse = _PARSERS.get(str(type_), Decimal if pa.types.is_decimal(type_) else int)
    return [_scalar(parse(text), type_).as_py() for text in texts if text != "null"]


_PARSERS: Mapping[str, Callable[[str], Any]] = {
    "bool": lambda text: text == "true",
    "float": float,
    "double": float,
}


def _text_after(prefix: str) -> str | None:
    """The least text, by its UTF-8 bytes, after all texts with this prefix; None if there is none.

    The order of code points is that of their UTF-8 bytes.
    """
    for end in range(len(prefix), 0, -1):
        point = ord(prefix[end - 1]) + 1
        # Surrogates aren't characters.
        point = 0xE000 if 0xD800 <= point < 0xE000 else point
        if point <= 0x10FFFF:
            return prefix[: end - 1] + chr(point)
    return None
