"""Translate conditions of Catalyst to expressions of Arrow, as far as statistics can answer them.

See `pruning` for the table of nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import reduce
from operator import and_, eq, ge, gt, le, lt, or_
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.spark.reader.catalyst import Tree, kind, operands

if TYPE_CHECKING:
    from airflow_delta.spark.reader.generated_partitions import GeneratedPartitions

__all__ = ["Expression", "Translation"]

Expression: TypeAlias = Any
"""A `pyarrow.compute.Expression`."""

_MOST_NODES = 5_000
"""The most nodes that are translated, each in part of a millisecond; the rest isn't used."""
_SEPARATOR = "\x00"
_REPLACED = "\ufffd"


@dataclass(slots=True)
class Translation:
    """Translates Catalyst's expressions to Arrow's.

    Attributes:
        names: the table's columns by their Catalyst ids. (A node has the spelling of the condition, which
            may differ in case.)
        generated: the generated partition columns; None if there are none that help.
        left: the number of nodes that may still be translated.
    """

    names: Mapping[int, str]
    generated: GeneratedPartitions | None = None
    left: int = _MOST_NODES

    def implied(self, node: Tree) -> Expression | None:
        """An expression that is true whenever the condition is; None if there is no useful one."""
        match kind(node):
            case "And":
                parts = [
                    part for part in map(self.implied, operands(node, "And")) if part is not None
                ]
                return reduce(and_, parts) if parts else None
            case "Or":
                alternatives = [self.implied(part) for part in operands(node, "Or")]
                if any(part is None for part in alternatives):
                    return None
                return reduce(or_, alternatives)
            case _:
                parts = [
                    part
                    for part in (self._exact(node), self._of_partitions(node))
                    if part is not None
                ]
                return reduce(and_, parts) if parts else None

    def _of_partitions(self, node: Tree) -> Expression | None:
        """The condition on generated partition columns that follows from a comparison with constants."""
        form = kind(node)
        if self.generated is None or self.left < 0:
            return None
        if form in ("In", "InSet"):
            tested = node.value() if form == "In" else node.child()
            type_ = _arrow_type(_type(tested))
            listed = None if type_ is None else self._constants(node, form, type_)
            values = None if listed is None else list(listed)
            form = "In"
        elif form in _MIRRORED:
            tested, constant = node.left(), node.right()
            if kind(tested) == "Literal":
                tested, constant, form = constant, tested, _MIRRORED[form]
            value = _literal(constant) if kind(constant) == "Literal" else None
            values = None if value is None else [value]
        else:
            return None
        path = self._path(tested)
        if path is None or len(path) != 1 or values is None:
            return None
        return self.generated.implied(path[0], form, values)

    def _exact(self, node: Tree) -> Expression | None:
        """An expression equal to the condition; None if there is none."""
        self.left -= 1
        if self.left < 0:
            return None
        form = kind(node)
        match form:
            case "Not":
                # After the optimizer, NOT applies to single conditions only.
                operand = self._exact(node.child())
                return None if operand is None else ~operand
            case "IsNull" | "IsNotNull":
                column = self._column(node.child())
                if column is None:
                    return None
                return column.is_null() if form == "IsNull" else column.is_valid()
            case "In" | "InSet":
                return self._is_in(node, form)
            case "StartsWith":
                return self._starts_with(node)
            case "EqualNullSafe":
                return self._null_safe(node)
            case "AttributeReference" | "GetStructField":
                return self._column(node) if _type(node) == "boolean" else None
            case _ if form in _COMPARISONS:
                left, right = self._side(node.left()), self._side(node.right())
                if left is None or right is None:
                    return None
                return _COMPARISONS[form](left, right)
        return None

    def _column(self, node: Tree) -> Expression | None:
        path = self._path(node)
        return None if path is None else pc.field(*path)

    def _path(self, node: Tree) -> tuple[str, ...] | None:
        match kind(node):
            case "AttributeReference":
                name = self.names.get(node.exprId().id())
                return None if name is None else (name,)
            case "GetStructField":
                outer = self._path(node.child())
                # Not as the condition spells it: Spark ignores the case of names.
                name = node.childSchema().fields()[node.ordinal()].name()
                return None if outer is None else (*outer, name)
        return None

    def _side(self, node: Tree) -> Expression | None:
        if kind(node) == "Literal":
            value = _literal(node)
            return None if value is None else pc.scalar(value)
        # Columns of other types have another order, in particular strings with a collation.
        return self._column(node) if _arrow_type(_type(node)) is not None else None

    def _null_safe(self, node: Tree) -> Expression | None:
        sides = [node.left(), node.right()]
        if kind(sides[0]) == "Literal":
            sides.reverse()
        column, value = map(self._side, sides)
        # Two columns that are both null are equal here, so only a constant can be translated.
        if column is None or value is None or kind(sides[1]) != "Literal":
            return None
        return (column == value) & column.is_valid()

    def _is_in(self, node: Tree, form: str) -> Expression | None:
        tested = node.value() if form == "In" else node.child()
        column, type_ = self._column(tested), _arrow_type(_type(tested))
        if column is None or type_ is None:
            return None
        values = self._constants(node, form, type_)
        return None if values is None else column.isin(values)

    def _constants(self, node: Tree, form: str, type_: pa.DataType) -> pa.Array | None:
        """The constants of an ``IN``. With a null in the list it is null, not false; both skip the row."""
        values = _listed(node.list(), type_) if form == "In" else _set(node.hset(), type_)
        return None if values is None else _array(values, type_)

    def _starts_with(self, node: Tree) -> Expression | None:
        column = self._side(node.left())
        constant = _literal(node.right()) if kind(node.right()) == "Literal" else None
        if column is None or constant is None:
            return None
        prefix = constant.as_py()
        after = _text_after(prefix)
        return column >= prefix if after is None else (column >= prefix) & (column < after)


_COMPARISONS: Mapping[str, Callable[[Expression, Expression], Expression]] = {
    "EqualTo": eq,
    "LessThan": lt,
    "LessThanOrEqual": le,
    "GreaterThan": gt,
    "GreaterThanOrEqual": ge,
}

_MIRRORED: Mapping[str, str] = {
    "EqualTo": "EqualTo",
    "EqualNullSafe": "EqualNullSafe",
    "LessThan": "GreaterThan",
    "LessThanOrEqual": "GreaterThanOrEqual",
    "GreaterThan": "LessThan",
    "GreaterThanOrEqual": "LessThanOrEqual",
}
"""Comparisons with a constant, and the same ones with exchanged sides."""

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


def _type(node: Tree) -> str:
    """The type of a node; ``string`` only without a collation."""
    return str(node.dataType().simpleString())


def _arrow_type(name: str) -> pa.DataType | None:
    if name.startswith("decimal("):
        precision, scale = map(int, name.removeprefix("decimal(").rstrip(")").split(","))
        return pa.decimal128(precision, scale)
    return _TYPES.get(name)


def _literal(node: Tree) -> pa.Scalar | None:
    """The value of a literal; None if it is null, of another type or a text that isn't UTF-8."""
    type_ = _arrow_type(_type(node))
    value = None if type_ is None else _value(node, type_)
    return None if value is None else _array([value], type_)[0]


def _value(node: Tree, type_: pa.DataType) -> Any | None:
    """The value of a literal for `_array`; None if it is null, or a text that isn't UTF-8."""
    value = node.value()
    if value is None:
        return None
    if pa.types.is_string(type_):
        try:
            return bytes(value.getBytes()).decode("utf-8")
        except UnicodeDecodeError:
            return None
    return Decimal(value.toString()) if pa.types.is_decimal(type_) else value


def _array(values: list[Any], type_: pa.DataType) -> pa.Array:
    """Convert Catalyst's values; dates and times are days and microseconds since 1970.

    They don't become dates and times of Python, which end with the year 9999.
    """
    if pa.types.is_date32(type_):
        return pa.array(values, pa.int32()).cast(type_)
    if pa.types.is_timestamp(type_):
        return pa.array(values, pa.int64()).cast(type_)
    return pa.array(values, type_)


def _listed(values: Tree, type_: pa.DataType) -> list[Any] | None:
    """The values of the literals of an ``IN``, without nulls."""
    found = []
    for index in range(values.size()):
        node = values.apply(index)
        if kind(node) != "Literal":
            return None
        if node.value() is None:
            continue
        value = _value(node, type_)
        if value is None:
            return None
        found.append(value)
    return found


def _set(values: Tree, type_: pa.DataType) -> list[Any] | None:
    """The values of the literals of a long ``IN``, without nulls, in one call to the JVM."""
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
    return [parse(text) for text in texts if text != "null"]


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
