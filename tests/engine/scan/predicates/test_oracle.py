"""Text and tuples mean what SQLite says that they mean: of the rows, and of the files that are kept.

SQLite has the same logic of three values. It gets the same text; only decimals, dates and times
are texts and numbers to it, which are written so that they compare alike.
"""

from __future__ import annotations

import json
import re
import sqlite3
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_delta.engine.model.partition_values import serialize_partition_value
from airflow_delta.engine.scan.predicates.reading import as_expression
from tests.engine.scan.rows import adds, kept, schema, statistics, to_json

UTC = timezone.utc
TYPES = {
    "a": "long", "b": "integer", "f": "double", "d": "decimal(10,2)", "t": "string", "day": "date",
    "ts": "timestamp", "n": "timestamp_ntz", "g": "boolean", "p": "long", "q": "string", "r": "date",
}  # fmt: skip
PARTITIONS = ("p", "q", "r")
NOON = datetime(2026, 1, 31, 12)
POOLS: dict[str, list[Any]] = {
    "long": [-(2**63), -5, 0, 1, 2, 3, 2**63 - 1],
    "integer": [-1, 0, 1, 7],
    "double": [-1.5, 0.0, 0.1, 1.0, 1e300],
    "decimal(10,2)": [Decimal(text) for text in ("-1.10", "0.00", "0.50", "1.25")],
    "string": ["", "a", "ab", "abc", "b", "é", "x'y", "\U0001f600"],
    "date": [date(1969, 12, 31), date(2026, 1, 30), date(2026, 1, 31), date(2026, 2, 1)],
    "timestamp": [(NOON + timedelta(hours=h)).replace(tzinfo=UTC) for h in (-13, 0, 1)],
    "timestamp_ntz": [NOON + timedelta(hours=h) for h in (-13, 0, 1)],
    "boolean": [True, False],
}
ARROW = {
    "long": pa.int64(), "integer": pa.int32(), "double": pa.float64(), "string": pa.string(),
    "decimal(10,2)": pa.decimal128(10, 2), "date": pa.date32(), "boolean": pa.bool_(),
    "timestamp": pa.timestamp("us", "UTC"), "timestamp_ntz": pa.timestamp("us"),
}  # fmt: skip
COLUMNS = schema(**TYPES)
EXACT = {"a", "b", "d", "t", "day", "p", "q", "r"}
"""Columns whose statistics, or partition values, contain the value of the one row of a file."""


def sql(value: Any) -> str:
    """A value as the text has it."""
    match value:
        case None:
            return "NULL"
        case bool():
            return str(value).upper()
        case str():
            return "'" + value.replace("'", "''") + "'"
        case datetime():
            return f"'{value.isoformat().replace('+00:00', 'Z')}'"
        case date():
            return f"'{value.isoformat()}'"
        case _:
            return f"{value:f}" if isinstance(value, Decimal) else repr(value)


def _in_sqlite(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, Decimal):
        return float(value)
    return value.isoformat() if isinstance(value, date) else value


_rows = st.fixed_dictionaries(
    {name: st.one_of(st.none(), st.sampled_from(POOLS[t])) for name, t in TYPES.items()}
)
_NAMES = st.sampled_from([*TYPES])
_OPERATORS = st.sampled_from(("=", "==", "!=", "<>", "<", "<=", ">", ">="))


@st.composite
def _tests(draw: Any) -> str:
    name = draw(_NAMES)
    type_ = TYPES[name]
    literals = st.one_of(st.sampled_from(POOLS[type_]), st.none()).map(sql)
    if type_ in ("long", "integer"):
        literals = st.one_of(
            literals, st.sampled_from(("1.5", "-0.5", "1e0", "99999999999999999999"))
        )
    left = draw(st.sampled_from((name, f"`{name}`")))
    kind = draw(st.sampled_from(("compare", "compare", "flip", "in", "null", "between", "other")))
    no = draw(st.sampled_from(("", "NOT ")))
    if kind == "compare":
        return f"{left} {draw(_OPERATORS)} {draw(literals)}"
    if kind == "flip":
        return f"{draw(literals)} {draw(_OPERATORS)} {left}"
    if kind == "in":
        values = draw(st.lists(literals, min_size=1, max_size=4))
        return f"{left} {no}IN ({', '.join(values)})"
    if kind == "null":
        return f"{left} IS {no}NULL"
    if kind == "between":
        return f"{left} {no}BETWEEN {draw(literals)} AND {draw(literals)}"
    same = [other for other, other_type in TYPES.items() if other_type == type_]
    return draw(
        st.sampled_from(
            (
                f"{left} {draw(_OPERATORS)} {draw(st.sampled_from(same))}",
                *("g", "NOT g", "TRUE", "FALSE", "NULL", "1 = 1", "2 < 1", "NULL = 1"),
                *(f"t {no}LIKE 'a%'", f"q {no}like 'ab%'", f"t {no}LIKE '%'", f"q {no}LIKE 'abc'"),
                *(f"t {no}LIKE '\U0001f600%'", f"q {no}LIKE 'é%'"),
            )
        )
    )


_texts = st.recursive(
    _tests(),
    lambda inner: st.one_of(
        st.builds("{} AND {}".format, inner, inner),
        st.builds("{} or {}".format, inner, inner),
        st.builds("({} OR {})".format, inner, inner),
        st.builds("NOT ({})".format, inner),
        st.builds("not {}".format, inner),
    ),
    max_leaves=5,
)


@cache
def _connection() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:")
    connection.execute("PRAGMA case_sensitive_like=ON")
    kinds = {"long": "INTEGER", "integer": "INTEGER", "double": "REAL", "decimal(10,2)": "REAL"}
    columns = ", ".join(
        f"{name} {kinds.get(type_, 'INTEGER' if type_ == 'boolean' else 'TEXT')}"
        for name, type_ in TYPES.items()
    )
    connection.execute(f"CREATE TABLE rows (number INTEGER, {columns})")
    return connection


def matching(rows: list[dict[str, Any]], text: str) -> list[int]:
    """The rows of which SQLite says that the text is true."""
    connection = _connection()
    connection.execute("DELETE FROM rows")
    marks = ", ".join("?" * (len(TYPES) + 1))
    connection.executemany(
        f"INSERT INTO rows VALUES ({marks})",
        [(number, *(_in_sqlite(row[name]) for name in TYPES)) for number, row in enumerate(rows)],
    )
    found = connection.execute(f"SELECT number FROM rows WHERE {text} ORDER BY number")
    return [number for (number,) in found]


def as_table(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.table(
        {name: pa.array([row[name] for row in rows], ARROW[type_]) for name, type_ in TYPES.items()}
    )


def files_of(rows: list[dict[str, Any]]) -> pa.Table:
    """A file for each row, with honest statistics."""
    types = {column.name: column.data_type for column in COLUMNS}
    data = {name: type_ for name, type_ in TYPES.items() if name not in PARTITIONS}
    return adds(
        *(to_json(_statistics(row, data)) for row in rows),
        partitions=[
            {name: serialize_partition_value(row[name], types[name]) for name in PARTITIONS}
            for row in rows
        ],
    )


def _statistics(row: dict[str, Any], types: dict[str, str]) -> dict[str, Any]:
    like = {name: "long" if type_ == "integer" else type_ for name, type_ in types.items()}
    return statistics([row], like)


@settings(max_examples=150, deadline=None)
@given(rows=st.lists(_rows, min_size=1, max_size=12), text=_texts)
def test_a_text_keeps_the_files_that_sql_finds_rows_in(
    rows: list[dict[str, Any]], text: str
) -> None:
    # As a partition value the empty text is null (PROTOCOL.md, "Partition Value Serialization").
    rows = [{**row, "q": row["q"] or None} for row in rows]
    expected = matching(rows, text)
    found = kept(
        as_expression(text, COLUMNS, table="t"),
        files_of(rows),
        COLUMNS,
        partition_columns=PARTITIONS,
    )
    assert set(expected) <= set(found)
    if TYPES.keys() & set(re.findall(r"\w+", text)) <= EXACT:
        assert found == expected


@settings(max_examples=150, deadline=None)
@given(rows=st.lists(_rows, min_size=1, max_size=12), text=_texts)
def test_a_text_is_true_of_the_rows_that_sql_finds(rows: list[dict[str, Any]], text: str) -> None:
    table = as_table(rows).append_column("number", pa.array(range(len(rows))))
    found = table.filter(as_expression(text, COLUMNS, table="t"))["number"].to_pylist()
    assert found == matching(rows, text)


@pytest.mark.parametrize(
    "tuples",
    [
        [("a", ">", 0)],
        [("a", "=", 1), ("t", "!=", "a")],
        [("a", "in", [1, 2]), ("q", "not in", ["a", "b"])],
        [[("a", "<", 0)], [("day", ">=", date(2026, 1, 31)), ("p", "==", 3)]],
        [[("ts", "<=", NOON.replace(tzinfo=UTC))], [("d", "=", Decimal("0.50"))]],
        [("n", ">", NOON), ("g", "=", True)],
    ],
)
def test_tuples_are_true_of_the_rows_that_pyarrow_finds(tuples: Any) -> None:
    """Beside nulls in ``not in``, for which pyarrow has no logic of three values."""
    rows = [
        {name: pool[(shift + number) % len(pool)] for number, (name, pool) in enumerate(pools)}
        for pools in [[(name, [*POOLS[type_], None]) for name, type_ in TYPES.items()]]
        for shift in range(40)
    ]
    table = as_table(rows)
    nulls = [test[0] for test in tuples if isinstance(test, tuple) and test[1] == "not in"]
    for name in nulls:
        table = table.filter(table[name].is_valid())
    expected = table.filter(pq.filters_to_expression(tuples))
    found = table.filter(as_expression(tuples, COLUMNS, table="t"))
    assert found.equals(expected)
    assert 0 < found.num_rows < len(rows)


def test_json_of_the_statistics_is_read() -> None:
    """The law above says little if no statistics are there."""
    row = {name: pool[0] for name, pool in ((n, POOLS[t]) for n, t in TYPES.items())}
    written = json.loads(files_of([row])["stats"][0].as_py())
    assert written["minValues"].keys() >= {"a", "b", "d", "t", "day", "ts", "n"}
