"""The law of pruning: a file that holds a row of the predicate is kept. The oracle is pyarrow,
which evaluates the predicate on the rows themselves."""

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_delta.engine.model.partition_values import serialize_partition_value
from tests.engine.scan.rows import (
    adds,
    checkpoint,
    kept,
    kept_of_checkpoint,
    schema,
    statistics,
    to_json,
)

UTC = timezone.utc
TYPES = {
    "a": "long",
    "b": "long",
    "f": "double",
    "r": "float",
    "d": "decimal(10,2)",
    "w": "decimal(38,18)",
    "t": "string",
    "day": "date",
    "ts": "timestamp",
    "n": "timestamp_ntz",
    "g": "boolean",
    "bin": "binary",
    "p": "long",
    "q": "string",
}
PARTITIONS = ("p", "q")
ARROW = {
    "long": pa.int64(),
    "double": pa.float64(),
    "float": pa.float32(),
    "decimal(10,2)": pa.decimal128(10, 2),
    "decimal(38,18)": pa.decimal128(38, 18),
    "string": pa.string(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
}
_MOMENTS = [
    datetime(1970, 1, 1) + timedelta(microseconds=us)
    for us in (-1_000_001, -1000, -999, -1, 0, 1, 999, 1000, 1001, 2500, 86_400_000_000)
]
_LONG = "x" * 31
POOLS: dict[str, list[Any]] = {
    "long": [-(2**63), -5, -1, 0, 1, 2, 3, 2**53, 2**53 + 1, 2**63 - 1],
    "double": [float("-inf"), -1.5, -0.0, 0.0, 0.1, 1.0, 5e-324, 1e300, float("inf"), float("nan")],
    "float": [pa.scalar(v, pa.float32()).as_py() for v in (-3e38, -0.1, -0.0, 0.1, 1.1, 16777216.0)]
    + [float("nan")],
    "decimal(10,2)": [Decimal(v) for v in ("-1.10", "0.00", "0.01", "1.10", "99999999.99")],
    "decimal(38,18)": [
        Decimal(v).quantize(Decimal("1e-18"))
        for v in ("-1", "0.1", "0.100000000000000001", "1234567890.123456789012345678", "2")
    ],
    "string": [
        *("", "a", "é", "\uffff", "\U0001f600", "null", _LONG, _LONG + "a", _LONG + "ab"),
        *(_LONG + "\U0001f600b", _LONG + "a\x7f\x7f", _LONG + "x" + "\U0010ffff" * 40),
    ],
    "date": [date(1, 1, 1), date(1969, 12, 31), date(1970, 1, 1), date(2024, 2, 29)],
    "timestamp": [moment.replace(tzinfo=UTC) for moment in _MOMENTS],
    "timestamp_ntz": _MOMENTS,
    "boolean": [True, False],
    "binary": [b"", b"\x00", b"\xc3\xbf"],
}
COLUMNS = schema(**TYPES, s={"type": "struct", "fields": [
    {"name": "x", "type": "long", "nullable": True, "metadata": {}}]})  # fmt: skip

_rows = st.fixed_dictionaries(
    {
        **{name: st.one_of(st.none(), st.sampled_from(POOLS[t])) for name, t in TYPES.items()},
        "s.x": st.one_of(st.none(), st.sampled_from(POOLS["long"])),
        "deleted": st.sampled_from((False, False, False, True)),
    }
)


def _literal(type_: str) -> st.SearchStrategy[Any]:
    return st.sampled_from(POOLS[type_]).map(lambda value: pa.scalar(value, ARROW[type_]))


def _field(name: str) -> Any:
    return pc.field(*name.split("."))


def _compare(operator: str, left: Any, right: Any) -> Any:
    return {
        "<": left < right, "<=": left <= right, ">": left > right, ">=": left >= right,
        "==": left == right, "!=": left != right,
    }[operator]  # fmt: skip


_NAMES = [*TYPES, "s.x"]
_OPERATORS = st.sampled_from(("<", "<=", ">", ">=", "==", "!="))


@st.composite
def _leaves(draw: Any) -> Any:
    name = draw(st.sampled_from(_NAMES))
    type_ = TYPES.get(name, "long")
    kind = draw(
        st.sampled_from(("literal", "literal", "flipped", "isin", "null", "column", "other"))
    )
    column = _field(name)
    if kind == "literal":
        return _compare(draw(_OPERATORS), column, draw(_literal(type_)))
    if kind == "flipped":
        return _compare(draw(_OPERATORS), pc.scalar(draw(_literal(type_))), column)
    if kind == "isin":
        values = draw(st.lists(st.one_of(st.none(), st.sampled_from(POOLS[type_])), max_size=4))
        return column.isin(pa.array(values, ARROW[type_]))
    if kind == "null":
        return draw(st.sampled_from((column.is_null(), column.is_valid())))
    if kind == "column":
        other = draw(st.sampled_from([n for n in _NAMES if TYPES.get(n, "long") == type_]))
        return _compare(draw(_OPERATORS), column, _field(other))
    return draw(
        st.sampled_from(
            (
                pc.field("g"),
                pc.field("f").is_nan(),
                pc.starts_with(pc.field("q"), "a"),
                pc.field("d") > 1.1,
                pc.field("w") <= 0.1,
                pc.field("day") < datetime(1970, 1, 1, 12),
                pc.field("r") >= 0.1,
                pc.scalar(True),
                pc.scalar(None).cast(pa.bool_()),
            )
        )
    )


_predicates = st.recursive(
    _leaves(),
    lambda inner: st.one_of(
        st.builds(lambda a, b: a & b, inner, inner),
        st.builds(lambda a, b: a | b, inner, inner),
        inner.map(lambda a: ~a),
    ),
    max_leaves=4,
)


def _table(rows: list[dict[str, Any]]) -> pa.Table:
    columns = {
        name: pa.array([row[name] for row in rows], ARROW[type_]) for name, type_ in TYPES.items()
    }
    inner = pa.array([row["s.x"] for row in rows], pa.int64())
    return pa.table({**columns, "s": pa.StructArray.from_arrays([inner], ["x"])})


def _stats(rows: list[dict[str, Any]], left_out: frozenset[str]) -> str | None:
    """Statistics over all rows, deleted ones included, as files with a deletion vector have them."""
    if "all" in left_out:
        return None
    types = {name: type_ for name, type_ in TYPES.items() if name not in PARTITIONS}
    written = statistics(rows, {**types, "s.x": "long"})
    for group, values in written.items():
        if isinstance(values, dict):
            for name in left_out & values.keys():
                del values[name]
            if "s.x" in values:
                values["s"] = {"x": values.pop("s.x")}
        elif group in left_out:
            written[group] = None
    return to_json({**written, "tightBounds": not any(row["deleted"] for row in rows)})


_files = st.lists(
    st.tuples(
        st.lists(_rows, max_size=3),
        st.frozensets(st.sampled_from((*_NAMES, "numRecords", "all")), max_size=2),
    ),
    min_size=1,
    max_size=5,
)


def _in_one_partition(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**row, **{name: rows[0][name] for name in PARTITIONS}} for row in rows]


def _partition_values(rows: list[dict[str, Any]]) -> dict[str, str | None]:
    if not rows:
        return dict.fromkeys(PARTITIONS)
    return {
        name: serialize_partition_value(rows[0][name], COLUMNS.field(name).data_type)
        for name in PARTITIONS
    }


@settings(max_examples=50, deadline=None)
@given(_files, st.lists(_predicates, min_size=4, max_size=4))
def test_a_file_with_a_matching_row_is_kept(files: Any, predicates: list[Any]) -> None:
    contents = [_in_one_partition(rows) for rows, _ in files]
    for rows in contents:
        for row in rows:
            row["q"] = row["q"] or None  # empty text is null in partition values
    given_adds = adds(
        *(_stats(rows, left_out) for rows, (_, left_out) in zip(contents, files, strict=True)),
        partitions=[_partition_values(rows) for rows in contents],
    )
    typed = checkpoint(given_adds, COLUMNS)
    for predicate in predicates:
        found = {*kept(predicate, given_adds, COLUMNS, partition_columns=PARTITIONS)} & {
            *kept_of_checkpoint(predicate, typed, COLUMNS, partition_columns=PARTITIONS)
        }
        for number, rows in enumerate(contents):
            live = _table([row for row in rows if not row["deleted"]])
            try:
                matches = live.filter(predicate).num_rows
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
                continue  # pyarrow can't evaluate it
            assert not matches or number in found, (
                str(predicate),
                live.filter(predicate).to_pylist(),
            )


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.lists(st.integers(-3, 3), min_size=1, max_size=3), min_size=1, max_size=6),
    _OPERATORS,
    st.integers(-4, 4),
)
def test_an_ordered_comparison_with_tight_bounds_keeps_no_other_file(
    files: list[list[int]], operator: str, constant: int
) -> None:
    given_adds = adds(*(to_json(statistics([{"a": v} for v in f], {"a": "long"})) for f in files))
    predicate = _compare(operator, pc.field("a"), constant)
    found = kept(predicate, given_adds, COLUMNS)
    for number, values in enumerate(files):
        matching = pa.table({"a": values}).filter(predicate).num_rows > 0
        in_between = operator == "==" and min(values) < constant < max(values)
        assert (number in found) == (matching or in_between)
