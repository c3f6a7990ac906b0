"""What a Spark condition says to the engine, so that files drop out before Spark sees them.

Spark itself reads the condition, SQL text or a ``Column`` alike: its analyser resolves names, casts and
collations against the columns of the table, and its optimizer folds constants, takes casts off columns
and pushes ``NOT`` down to the comparisons. What comes out is a tree of few kinds of nodes, and those of
which statistics can tell something become a `pyarrow.compute.Expression` for `Snapshot.files`:

=================================  ===================================================================
in the tree                        for the engine
=================================  ===================================================================
``=``, ``<``, …, ``<=>``           of columns, also inside structs, with constants and each other
``IN``, ``IS [NOT] NULL``          the same
``LIKE 'a%'``                      a range of texts
a boolean column, ``AND``, ``OR``  the same
all else                           nothing; of an ``AND`` the other parts still count
=================================  ===================================================================

Nothing is guessed: a part that isn't in the table keeps every file. Nor is anything used that can have
another value when the query runs: random numbers, the current time, sub-queries, and Python's functions.
The condition stays on the rows as it is; pruning only leaves out files of which no row passes it.
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

__all__ = ["pruning_expression"]

_Expression: TypeAlias = Any
"""A `pyarrow.compute.Expression`."""
_Tree: TypeAlias = Any
"""A tree of Catalyst's, in the JVM."""

_MOST_NODES = 5_000
"""So many nodes of a condition are looked at, some of a millisecond each; the rest tells nothing."""
_SEPARATOR = "\x00"
_REPLACED = "\ufffd"


def pruning_expression(
    spark: SparkSession,
    schema: T.StructType,
    condition: Column | str,
    *,
    others: T.StructType | None = None,
) -> _Expression | None:
    """What a condition says that can be told from the bounds of columns.

    Args:
        spark: the session.
        schema: the table's columns, all nullable and without metadata but those of CHAR: what Spark
            believes of columns it uses to simplify the condition.
        condition: as `DataFrame.where` takes it.
        others: more columns that the condition may name, and of which nothing is known.

    Returns:
        An expression that is true for every row for which the condition is, perhaps for more; None where
        nothing can be told.

    Raises:
        AnalysisException: the condition makes no sense over these columns, says Spark.
    """
    jvm: Any = spark._jvm  # noqa: SLF001
    nameable = schema if others is None else T.StructType([*schema.fields, *others.fields])
    nothing = spark.createDataFrame([], nameable)
    plan = nothing.where(condition)._jdf.queryExecution().analyzed()  # noqa: SLF001
    if _kind(plan) != "Filter":
        return None
    kept = [part for part in _conjuncts(plan.condition()) if _is_fixed(part, jvm)]
    if not kept:
        return None
    catalyst = jvm.org.apache.spark.sql.catalyst
    fixed = reduce(catalyst.expressions.And, kept)
    filtered = catalyst.plans.logical.Filter(fixed, plan.child())
    state = spark._jsparkSession.sessionState()  # noqa: SLF001
    optimized = state.optimizer().execute(filtered)
    match _kind(optimized):
        case "Filter":
            output = plan.child().output()
            ids = {
                output.apply(i).exprId().id(): field.name
                for i, field in enumerate(schema.fields)
                # Statistics are of the texts as they are in the files, conditions of padded ones.
                if not has_char(field.metadata)
            }
            return _Translation(ids).implied(optimized.condition())
        case "LocalRelation" | "EmptyRelation":
            # The condition is never true, found the optimizer.
            return pc.scalar(False)
        case _:
            return None


def _conjuncts(condition: _Tree) -> list[_Tree]:
    """The parts of a conjunction, on a stack of our own: a long one is a deep tree."""
    found, stack = [], [condition]
    while stack:
        part = stack.pop()
        if _kind(part) == "And":
            stack += [part.right(), part.left()]
        else:
            found.append(part)
    return found


def _is_fixed(part: _Tree, jvm: Any) -> bool:
    """Whether a condition is the same for a row whenever it is asked."""
    pattern = jvm.org.apache.spark.sql.catalyst.trees.TreePattern
    changing = (pattern.CURRENT_LIKE(), pattern.PLAN_EXPRESSION(), pattern.PYTHON_UDF())
    return part.deterministic() and not any(map(part.containsPattern, changing))


@dataclass(slots=True)
class _Translation:
    """From Catalyst's expressions to Arrow's.

    Attributes:
        names: the table's columns by the ids that Catalyst gave them. (A node's own name is spelled as in
            the condition, and Spark doesn't tell upper case from lower.)
        left: how many nodes may still be looked at.
    """

    names: Mapping[int, str]
    left: int = _MOST_NODES

    def implied(self, node: _Tree) -> _Expression | None:
        """What follows from a condition being true; None if nothing that helps."""
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
        """The same condition; None where there is none."""
        self.left -= 1
        if self.left < 0:
            return None
        kind = _kind(node)
        match kind:
            case "Not":
                # The optimizer has left it on single conditions only.
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
        # Columns of other types, of texts with a collation above all, have an order of their own.
        return self._column(node) if _arrow_type(_type(node)) is not None else None

    def _null_safe(self, node: _Tree) -> _Expression | None:
        sides = [node.left(), node.right()]
        if _kind(sides[0]) == "Literal":
            sides.reverse()
        column, value = map(self._side, sides)
        # Of two columns both may be null, and then they are the same.
        if column is None or value is None or _kind(sides[1]) != "Literal":
            return None
        return (column == value) & column.is_valid()

    def _is_in(self, node: _Tree, kind: str) -> _Expression | None:
        tested = node.value() if kind == "In" else node.child()
        column, type_ = self._column(tested), _arrow_type(_type(tested))
        if column is None or type_ is None:
            return None
        # A null in the list makes the condition null where it would be false: no reason to keep a file.
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
    """A node's type; ``string`` only for texts that compare by their bytes."""
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
    """A constant that isn't null; None for one of another type, and for a text that isn't UTF-8."""
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
    """A constant of Catalyst's own form: days, and microseconds, since 1970."""
    if pa.types.is_date32(type_):
        return pa.scalar(value, pa.int32()).cast(type_)
    if pa.types.is_timestamp(type_):
        return pa.scalar(value, pa.int64()).cast(type_)
    return pa.scalar(value, type_)


def _listed(values: _Tree) -> list[Any] | None:
    """The constants of an ``IN``, without nulls."""
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
    """The constants of a long ``IN``, without nulls, in one call instead of one each."""
    if pa.types.is_binary(type_):
        return None
    size = values.size()
    texts = str(values.mkString(_SEPARATOR)).split(_SEPARATOR)
    if len(texts) != size:
        return None
    if pa.types.is_string(type_):
        # A null looks like the text, which as one value more keeps files; what is replaced isn't UTF-8.
        return None if any(_REPLACED in text for text in texts) else texts
    parse = _PARSERS.get(str(type_), Decimal if pa.types.is_decimal(type_) else int)
    return [_scalar(parse(text), type_).as_py() for text in texts if text != "null"]


_PARSERS: Mapping[str, Callable[[str], Any]] = {
    "bool": lambda text: text == "true",
    "float": float,
    "double": float,
}


def _text_after(prefix: str) -> str | None:
    """The least text, by its UTF-8 bytes, that comes after all that begin so; None if there is none.

    Code points have the order of their bytes.
    """
    for end in range(len(prefix), 0, -1):
        point = ord(prefix[end - 1]) + 1
        # What would be half of a pair in UTF-16 is no character.
        point = 0xE000 if 0xD800 <= point < 0xE000 else point
        if point <= 0x10FFFF:
            return prefix[: end - 1] + chr(point)
    return None
