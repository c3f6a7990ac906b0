"""Rows as plain JSON values, also those that Python's types lack."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_delta.cli.main import main
from airflow_delta.cli.row_values import plain_rows
from airflow_delta.engine import DeltaTable
from airflow_delta.engine.model.plain import plain
from tests.row_tables import random_table

NOON = dt.datetime(2026, 1, 31, 12, tzinfo=dt.timezone.utc)
YEAR_10000 = 2932897
DAY_US = 86_400_000_000


def converted(values: Any, type_: pa.DataType) -> list[Any]:
    """The values of a column; from a slice, as a scan's batches may be."""
    column = pa.array([values[-1], *values, values[0]], type_)
    batch = pa.record_batch([column], names=["x"])
    return [row["x"] for row in plain_rows(batch.slice(1, len(values)))]


def test_values_are_those_of_python(tmp_path: Path) -> None:
    made = random_table(tmp_path / "t", 12, num_files=4, mode="name", tracked=True)
    for batch in made.table.snapshot().to_arrow().to_batches():
        # All maps have texts as keys.
        assert plain_rows(batch) == plain(batch.to_pylist(maps_as_pydicts="lossy"))


@pytest.mark.parametrize(
    ("type_", "days", "text"),
    [
        ("date", YEAR_10000, "10000-01-01"),
        ("date", -719_163, "0000-12-31"),
        ("date", 2**31 - 1, str(2**31 - 1)),
        ("time", YEAR_10000, "10000-01-01T00:00:00"),
        ("time", 10**8, str(10**8 * DAY_US)),
        ("UTC", YEAR_10000, "10000-01-01T00:00:00Z"),
        ("UTC", 10**8, str(10**8 * DAY_US)),
    ],
)
def test_times_may_be_outside_of_pythons_calendar(type_: str, days: int, text: str) -> None:
    if type_ == "date":
        values = pa.array([days, None, 1], pa.int32()).cast(pa.date32())
        usual = "1970-01-02"
    else:
        zone = "UTC" if type_ == "UTC" else None
        numbers = [days * DAY_US, None, DAY_US]
        values = pa.array(numbers, pa.int64()).cast(pa.timestamp("us", zone))
        usual = "1970-01-02T00:00:00" + ("Z" if zone else "")
    rows = plain_rows(pa.record_batch([values], names=["x"]))
    assert rows == [{"x": text}, {"x": None}, {"x": usual}]


@pytest.mark.parametrize(
    ("type_", "keys", "texts"),
    [
        (pa.string(), ["a", ""], ["a", ""]),
        (pa.int64(), [1, -2], ["1", "-2"]),
        (pa.bool_(), [True, False], ["true", "false"]),
        (pa.binary(), [b"\xff\x00", b""], ["ff00", ""]),
        (pa.date32(), [NOON.date(), dt.date(1, 1, 1)], ["2026-01-31", "0001-01-01"]),
        (pa.timestamp("us", "UTC"), [NOON], ["2026-01-31T12:00:00Z"]),
        (pa.decimal128(5, 2), [Decimal("1.50")], ["1.50"]),
        (pa.struct([("a", pa.int32())]), [{"a": 1}, {"a": None}], ['{"a": 1}', '{"a": null}']),
        (pa.list_(pa.int32()), [[1, 2], []], ["[1, 2]", "[]"]),
    ],
    ids=str,
)
def test_keys_of_maps_are_texts(type_: pa.DataType, keys: list[Any], texts: list[str]) -> None:
    maps = [[(key, number) for number, key in enumerate(keys)], None, []]
    expected = {text: number for number, text in enumerate(texts)}
    assert converted(maps, pa.map_(type_, pa.int64())) == [expected, None, {}]


def test_nested_values() -> None:
    inner = pa.struct([("m", pa.map_(pa.date32(), pa.list_(pa.binary()))), ("e", pa.struct([]))])
    values = [[{"m": [(NOON.date(), [b"\x01", None])], "e": {}}, None], [], None]
    expected = [[{"m": {"2026-01-31": ["01", None]}, "e": {}}, None], [], None]
    assert converted(values, pa.list_(inner)) == expected
    assert plain_rows(pa.record_batch([pa.array([], pa.list_(inner))], names=["x"])) == []


def table_of(path: Path, rows: pa.Table) -> str:
    path.mkdir()
    pq.write_table(rows, path / "a.parquet")
    DeltaTable.convert(str(path))
    return str(path)


def test_a_scan_prints_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    days = pa.array([YEAR_10000], pa.int32()).cast(pa.date32())
    maps = pa.array([[({"a": 1}, 2)]], pa.map_(pa.struct([("a", pa.int32())]), pa.int32()))
    table = table_of(tmp_path / "t", pa.table({"d": days, "m": maps}))
    assert main(["scan", table, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"d": "10000-01-01", "m": {'{"a": 1}': 2}}
    assert main(["scan", table]) == 0
    assert "10000-01-01" in capsys.readouterr().out


def test_a_text_that_is_not_utf8_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = pa.array([b"a\xff"], pa.binary()).view(pa.string())
    table = table_of(tmp_path / "t", pa.table({"n": [1], "s": texts}))
    output = tmp_path / "rows.json"
    for words in (["--json"], [], ["--output", str(output)]):
        assert main(["scan", table, *words]) == 1
        assert "the column s has a text that isn't UTF-8" in capsys.readouterr().err
    assert not output.exists()
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert main(["scan", table, "--format", "csv"]) == 0
    assert capsys.readouterr().out.splitlines()[1].startswith('1,"a')
