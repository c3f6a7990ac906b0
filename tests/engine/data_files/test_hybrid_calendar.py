"""Files in which Spark has counted in the hybrid calendar; ``tests/spark`` compares with Spark."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_delta.engine import AddFile, DeltaTable
from airflow_delta.engine.data_files.hybrid_calendar import HybridCalendar, calendar_of
from airflow_delta.engine.errors import UnsupportedFeatureError
from airflow_delta.engine.maintenance.optimize import copying
from tests.engine.scan.rows import schema

EPOCH = dt.date(1970, 1, 1)
LEGACY = {"org.apache.spark.version": "4.0.0", "org.apache.spark.legacyDateTime": ""}
UTC = dt.timezone.utc
# 0001-01-01 in the Julian calendar, by Java.
FIRST_JULIAN_DAY = -719_164


def julian_days() -> Iterator[tuple[int, dt.date]]:
    """Each day of the Julian calendar since 0001-01-01: its number, and the day that Spark makes of it."""
    number = FIRST_JULIAN_DAY
    for year in range(1, 1583):
        for month in range(1, 13):
            length = 28 + (0, 3, 0 if year % 4 else 1, 3, 2, 3, 2, 3, 3, 2, 3, 2, 3)[month]
            for day in range(1, length + 1):
                if (year, month, day) > (1582, 10, 4):
                    return
                first = dt.date(year, month, 1)
                yield number, first + dt.timedelta(days=day - 1)
                number += 1


def test_days_are_those_with_the_same_name() -> None:
    numbers, dates = zip(*julian_days(), strict=True)
    days = pa.array(numbers, pa.int32()).view(pa.date32())
    assert HybridCalendar.convert(days).to_pylist() == [*dates]
    assert numbers[-1] == (dt.date(1582, 10, 15) - EPOCH).days - 1


def test_later_days_and_nulls_stay() -> None:
    days = [None, dt.date(1582, 10, 15), dt.date(2026, 1, 31), None, dt.date(9999, 12, 31)]
    array = pa.array(days, pa.date32())
    assert HybridCalendar.convert(array).to_pylist() == days
    some = pa.array([*days, dt.date(1000, 1, 6)], pa.date32()).slice(3)
    assert HybridCalendar.convert(some).to_pylist() == [*days[3:], dt.date(1000, 1, 1)]
    # 0001-01-01 of the Julian calendar, and the day before it.
    numbers = pa.array([FIRST_JULIAN_DAY, FIRST_JULIAN_DAY - 1], pa.int32()).view(pa.date32())
    found = HybridCalendar.convert(numbers).view(pa.int32()).to_pylist()
    first = (dt.date(1, 1, 1) - EPOCH).days
    assert found == [first, first - 1]


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({}, None),
        ({"org.apache.spark.version": "2.4.8"}, (True, True)),
        ({"org.apache.spark.version": "3.0.3"}, None),
        ({"org.apache.spark.version": "3.1.0"}, None),
        (LEGACY, (True, True)),
        # As by Spark: without the version, the keys say nothing.
        ({"org.apache.spark.legacyDateTime": ""}, None),
        ({"org.apache.spark.version": "3.5.0", "org.apache.spark.legacyINT96": ""}, None),
    ],
)
def test_the_footer_says_how_days_are_counted(
    tmp_path: Path, metadata: dict[str, str], expected: tuple[bool, bool] | None
) -> None:
    rows = pa.table({"d": pa.array([EPOCH], pa.date32())}).replace_schema_metadata(metadata)
    pq.write_table(rows, tmp_path / "a.parquet")
    found = calendar_of(pq.read_metadata(tmp_path / "a.parquet"))
    assert found == (None if expected is None else HybridCalendar(*expected))


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({"org.apache.spark.version": "3.0.3"}, (False, True)),
        ({"org.apache.spark.version": "3.5.0", "org.apache.spark.legacyINT96": ""}, (False, True)),
        (LEGACY, (True, False)),
    ],
)
def test_int96_has_a_mode_of_its_own(
    tmp_path: Path, metadata: dict[str, str], expected: tuple[bool, bool]
) -> None:
    rows = pa.table({"t": pa.array([dt.datetime(2026, 1, 1)], pa.timestamp("us"))})
    rows = rows.replace_schema_metadata(metadata)
    pq.write_table(rows, tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
    found = calendar_of(pq.read_metadata(tmp_path / "a.parquet"))
    assert found == HybridCalendar(*expected)


COLUMNS = schema(
    n="long",
    d="date",
    t="timestamp",
    local="timestamp_ntz",
    s={
        "type": "struct",
        "fields": [
            {
                "name": "days",
                "type": {"type": "array", "elementType": "date", "containsNull": True},
                "nullable": True,
                "metadata": {},
            }
        ],
    },
)


def old(text: str) -> dt.date:
    """The date that a reader without the hybrid calendar sees instead."""
    wanted = dt.date.fromisoformat(text)
    number = next(number for number, day in julian_days() if day == wanted)
    return EPOCH + dt.timedelta(days=number)


def table_of(root: Path, files: list[pa.Table], metadata: dict[str, str] = LEGACY) -> DeltaTable:
    table = DeltaTable.create(str(root), COLUMNS)
    transaction = table.transaction("WRITE")
    for number, rows in enumerate(files):
        path = root / f"{number}.parquet"
        pq.write_table(rows.replace_schema_metadata(metadata), path, row_group_size=2)
        stats = json.dumps({"numRecords": rows.num_rows})
        add = AddFile(path.name, {}, path.stat().st_size, 1, data_change=True, stats=stats)
        transaction.add_file(add)
    transaction.commit()
    return table


def rows_of(first: int, days: list[dt.date | None], times: list[Any]) -> pa.Table:
    local = [None if day is None else dt.datetime(day.year, day.month, day.day) for day in days]
    return pa.table(
        {
            "n": pa.array(range(first, first + len(days)), pa.int64()),
            "d": pa.array(days, pa.date32()),
            "t": pa.array(times, pa.timestamp("us", "UTC")),
            "local": pa.array(local, pa.timestamp("us")),
            "s": pa.array(
                [{"days": [day, None]} for day in days],
                pa.struct([("days", pa.list_(pa.date32()))]),
            ),
        }
    )


NEW = dt.datetime(1900, 1, 1, tzinfo=UTC)


def days_table(root: Path) -> DeltaTable:
    days = [old("1000-01-01"), old("1582-10-04"), dt.date(1582, 10, 15), None]
    return table_of(
        root, [rows_of(0, days, [NEW] * 4), rows_of(4, [dt.date(2026, 1, 31)] * 2, [None, NEW])]
    )


EXPECTED = [
    dt.date(1000, 1, 1), dt.date(1582, 10, 4), dt.date(1582, 10, 15), None,
    *[dt.date(2026, 1, 31)] * 2,
]  # fmt: skip
PREDICATES = {
    "d = '1000-01-01'": [0],
    "d = '1000-01-06'": [],
    "d < '1582-10-05'": [0, 1],
    "d IN ('1582-10-04', '2026-01-31')": [1, 4, 5],
    "d > '1582-10-10'": [2, 4, 5],
    "d IS NULL": [3],
    "t >= '1900-01-01T00:00:00Z'": [0, 1, 2, 3, 5],
}


def check(table: DeltaTable) -> None:
    snapshot = table.snapshot()
    rows = sorted(snapshot.to_arrow().to_pylist(), key=lambda row: row["n"])
    assert [row["d"] for row in rows] == EXPECTED
    assert [row["s"]["days"] for row in rows] == [[day, None] for day in EXPECTED]
    # A timestamp_ntz is never rebased.
    assert rows[0]["local"].date() == dt.date(1000, 1, 6)
    for text, numbers in PREDICATES.items():
        assert sorted(snapshot.to_arrow(predicate=text)["n"].to_pylist()) == numbers, text


def test_dates_keep_their_names_in_rows_and_predicates(tmp_path: Path) -> None:
    check(days_table(tmp_path))


def test_files_rewritten_here_are_proleptic(tmp_path: Path) -> None:
    table = days_table(tmp_path)
    assert table.optimize(max_file_size=1 << 20).num_copied == 0
    check(table)
    path = table.snapshot().file_uris()[0]
    assert calendar_of(pq.read_metadata(path)) is None
    statistics = json.loads(table.snapshot().files()["stats"][0].as_py())
    assert statistics["minValues"]["d"] == "1000-01-01"


def test_copied_row_groups_have_no_bounds_of_old_dates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copying, "_TINY", 1)
    table = days_table(tmp_path)
    assert table.optimize(max_file_size=1 << 20).num_copied == 1
    check(table)
    statistics = json.loads(table.snapshot().files()["stats"][0].as_py())
    assert statistics["minValues"].keys() == statistics["maxValues"].keys() == {"n", "t", "local"}
    assert calendar_of(pq.read_metadata(table.snapshot().file_uris()[0])) is not None


def test_old_times_are_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = NEW - dt.timedelta(microseconds=1)
    days = [dt.date(2026, 1, 31)] * 4
    table = table_of(
        tmp_path, [rows_of(0, days, [NEW, None, before, NEW]), rows_of(4, days, [NEW] * 4)]
    )
    snapshot = table.snapshot()
    for request in ({}, {"columns": ["t"]}, {"predicate": "t < '2000-01-01T00:00:00Z'"}):
        with pytest.raises(
            UnsupportedFeatureError, match=r"time before 1900.* with Spark"
        ) as found:
            snapshot.to_arrow(**request)
        assert (found.value.path, found.value.column) == ("0.parquet", "t")
        assert found.value.table == snapshot.table
    # Rows of other columns, row groups and files can be read.
    assert snapshot.to_arrow(columns=["n", "d"]).num_rows == 8
    assert snapshot.to_arrow(columns=["t"], predicate="n < 2 OR n > 3").num_rows == 6
    with pytest.raises(UnsupportedFeatureError, match=r"'0.parquet'"):
        table.optimize(max_file_size=1 << 20)
    assert table.latest_version() == 1
    # Copying needn't understand them.
    monkeypatch.setattr(copying, "_TINY", 1)
    assert table.optimize(max_file_size=1 << 20).num_copied == 1
    statistics = json.loads(table.snapshot().files()["stats"][0].as_py())
    assert statistics["minValues"].keys() == {"n", "d", "local"}


def test_files_of_both_calendars_have_one_schema(tmp_path: Path) -> None:
    """The answer for one file isn't used for the next one."""
    table = DeltaTable.create(str(tmp_path), schema(d="date"))
    transaction = table.transaction("WRITE")
    for number, metadata in enumerate((LEGACY, {}, LEGACY)):
        rows = pa.table({"d": pa.array([dt.date(1000, 1, 6)], pa.date32())})
        path = tmp_path / f"{number}.parquet"
        pq.write_table(rows.replace_schema_metadata(metadata), path)
        transaction.add_file(AddFile(path.name, {}, path.stat().st_size, 1, data_change=True))
    transaction.commit()
    found = table.snapshot().to_arrow()["d"].to_pylist()
    assert found == [dt.date(1000, 1, 1), dt.date(1000, 1, 6), dt.date(1000, 1, 1)]


def test_converted_files_have_bounds_only_of_later_dates(tmp_path: Path) -> None:
    for name, day in (("old", old("1500-02-28")), ("new", dt.date(1582, 10, 15))):
        rows = pa.table({"d": pa.array([day], pa.date32())}).replace_schema_metadata(LEGACY)
        pq.write_table(rows, tmp_path / f"{name}.parquet")
    DeltaTable.convert(str(tmp_path))
    files = DeltaTable(str(tmp_path)).snapshot().files().to_pylist()
    minimums = {add["path"]: json.loads(add["stats"])["minValues"] for add in files}
    assert minimums == {"old.parquet": {}, "new.parquet": {"d": "1582-10-15"}}


def test_widened_dates_are_rebased_before(tmp_path: Path) -> None:
    """A date that became a timestamp_ntz."""
    table = DeltaTable.create(str(tmp_path), schema(d="timestamp_ntz"))
    rows = pa.table({"d": pa.array([old("1000-01-01")], pa.date32())})
    path = tmp_path / "0.parquet"
    pq.write_table(rows.replace_schema_metadata(LEGACY), path)
    transaction = table.transaction("WRITE")
    transaction.add_file(AddFile(path.name, {}, path.stat().st_size, 1, data_change=True))
    transaction.commit()
    found = table.snapshot().to_arrow(predicate="d < '1000-01-02'")["d"].to_pylist()
    assert found == [dt.datetime(1000, 1, 1)]
