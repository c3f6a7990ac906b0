"""What a predicate may be, what it means for each type, and what is said of one that isn't understood."""

from __future__ import annotations

import time
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable as Peer
from deltalake import write_deltalake

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import CommitConflictError, InvalidArgumentError
from airflow_delta.engine.scan.predicates.reading import as_expression
from tests.engine.scan.rows import adds, kept, schema, stats

TYPES: dict[str, Any] = {
    "id": "long", "small": "byte", "x": "double", "r": "float", "d": "decimal(10,2)", "name": "string",
    "day": "date", "ts": "timestamp", "n": "timestamp_ntz", "flag": "boolean", "raw": "binary",
    "odd name": "string", "a.b": "long", "date": "date", "nothing": "void",
    "list": {"type": "array", "elementType": "long", "containsNull": True},
    "s": {"type": "struct", "fields": [
        {"name": "in", "type": "long", "nullable": True, "metadata": {}},
        {"name": "deep", "type": {"type": "struct", "fields": [
            {"name": "y", "type": "string", "nullable": True, "metadata": {}}]},
         "nullable": True, "metadata": {}}]},
}  # fmt: skip
COLUMNS = schema(**TYPES)
UTC = timezone.utc


def expression(predicate: Any) -> pc.Expression:
    return as_expression(predicate, COLUMNS, table="s3://lake/t")


@pytest.mark.parametrize(
    ("predicate", "expected"),
    [
        ("id > 5", pc.field("id") > 5),
        ("5 < id", pc.field("id") > 5),
        ("id = -5", pc.field("id") == -5),
        ("id = '7'", pc.field("id") == 7),
        ("`odd name` = 'it''s'", pc.field("odd name") == "it's"),
        ("`a.b` = 1", pc.field("a.b") == 1),
        ("s.in = 1", pc.field("s", "in") == 1),
        ("s.`deep`.y <> ''", pc.field("s", "deep", "y") != ""),
        ("s.deep IS NULL", pc.field("s", "deep").is_null()),
        ("list is not null", pc.field("list").is_valid()),
        ("flag", pc.field("flag")),
        ("flag = TRUE", pc.field("flag") == True),  # noqa: E712
        ("day >= DATE '2026-01-31'", pc.field("day") >= date(2026, 1, 31)),
        ("date < '2026-01-31'", pc.field("date") < date(2026, 1, 31)),
        ("raw = X'0aFF'", pc.field("raw") == b"\x0a\xff"),
        (
            "ts >= '2026-01-31T12:00:00+02:00'",
            pc.field("ts")
            >= pa.scalar(datetime(2026, 1, 31, 10, tzinfo=UTC), pa.timestamp("us", "UTC")),
        ),
        (
            "ts >= TIMESTAMP '2026-01-31 12:00:00.123456Z'",
            pc.field("ts")
            >= pa.scalar(datetime(2026, 1, 31, 12, 0, 0, 123456, UTC), pa.timestamp("us", "UTC")),
        ),
        ("n < '2026-01-31'", pc.field("n") < pa.scalar(datetime(2026, 1, 31), pa.timestamp("us"))),
        ("d = 1.5", pc.field("d") == pa.scalar(Decimal("1.50"), pa.decimal128(10, 2))),
        ("name LIKE 'ab%'", (pc.field("name") >= "ab") & (pc.field("name") < "ac")),
        ("name LIKE '50\\%%'", (pc.field("name") >= "50%") & (pc.field("name") < "50&")),
        ("name LIKE 'ab'", pc.field("name") == "ab"),
        ("name LIKE '\U0010ffff%'", pc.field("name") >= "\U0010ffff"),
        ("name LIKE 'a\ud7ff%'", (pc.field("name") >= "a\ud7ff") & (pc.field("name") < "a\ue000")),
        (
            [("a.b", "=", 1), ("s.in", "=", 2), (("s", "deep", "y"), "=", "x")],
            ((pc.field("a.b") == 1) & (pc.field("s", "in") == 2))
            & (pc.field("s", "deep", "y") == "x"),
        ),
        ([("id", "is", None)], pc.field("id").is_null()),
        (
            [[("id", "is not", None)], [("flag", "=", True)]],
            pc.field("id").is_valid() | (pc.field("flag") == pc.scalar(True)),
        ),
        ([("id", "in", [1, 2])], pc.field("id").isin(pa.array([1, 2]))),
        (pc.field("id") > 5, pc.field("id") > 5),
    ],
)
def test_a_predicate_is_an_expression(predicate: Any, expected: pc.Expression) -> None:
    assert str(expression(predicate)) == str(expected)


@pytest.mark.parametrize(
    ("predicate", "problem"),
    [
        ("", "character 1: expected a column or a constant, found the end"),
        ("id >", "character 5: expected a column or a constant, found the end"),
        ("id > 5 5", "character 8: expected AND, OR or the end, found '5'"),
        ("id > 5)", "character 7: expected AND, OR or the end"),
        ("(id > 5", "character 8: expected '\\)', found the end"),
        ("id > 5 AND", "found the end"),
        ("id NOT > 5", "expected BETWEEN, IN or LIKE, found '>'"),
        ("id IS 5", "expected 'NULL', found '5'"),
        ("id IN ()", "expected a column or a constant"),
        ("id IN (SELECT", "expected a column or a constant, found 'SELECT'"),
        ("id BETWEEN 1 OR 2", "expected 'AND', found 'OR'"),
        ("5 IN (5)", "IN is for columns"),
        ('name = "x"', "character 8: found double quotes"),
        ("name = 'x", "a ' that isn't closed"),
        ("`name = 'x'", "a ` that isn't closed"),
        ("id > 5L", "found '5L'"),
        ("id > 5 -- all", "a comment"),
        ("id + 1 > 5", "arithmetic"),
        ("id - 1 > 5", "arithmetic"),
        ("id * 2 > 5", "arithmetic"),
        ("upper(name) = 'X'", r"character 1: functions, such as upper\(…\)"),
        ("name LIKE '%x'", "a text that ends in one %"),
        ("name LIKE 'a_c'", "a text that ends in one %"),
        ("name LIKE 'a%c%'", "a text that ends in one %"),
        ("name LIKE 'a\\x%'", "a text that ends in one %"),
        ("name LIKE other", "a text in single quotes"),
        ("(" * 200 + "id > 5" + ")" * 200, "more than 100 parentheses"),
        ("id > 5; DROP TABLE t", "found ';'"),
        ([], "an empty list"),
        ([[]], "an empty list"),
        ([("id", ">")], r"found tuple \('id', '>'\)"),
        ([["id", ">", 5]], "found str 'id'"),
        ([("id", ">", 5), [("id", "<", 3)]], "found list"),
        ([(5, ">", 5)], "found tuple"),
        ([((), ">", 5)], "the names from the top down"),
        ([("id", "like", "x")], "no operator 'like'; expected one of"),
        ([("id", "=", None)], r"true of no row; for rows without a value say \('id', 'is', None\)"),
        ([("id", "!=", None)], r"\('id', 'is not', None\)"),
        ([("id", "<", None)], "true of no row"),
        ([("id", "is", 5)], "is for None alone"),
        ([("name", "in", "abc")], "expected a list of values, found str"),
        ([("id", "in", 5)], "expected a list of values, found int"),
        (("id", ">", 5), r"is a tuple: expected a text such as"),
        (5, "is a int"),
    ],
)
def test_what_cannot_be_parsed_is_an_error_that_says_where(predicate: Any, problem: str) -> None:
    with pytest.raises(InvalidArgumentError, match=problem) as caught:
        expression(predicate)
    assert "s3://lake/t" in str(caught.value)


@pytest.mark.parametrize(
    ("predicate", "column", "problem"),
    [
        ("other = 1", "other", "which the table doesn't have"),
        ("ID = 1", "ID", "names are case-sensitive"),
        ("s.out = 1", "s.out", "no 'out' among the columns in, deep"),
        ("id.x = 1", "id.x", "which the table doesn't have"),
        ([("s.out", "=", 1)], "s.out", "which the table doesn't have"),
        ("id = 'x'", "id", "of type long: expected a number, found 'x'"),
        ("id = TRUE", "id", "expected a number"),
        ("id IN (1, 'x')", "id", "expected a number, found 'x'"),
        ("id BETWEEN 1 AND 'x'", "id", "expected a number"),
        ("small = ''", "small", "expected a number"),
        ("x > 'high'", "x", "expected a number"),
        ("d > 'nan'", "d", "expected a number"),
        ("name = 5", "name", "expected a text in single quotes, found 5"),
        ("name = DATE '2026-01-31'", "name", "found date '2026-01-31'"),
        ("day = '31.1.2026'", "day", "expected a date such as '2026-01-31'"),
        ("day = '2026-02-30'", "day", "expected a date"),
        ("day = '2026-01-31T12:00:00'", "day", "expected a date"),
        ("day = 20260131", "day", "expected a date"),
        ("day = TIMESTAMP '2026-01-31'", "day", "expected a date"),
        ("ts > '2026-01-31'", "ts", "expected a time with an offset"),
        ("ts > '2026-01-31T12:00:00'", "ts", "expected a time with an offset"),
        ("ts > '2026-01-31T12:00:00.1234567Z'", "ts", "expected a time with an offset"),
        ("n > '2026-01-31T12:00:00Z'", "n", "expected a time without an offset"),
        ("flag = 'yes'", "flag", "expected TRUE or FALSE"),
        ("flag = 1", "flag", "expected TRUE or FALSE"),
        ("raw = '0A'", "raw", "expected bytes"),
        ("id", "id", "neither true nor false"),
        ("id LIKE 'a%'", "id", "LIKE is for texts"),
        ("list = 1", "list", "can't be compared"),
        ("s IN (1)", "s", "can't be compared"),
        ("nothing = 1", "nothing", "can't be compared"),
        ("id = name", "id", "can't be compared with 'name' of type string"),
        ([("id", "=", "x")], "id", "expected a number"),
        ([("day", "=", datetime(2026, 1, 31))], "day", "expected a date"),
        ([("ts", "=", datetime(2026, 1, 31))], "ts", "expected a time with an offset"),
        ([("ts", "=", date(2026, 1, 31))], "ts", "expected a time with an offset"),
        ([("n", "=", datetime(2026, 1, 31, tzinfo=UTC))], "n", "expected a time without"),
        ([("d", "=", Decimal("nan"))], "d", "expected a number"),
        ([("id", "=", object())], "id", "expected a number"),
        ([("id", "in", [[1]])], "id", "expected a number"),
    ],
)
def test_what_does_not_fit_the_table_is_an_error_that_names_the_column(
    predicate: Any, column: str, problem: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=problem) as caught:
        expression(predicate)
    assert caught.value.column == column
    assert "s3://lake/t" in str(caught.value)


@pytest.mark.parametrize("predicate", ["5", "'x'", "1 = 'x'", "name = 'x' AND 5"])
def test_constants_that_are_no_conditions_are_refused(predicate: str) -> None:
    with pytest.raises(InvalidArgumentError):
        expression(predicate)


def test_long_predicates_are_no_deep_ones() -> None:
    began = time.monotonic()
    text = " OR ".join(f"id = {number}" for number in range(3_000))
    files = adds(*(stats(low={"id": n}, high={"id": n}, nulls={"id": 0}) for n in (5, 30_000)))
    assert kept(expression(text), files, COLUMNS) == [0]
    assert kept(expression("NOT " * 5_001 + "id = 5"), files, COLUMNS) == [1]
    assert kept(expression([("id", "in", list(range(3_000)))]), files, COLUMNS) == [0]
    assert time.monotonic() - began < 20


def test_a_float_compares_as_the_double_that_it_is() -> None:
    """0.1 as a float is more than 0.1 as a double, to SQL and to pyarrow."""
    single = pa.scalar(0.1, pa.float32()).as_py()
    files = adds(stats(low={"r": single}, high={"r": single}, nulls={"r": 0}))
    rows = pa.table({"r": pa.array([0.1], pa.float32())})
    for text, is_true in (
        ("r > 0.1", True),
        ("r >= 0.1", True),
        ("r = 0.1", False),
        ("r IN (0.1)", False),
        ("r NOT IN (0.1)", True),
    ):
        assert rows.filter(expression(text)).num_rows == is_true, text
        # The bounds in a log may have fewer digits, so a file may be kept for nothing.
        assert not is_true or kept(expression(text), files, COLUMNS) == [0], text


# Through the front doors


@pytest.fixture
def sales(tmp_path: Path) -> DeltaTable:
    """A peer's table, partitioned by region, a file for each region and day."""
    for day in (30, 31):
        rows = pa.table(
            {
                "region": ["eu", "us", None],
                "day": pa.array([date(2026, 1, day)] * 3, pa.date32()),
                "amount": [day, day * 10, day * 100],
            }
        )
        write_deltalake(tmp_path, rows, partition_by=["region"], mode="append")
    return DeltaTable(tmp_path)


@pytest.mark.parametrize(
    ("text", "tuples"),
    [
        ("region = 'eu'", [("region", "=", "eu")]),
        (
            "region IN ('eu', 'us') AND day >= '2026-01-31'",
            [("region", "in", ["eu", "us"]), ("day", ">=", date(2026, 1, 31))],
        ),
        ("amount > 310 OR amount < 31", [[("amount", ">", 310)], [("amount", "<", 31)]]),
        ("region <> 'eu'", [("region", "!=", "eu")]),
    ],
)
def test_files_hold_the_rows_that_the_peer_reads(sales: DeltaTable, text: str, tuples: Any) -> None:
    """Each file has one row, so that the files that are kept are the rows that match."""
    expected = Peer(sales.uri).to_pyarrow_table(filters=tuples).sort_by("amount")
    for predicate in (text, tuples):
        uris = sales.snapshot().file_uris(predicate)
        rows = pa.concat_tables(pa.parquet.read_table(uri, columns=["amount"]) for uri in uris)
        assert rows.sort_by("amount")["amount"].to_pylist() == expected["amount"].to_pylist()


def test_a_transaction_notes_what_it_read_by_a_text(sales: DeltaTable) -> None:
    for predicate in ("region = 'eu'", [("region", "=", "eu")]):
        reader, other, same = (sales.transaction("WRITE") for _ in range(3))
        found = reader.read_files(predicate, columns=["path"])
        assert found.num_rows == len(sales.snapshot().files(predicate="region = 'eu'")) > 0
        other.remove_files(other.base.files(predicate="region = 'us'").slice(0, 1))
        other.commit()
        same.remove_files(same.read_files("region = 'eu'").slice(0, 1))
        same.commit()
        reader.set_transaction("reader", 1)
        with pytest.raises(CommitConflictError):
            reader.commit()


def test_other_partitions_are_no_conflict(sales: DeltaTable) -> None:
    reader, other = sales.transaction("WRITE"), sales.transaction("WRITE")
    reader.read_files("region = 'eu'")
    other.remove_files(other.base.files(predicate=[("region", "=", "us")]))
    other.commit()
    reader.set_transaction("reader", 1)
    assert reader.commit().version == 3
