"""pyarrow expressions become our nodes. The oracle is pyarrow: what we read, built again, is equal."""

from __future__ import annotations

from datetime import date, datetime, timezone
from decimal import Decimal
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.engine.scan import expressions
from airflow_delta.engine.scan.expression_tokens import (
    UnreadableExpressionError,
    expression_tokens,
)
from airflow_delta.engine.scan.expressions import (
    UNKNOWN,
    And,
    Column,
    Comparison,
    IsIn,
    IsNull,
    Literal,
    Not,
    Or,
    read_predicate,
    useful_columns,
)

a, b = pc.field("a"), pc.field("s", "é x")


def rebuilt(node: Any) -> Any:
    match node:
        case Literal(value):
            return pc.scalar(value)
        case Column(path):
            return pc.field(*path)
        case Comparison(operator, left, right):
            l, r = rebuilt(left), rebuilt(right)  # noqa: E741
            return {
                "<": l < r, "<=": l <= r, ">": l > r, ">=": l >= r, "==": l == r, "!=": l != r,
            }[operator]  # fmt: skip
        case IsNull(column, nan_is_null):
            return rebuilt(column).is_null(nan_is_null=nan_is_null)
        case IsIn(column, values, null_is_in):
            nulls = pa.nulls(int(null_is_in), values.type)
            return rebuilt(column).isin(pa.concat_arrays([values, nulls]))
        case Not(operand):
            return ~rebuilt(operand)
        case And(operands):
            return reduce(lambda a, b: a & b, map(rebuilt, operands))
        case Or(operands):
            return reduce(lambda a, b: a | b, map(rebuilt, operands))
    raise AssertionError(node)


CONSTANTS = [
    5, -1.5, "x", "é\x00", b"\xff", True, Decimal("1.10"), date(2024, 1, 1), datetime(2024, 1, 1),
    datetime(2024, 1, 1, tzinfo=timezone.utc), pa.scalar(None, pa.int32()), pa.scalar(7, pa.uint8()),
    pa.scalar(1, pa.timestamp("ns")), pa.scalar("x", pa.large_string()),
]  # fmt: skip
_columns = st.sampled_from((a, b, pc.field("with.dot"), pc.field("")))
_leaves = st.one_of(
    st.builds(
        lambda column, constant, compare: compare(column, constant),
        _columns,
        st.sampled_from(CONSTANTS),
        st.sampled_from(
            (
                lambda c, v: c < v, lambda c, v: c <= v, lambda c, v: c > v, lambda c, v: c >= v,
                lambda c, v: c == v, lambda c, v: c != v, lambda c, v: pc.scalar(v) < c,
            )
        ),
    ),
    _columns.map(lambda column: column.is_null()),
    _columns.map(lambda column: column.is_null(nan_is_null=True)),
    st.builds(
        lambda column, values: column.isin(pa.array(values, pa.int64())),
        _columns,
        st.lists(st.integers(-9, 9), unique=True),
    ),
    _columns.map(lambda column: column.isin(pa.array(["x", None]))),
    _columns,
)  # fmt: skip


def _left_chain(kind: str, parts: list[Any]) -> Any:
    return reduce((lambda a, b: a & b) if kind == "and" else (lambda a, b: a | b), parts)


_expressions = st.recursive(
    _leaves,
    lambda inner: st.one_of(
        inner.map(lambda operand: ~operand),
        # a leaf on the right: of a | (b | c) the tree keeps the meaning, not the brackets.
        st.builds(_left_chain, st.sampled_from(("and", "or")), st.tuples(inner, _leaves).map(list)),
    ),
    max_leaves=6,
)


@settings(max_examples=50, deadline=None)
@given(_expressions)
def test_what_is_read_is_what_was_written(expression: Any) -> None:
    assert rebuilt(read_predicate(expression).root).equals(expression)


def test_chains_are_flat() -> None:
    leaves = [pc.field(name) > 1 for name in "abcd"]
    nodes = tuple(read_predicate(leaf).root for leaf in leaves)
    a, b, c, d = leaves
    assert read_predicate((a | b) | (c | d)).root == Or(nodes)
    assert read_predicate(a & (b & (c & d))).root == And(nodes)
    assert read_predicate((a & b) | (c & d)).root == Or((And(nodes[:2]), And(nodes[2:])))


@pytest.mark.parametrize(
    "expression",
    [
        a + 1 > 5, a.cast(pa.int32()) > 5, pc.starts_with(a, "x"), a.is_nan(), pc.xor(a, a),
        pc.if_else(a, a, a), (a + 1).is_null(), (a + 1).isin([1]), (a + 1).is_valid(),
        pc.is_in(a, value_set=pa.array([1]), skip_nulls=False).is_null(),
        a == pc.scalar("x").cast(pa.int64()),
    ],
)  # fmt: skip
def test_what_bounds_say_nothing_about_is_unknown(expression: Any) -> None:
    predicate = read_predicate(expression)
    assert predicate.root in (UNKNOWN, Not(UNKNOWN))
    assert predicate.columns == {("a",)}
    assert not list(useful_columns(predicate.root))
    assert read_predicate(~expression | (b > 1)).root.operands[-1] == Comparison(
        ">", Column(("s", "é x")), Literal(pa.scalar(1))
    )


@pytest.mark.parametrize(
    ("literal", "value"),
    [
        (pc.scalar("5").cast(pa.int64()), pa.scalar(5)),
        (pc.scalar(5.5).cast(pa.int64(), safe=False), pa.scalar(5)),
        (pc.scalar("2024-01-01").cast(pa.date32()), pa.scalar(date(2024, 1, 1))),
        (pc.scalar(5).cast(pa.string()).cast(pa.int64()), pa.scalar(5)),
    ],
)
def test_casts_of_constants_are_made_at_once(literal: Any, value: pa.Scalar) -> None:
    assert read_predicate(a == literal).root == Comparison("==", Column(("a",)), Literal(value))


def test_valid_is_not_null() -> None:
    assert read_predicate(b.is_valid()).root == read_predicate(~b.is_null()).root


def test_lists_of_values() -> None:
    def read(expression: Any) -> tuple[list[Any], bool]:
        node = read_predicate(expression).root
        assert isinstance(node, IsIn)
        return node.values.to_pylist(), node.null_is_in

    assert read(a.isin([1, 2, 1, None])) == ([1, 2], True)
    assert read(a.isin([])) == ([], False)
    assert read(pc.is_in(a, value_set=pa.array([1, None]), skip_nulls=True)) == ([1], False)
    assert read(a.isin(pa.chunked_array([[1], [2]]))) == ([1, 2], False)


def test_all_columns_are_named_also_those_nothing_is_known_of() -> None:
    predicate = read_predicate((a > 1) & (pc.year(pc.field("t")) == pc.field("y")) | ~b.is_null())
    assert predicate.columns == {("a",), ("t",), ("y",), ("s", "é x")}
    assert set(useful_columns(predicate.root)) == {("a",), ("s", "é x")}


def test_a_column_by_number_can_not_be_read() -> None:
    with pytest.raises(UnreadableExpressionError, match="non-name field_refs"):
        expression_tokens(pc.field(0) > 1)
    assert read_predicate(pc.field(0) > 1).root == UNKNOWN


@pytest.mark.parametrize(
    "pairs",
    [
        [], [("unheard_of", "0")], [("call", "greater"), ("field_ref", "a")], [("literal", "7")],
        [("call", "greater"), ("end", "less")], [("end", "greater")], [("literal", "x")],
        [("field_ref", "a"), ("field_ref", "b")], [("nested_field_ref", "2"), ("field_ref", "a")],
        [("call", "")],
    ],
)  # fmt: skip
def test_a_form_that_pyarrow_may_have_some_day_is_unknown(
    pairs: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "airflow_delta.engine.scan.expression_tokens._metadata_pairs", lambda _: pairs
    )
    assert read_predicate(a > 1) == expressions.Predicate(UNKNOWN, frozenset())


def test_only_expressions_are_read() -> None:
    with pytest.raises(InvalidArgumentError, match="'a > 5' is a str"):
        read_predicate("a > 5")
