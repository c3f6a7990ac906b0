"""Numbers compare as in Spark, ``IN`` is an OR of ``=``, and neither depends on how rows are stored."""

from __future__ import annotations

import json
import math
import operator
import random
from collections.abc import Callable, Iterable, Iterator
from datetime import date, datetime
from decimal import Context, Decimal
from itertools import pairwise, permutations, product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from airflow_delta.engine import AddFile, DeltaTable, Snapshot
from airflow_delta.engine.data_files.footer_statistics import json_text
from airflow_delta.engine.model.partition_values import serialize_partition_value
from airflow_delta.engine.scan.predicates.reading import as_expression
from tests.engine.scan.rows import adds, kept, schema, statistics, to_json

SINGLE = pa.scalar(0.1, pa.float32()).as_py()
NAN = math.nan

VALUES: dict[str, list[Any]] = {
    "float": [SINGLE, 0.5, 0.0, -0.0, math.inf, NAN, None],
    "double": [0.1, SINGLE, 0.0, -0.0, 1e300, -math.inf, NAN, None],
    "decimal(12,3)": [Decimal(text) for text in ("0.100", "0.500", "-0.001", "999999999.999")]
    + [None],
    "decimal(38,0)": [Decimal(10) ** 37 + 1, Decimal(5), Decimal(0), Decimal(f"-{'9' * 38}"), None],
    "decimal(38,30)": [Decimal("0.1"), Decimal(12345678), Decimal(f"-{'9' * 8}.{'9' * 30}"), None],
    "decimal(38,38)": [Decimal("0.1"), Decimal(f"-0.{'9' * 38}"), None],
    "byte": [-128, 0, 1, 127, None],
    "long": [2**53 + 1, 2**53 - 1, 2**63 - 1, -(2**63), 0, 1, None],
}
ARROW: dict[str, pa.DataType] = {
    "float": pa.float32(),
    "double": pa.float64(),
    "byte": pa.int8(),
    "long": pa.int64(),
    **{
        f"decimal({digits},{scale})": pa.decimal128(digits, scale)
        for digits, scale in ((12, 3), (38, 0), (38, 30), (38, 38))
    },
}
CONSTANTS = [
    0.1, SINGLE, 0.5, 9007199254740992.0, 2.0**63, 1e37, 1e38, 0.30000000000000004,
    0.0, -0.0, 1.0, -0.5, 5.0, 1e30, 1e300, math.inf, -math.inf, NAN,
    0, 5, -128, 300, 2**53 + 1, 2**63, -(2**63), 10**9, 10**37, 10**60,
    *map(Decimal, ("0.1", "0.100000000000000001", "0.5", "-0.5", "12345678.00")),
    *map(Decimal, ("1e-20", "1e-60", "-1e-60", "1e999999999")),
]  # fmt: skip
OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le,
    ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


def compared(type_: str, name: str, value: Any, constant: Any) -> bool | None:
    """What a comparison says, by Python's exact numbers."""
    if value is None:
        return None
    test = OPERATORS[name]
    if type_ in ("float", "double"):
        return test(value, float(constant))
    if isinstance(constant, float):
        return test(float(value), constant)
    return test(Decimal(value), Decimal(constant))


def is_in(type_: str, value: Any, constants: list[Any]) -> bool | None:
    if value is None:
        return None if constants else False
    return any(compared(type_, "=", value, each) for each in constants)


def found(type_: str, predicate: Any, *, table: str = "t") -> list[Any]:
    expression = as_expression(predicate, schema(v=type_), table=table)
    values = VALUES[type_]
    rows = pa.table({"v": pa.array(values, ARROW[type_]), "n": pa.array(range(len(values)))})
    return rows.filter(expression)["n"].to_pylist()


def files_of(type_: str) -> pa.Table:
    """A file for each value, with statistics unless it is NaN, or infinite."""
    return adds(
        *(
            json_text(
                {
                    "numRecords": 1,
                    "minValues": {"v": value} if has_bounds(value) else {},
                    "maxValues": {"v": value} if has_bounds(value) else {},
                    "nullCount": {"v": int(value is None)},
                }
            )
            for value in VALUES[type_]
        )
    )


def has_bounds(value: Any) -> bool:
    return value is not None and not (isinstance(value, float) and not math.isfinite(value))


@pytest.mark.parametrize("type_", VALUES)
def test_a_comparison_is_that_of_exact_numbers_or_of_doubles(type_: str) -> None:
    files = files_of(type_)
    for constant, name in product(CONSTANTS, OPERATORS):
        predicate = [("v", name, constant)]
        outcomes = [compared(type_, name, value, constant) for value in VALUES[type_]]
        expected = [number for number, outcome in enumerate(outcomes) if outcome]
        assert found(type_, predicate) == expected, predicate
        pruned = kept(as_expression(predicate, schema(v=type_), table="t"), files, schema(v=type_))
        assert set(expected) <= set(pruned), predicate


@pytest.mark.parametrize("type_", VALUES)
def test_a_list_is_an_or_of_comparisons(type_: str) -> None:
    files = files_of(type_)
    lists = [[constant] for constant in CONSTANTS]
    lists += [[a, b] for a, b in pairwise(CONSTANTS)]
    lists += [CONSTANTS, [*CONSTANTS, *range(1000, 1100)], []]
    for constants in lists:
        outcomes = [is_in(type_, value, constants) for value in VALUES[type_]]
        for name, wanted in (("in", True), ("not in", False)):
            predicate = [("v", name, constants)]
            expected = [number for number, outcome in enumerate(outcomes) if outcome is wanted]
            assert found(type_, predicate) == expected, predicate
            expression = as_expression(predicate, schema(v=type_), table="t")
            pruned = kept(expression, files, schema(v=type_))
            assert set(expected) <= set(pruned), predicate
            if name == "in" and type_ in ("byte", "long") and len(constants) < 3:
                assert set(pruned) == set(expected), predicate


@pytest.mark.parametrize("texts", [("v = 0.1", "v IN (0.1)"), ("v <> 0.1", "v NOT IN (0.1)")])
@pytest.mark.parametrize("type_", VALUES)
def test_a_text_says_the_same_with_in(type_: str, texts: tuple[str, str]) -> None:
    assert found(type_, texts[0]) == found(type_, texts[1])


@pytest.mark.parametrize(
    ("type_", "text", "expected"),
    [
        ("decimal(38,0)", "v > 0.5", [0, 1]),
        ("decimal(38,30)", "v > 1000000000", []),
        ("decimal(38,30)", "v < 1000000000", [0, 1, 2]),
        ("decimal(38,30)", "NOT v < 1000000000", []),
        ("long", "v > 0.00000000000000000001", [0, 1, 2, 5]),
        ("long", "NOT v > 0.00000000000000000001", [3, 4]),
        ("long", "NOT v = 0.5", [0, 1, 2, 3, 4, 5]),
        ("long", "v < 99999999999999999999", [0, 1, 2, 3, 4, 5]),
    ],
)
def test_a_constant_may_have_digits_that_the_column_lacks(
    type_: str, text: str, expected: list[int]
) -> None:
    assert found(type_, text) == expected


def test_columns_of_decimals_with_no_common_type_are_compared() -> None:
    columns = schema(whole="decimal(38,0)", part="decimal(38,38)", n="long")
    rows = pa.table(
        {
            "whole": pa.array([Decimal(0), Decimal(1), None], pa.decimal128(38, 0)),
            "part": pa.array([Decimal("0.5"), Decimal("0.5"), Decimal(0)], pa.decimal128(38, 38)),
            "n": [0, 1, 2],
        }
    )
    for text, expected in (("whole > part", [1]), ("part < n", [1, 2]), ("n = whole", [0, 1])):
        expression = as_expression(text, columns, table="t")
        assert rows.filter(expression)["n"].to_pylist() == expected


COLUMNS: dict[str, tuple[str, pa.DataType, list[Any]]] = {
    "b": ("byte", pa.int8(), [1, -128, 0, None, 1, 96, 0, 127, 2, 0]),
    "i": ("integer", pa.int32(), [1, 16777217, 0, 16777217, None, 96, 0, -5, 2, 0]),
    "l": ("long", pa.int64(), [1, 2**53 + 1, 2**63 - 1, 16777217, 3, None, 0, 2**53 - 1, 2, 0]),
    "s": ("float", pa.float32(), [1.0, 16777216.0, NAN, 2.0**63, None, 96.85, -0.0, SINGLE, 2.5, 0.1]),
    "f": ("double", pa.float64(), [1.0, 2.0**53, 2.0**63, 16777217.0, NAN, 96.85, 0.0, 0.1, 2.5, 1e300]),
    "d": ("decimal(10,2)", pa.decimal128(10, 2),
          [*map(Decimal, ("1", "96.85", "0", "-5", "16777217", "96.85", "0", "0.1", "2.5", "723054.54"))]),
    "w": ("decimal(38,18)", pa.decimal128(38, 18),
          [*map(Decimal, ("1", "9007199254740993", "0", "96.85", "1e-18", "96.85", "0.1", "0.1")),
           Decimal("2.500000000000000001"), None]),
}  # fmt: skip
"""By name: the type of a column, that of Arrow, and values."""


def compared_columns(name: str, left: str, right: str, row: dict[str, Any]) -> bool | None:
    """What a comparison of two columns says in Spark: of doubles if one is a float, else exact."""
    if row[left] is None or row[right] is None:
        return None
    kind = float if {left, right} & {"s", "f"} else Decimal
    return OPERATORS[name](kind(row[left]), kind(row[right]))


def rows_of_columns() -> tuple[Any, pa.Table]:
    columns = schema(**{name: type_ for name, (type_, _, _) in COLUMNS.items()}, n="long")
    values = {name: pa.array(given, arrow) for name, (_, arrow, given) in COLUMNS.items()}
    return columns, pa.table({**values, "n": pa.array(range(10), pa.int64())})


def comparisons(
    pairs: Iterable[tuple[str, str]], operators: Iterable[str], rows: pa.Table
) -> Iterator[tuple[str, list[int]]]:
    """Predicates, and the numbers of the rows for which they are true."""
    as_python = rows.to_pylist()
    for (left, right), name in product(pairs, operators):
        outcomes = [compared_columns(name, left, right, row) for row in as_python]
        for no, wanted in (("", True), ("NOT ", False)):
            expected = [number for number, outcome in enumerate(outcomes) if outcome is wanted]
            yield f"{no}{left} {name} {right}", expected


def test_columns_compare_as_doubles_if_one_is_a_float() -> None:
    columns, rows = rows_of_columns()
    for text, expected in comparisons(permutations(COLUMNS, 2), OPERATORS, rows):
        found = rows.filter(as_expression(text, columns, table="t"))
        assert found["n"].to_pylist() == expected, text


@pytest.mark.parametrize(
    ("group", "partition"), [(10, ""), (1, ""), (1, "l"), (1, "f"), (1, "d"), (1, "s")]
)
def test_a_comparison_of_columns_does_not_depend_on_files(
    tmp_path: Path, group: int, partition: str
) -> None:
    columns, rows = rows_of_columns()
    snapshot = write(tmp_path, columns, rows, group, partition)
    pairs = product("ild", "sf")
    for text, expected in comparisons(pairs, ("=", "<", ">="), rows):
        found = snapshot.to_arrow(predicate=text, columns=["n"])
        assert sorted(found["n"].to_pylist()) == expected, text


def test_a_decimal_equals_the_double_of_its_text() -> None:
    chooser = random.Random(1)
    for digits, scale in ((9, 2), (18, 6), (38, 10), (38, 0), (20, 20)):
        context = Context(prec=60)
        given = [
            Decimal(chooser.randrange(10 ** chooser.randint(1, digits))).scaleb(-scale, context)
            for _ in range(300)
        ]
        rows = pa.table(
            {"d": pa.array(given, pa.decimal128(digits, scale)), "f": [float(v) for v in given]}
        )
        columns = schema(d=f"decimal({digits},{scale})", f="double")
        for text in ("d = f", "f >= d AND NOT f > d"):
            assert rows.filter(as_expression(text, columns, table="t")).equals(rows)


LISTS = [
    ("date", pa.date32(), [date(2024, 1, 3), date(2024, 1, 1), date(1969, 12, 31), None],
     pa.array([datetime(2024, 1, 3, 12), datetime(1969, 12, 31, 1)], pa.timestamp("us"))),
    ("date", pa.date32(), [date(2024, 1, 3), date(2024, 1, 4)],
     pa.array([datetime(2024, 1, 3, 1 + n % 20, n) for n in range(60)] * 2, pa.timestamp("ms"))),
    ("timestamp_ntz", pa.timestamp("us"), [datetime(2024, 1, 3), datetime(2024, 1, 3, 12), None],
     pa.array([date(2024, 1, 3)])),
    ("float", pa.float32(), [SINGLE, 0.5, NAN, None],
     pa.array([Decimal("0.1000000001"), Decimal(3)], pa.decimal128(38, 10))),
    ("double", pa.float64(), [0.1, 96.85, NAN, None], pa.array([Decimal("96.85"), Decimal("0.10")])),
    ("decimal(10,2)", pa.decimal128(10, 2), [Decimal("0.10"), Decimal("0.11"), Decimal(7), None],
     pa.array([0.104, 7.0])),
    ("integer", pa.int32(), [0, 1, 2, None], pa.array([1.5, 2.0])),
    ("byte", pa.int8(), [0, 1, 44, None], pa.array([300, 1])),
    ("integer", pa.int32(), [0, 1, 2, None], pa.array(["1", "2"])),
]  # fmt: skip
"""A column with values, and a list of another type."""


@pytest.mark.parametrize(
    "case", LISTS, ids=[f"{type_}-{list_.type}" for type_, _, _, list_ in LISTS]
)
@pytest.mark.parametrize(("group", "partition"), [(9, ""), (1, ""), (1, "v")])
def test_a_list_of_another_type_finds_the_rows_that_pyarrow_finds(
    tmp_path: Path, group: int, partition: str, case: tuple[str, pa.DataType, list[Any], pa.Array]
) -> None:
    type_, arrow, values, constants = case
    rows = pa.table({"v": pa.array(values, arrow), "n": pa.array(range(len(values)), pa.int64())})
    snapshot = write(tmp_path, schema(v=type_, n="long"), rows, group, partition)
    v, n = pc.field("v"), pc.field("n")
    for predicate in (v.isin(constants), ~v.isin(constants), v.isin(constants) & (n >= 0)):
        read = snapshot.to_arrow(predicate=predicate)["n"].to_pylist()
        assert sorted(read) == rows.filter(predicate)["n"].to_pylist(), str(predicate)


def write(path: Path, columns: Any, rows: pa.Table, group: int, partition: str) -> Snapshot:
    """Write a table of files of some rows each, one a row group, with statistics."""
    table = DeltaTable.create(str(path), columns, partition_by=[partition] if partition else ())
    transaction = table.transaction("WRITE")
    types = {each.name: str(each.data_type) for each in columns if each.name != partition}
    known = {n: "long" if t in ("byte", "integer") else t for n, t in types.items()}
    for first in range(0, rows.num_rows, group):
        part = rows.slice(first, group)
        file = path / f"{first}.parquet"
        pq.write_table(part.drop_columns([partition] if partition else []), file, row_group_size=1)
        values = {
            name: serialize_partition_value(part[name][0].as_py(), columns.field(name).data_type)
            for name in ([partition] if partition else [])
        }
        text = to_json(statistics(part.to_pylist(), known))
        transaction.add_file(
            AddFile(file.name, values, file.stat().st_size, 1, data_change=True, stats=text)
        )
    transaction.commit()
    return table.snapshot()


@pytest.mark.parametrize("is_partition", [False, True], ids=["data", "partition"])
@pytest.mark.parametrize("type_", ["float", "double", "decimal(12,3)"])
@pytest.mark.parametrize("group", [1, 3, 8])
def test_the_answer_does_not_depend_on_files_and_row_groups(
    tmp_path: Path, type_: str, group: int, is_partition: bool
) -> None:
    columns = schema(v=type_, n="long")
    table = DeltaTable.create(str(tmp_path), columns, partition_by=["v"] if is_partition else ())
    values = VALUES[type_]
    transaction = table.transaction("WRITE")
    data_type = columns.field("v").data_type
    for first in range(0, len(values), 1 if is_partition else group):
        part = values[first : first + (1 if is_partition else group)]
        rows = pa.table(
            {
                "v": pa.array(part, ARROW[type_]),
                "n": pa.array(range(first, first + len(part)), pa.int64()),
            }
        )
        path = tmp_path / f"{first}.parquet"
        pq.write_table(rows.drop_columns(["v"] if is_partition else []), path, row_group_size=group)
        partition = {"v": serialize_partition_value(part[0], data_type)} if is_partition else {}
        text = json.dumps({"numRecords": len(part)})
        add = AddFile(path.name, partition, path.stat().st_size, 1, data_change=True, stats=text)
        transaction.add_file(add)
    transaction.commit()
    snapshot = table.snapshot()
    for constants in ([0.1], [SINGLE], [0.0], [-0.0, 7], [0.5, 0.1], [NAN], [math.inf, 5]):
        outcomes = [is_in(type_, value, constants) for value in values]
        for name, wanted in (("in", True), ("not in", False)):
            expected = [number for number, outcome in enumerate(outcomes) if outcome is wanted]
            read = snapshot.to_arrow(predicate=[("v", name, constants)])["n"].to_pylist()
            assert sorted(read) == expected, (name, constants)


def test_a_list_of_pyarrow_finds_the_rows_that_pyarrow_finds(tmp_path: Path) -> None:
    """pyarrow converts the list to the type of the column, and distinguishes the zeros."""
    values = [SINGLE, 0.5, 0.0, -0.0]
    table = DeltaTable.create(str(tmp_path), schema(v="float"))
    rows = pa.table({"v": pa.array(values, pa.float32())})
    pq.write_table(rows, tmp_path / "a.parquet", row_group_size=1)
    size = (tmp_path / "a.parquet").stat().st_size
    transaction = table.transaction("WRITE")
    transaction.add_file(AddFile("a.parquet", {}, size, 1, data_change=True, stats=None))
    transaction.commit()
    for constants in ([0.1], [0.0], [-0.0], [0.1, *range(100)]):
        for expression in (pc.field("v").isin(constants), ~pc.field("v").isin(constants)):
            read = table.snapshot().to_arrow(predicate=expression)
            assert str(read["v"].to_pylist()) == str(rows.filter(expression)["v"].to_pylist())
