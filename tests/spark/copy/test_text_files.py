"""Copies as text give back what was copied, to Spark and to readers that know nothing of it."""

from __future__ import annotations

import base64
import csv
import json
import math
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.csv
import pytest

from airflow_delta.copies.marker import read_marker
from airflow_delta.copies.request import CopyRequest
from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.spark import write
from airflow_delta.spark.copy.copies import copy_snapshot
from airflow_delta.spark.copy.text_files import READ_OPTIONS
from tests.spark.conftest import bag, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TEXTS = [
    *(
        "",
        None,
        " a ",
        "x,y",
        'q"q',
        '"',
        '""',
        "l1\nl2",
        "c\rd",
        "e\r\nf",
        "\n",
        "#c",
        "\\",
        '\\"',
        "a\\",
    ),
    *("\0n", "\0", "é😀", "null", "NaN", "\ufeffb", "\t", "\u2028", ",", "'", "\\N", "\\u0000"),
]
FLAT = """
SELECT 1 AS id, timestamp'2024-11-03 05:30:00Z' AS at, timestamp_ntz'2024-03-10 02:30:00.5' AS wall,
       date'0001-01-01' AS day, CAST('0.0000000001' AS decimal(20, 10)) AS tenth,
       CAST('12345678901234567890123456789012345678' AS decimal(38, 0)) AS big, double('NaN') AS x,
       CAST('0.1' AS float) AS f, 9223372036854775807L AS l, true AS b, CAST(-128 AS tinyint) AS t
UNION ALL
SELECT 2, timestamp'2024-11-03 06:30:00Z', timestamp_ntz'9999-12-31 23:59:59.999999', date'9999-12-31',
       CAST('-1234567890.0123456789' AS decimal(20, 10)), CAST(-1 AS decimal(38, 0)), double('-Infinity'),
       CAST('-Infinity' AS float), -9223372036854775808L, false, CAST(127 AS tinyint)
UNION ALL
SELECT 3, timestamp'0001-01-01 12:00:00.000001Z', timestamp_ntz'0001-01-01 00:00:00', date'1582-10-10',
       CAST(0 AS decimal(20, 10)), CAST(0 AS decimal(38, 0)), double('-0.0'), CAST('NaN' AS float), 0L,
       null, CAST(0 AS tinyint)
UNION ALL
SELECT 4, null, null, null, null, null, 4.9E-324D, CAST('1.17549435E-38' AS float), null, null, null
"""
TEXT_OF_TIMES = {
    1: ("2024-11-03T05:30:00.000000Z", "2024-03-10T02:30:00.500000", "0001-01-01"),
    2: ("2024-11-03T06:30:00.000000Z", "9999-12-31T23:59:59.999999", "9999-12-31"),
    3: ("0001-01-01T12:00:00.000001Z", "0001-01-01T00:00:00.000000", "1582-10-10"),
}


def copied(spark: SparkSession, sql: str, place: Path, name: str) -> tuple[Path, Any]:
    """A table of a query's rows, and its copy in a format."""
    rows = spark.sql(sql)
    write(rows.coalesce(1), str(place / "table"))
    result = copy_snapshot(spark, CopyRequest(str(place / "table"), 0, str(place / "copy"), name))
    files = sorted((place / "copy").glob(f"part-*.{name}"))
    assert (result.num_rows, result.num_files) == (rows.count(), len(files))
    (file,) = files
    reader = spark.read.schema(rows.schema).options(**READ_OPTIONS[name])
    again = reader.format(name).load(str(place / "copy"))
    assert bag(rows_of(again)) == bag(rows_of(rows)), "Spark reads back what was there"
    return file, result


def number(text: str) -> float:
    return float(text.replace("Infinity", "inf"))


def same(one: float, other: float) -> bool:
    signed = [(value, math.copysign(1, value)) for value in (one, other)]
    return signed[0] == signed[1] or (math.isnan(one) and math.isnan(other))


def test_every_text_survives_as_csv(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.createDataFrame(list(enumerate(TEXTS)), "id int, text string")
    frame.createOrReplaceTempView("texts")
    file, _ = copied(spark, 'SELECT id, text AS `text-"1"` FROM texts', tmp_path, "csv")
    with file.open(newline="", encoding="utf-8") as lines:
        header, *read = csv.reader(lines)
    assert header == ["id", 'text-"1"']
    assert [row[1] for row in read] == [text or "" for text in TEXTS]
    # Python's reader can't tell null from empty. Arrow's can.
    table = pyarrow.csv.read_csv(
        file,
        parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True),
        convert_options=pyarrow.csv.ConvertOptions(
            strings_can_be_null=True, quoted_strings_can_be_null=False, null_values=[""]
        ),
    )
    assert table['text-"1"'].to_pylist() == TEXTS


def test_every_text_survives_as_json(spark: SparkSession, tmp_path: Path) -> None:
    spark.createDataFrame(list(enumerate(TEXTS)), "id int, text string").createOrReplaceTempView(
        "texts"
    )
    file, _ = copied(spark, "SELECT * FROM texts", tmp_path, "json")
    read = [json.loads(line) for line in file.read_text(encoding="utf-8").split("\n") if line]
    assert [row["text"] for row in read] == TEXTS


def test_values_of_all_types_survive_as_csv(spark: SparkSession, tmp_path: Path) -> None:
    file, _ = copied(spark, FLAT, tmp_path, "csv")
    expected = {row["id"]: row for row in rows_of(spark.sql(FLAT))}
    with file.open(newline="", encoding="utf-8") as lines:
        read = {int(row["id"]): row for row in csv.DictReader(lines)}
    assert read.keys() == expected.keys()
    for key, times in TEXT_OF_TIMES.items():
        assert (read[key]["at"], read[key]["wall"], read[key]["day"]) == times
    assert [read[key]["tenth"] for key in (1, 2, 3)] == [
        "0.0000000001",
        "-1234567890.0123456789",
        "0.0000000000",
    ]
    assert (read[4]["at"], read[4]["big"], read[4]["b"]) == ("", "", "")
    for key, row in expected.items():
        assert same(number(read[key]["x"]), row["x"])
        assert [read[key][name] for name in ("l", "t")] == [
            "" if row[name] is None else str(row[name]) for name in ("l", "t")
        ]
    assert [read[key]["b"] for key in (1, 2, 3)] == ["true", "false", ""]
    assert [read[key]["f"] for key in (1, 2, 3)] == ["0.1", "-Infinity", "NaN"]


def test_values_of_all_types_survive_as_json(spark: SparkSession, tmp_path: Path) -> None:
    nested = f"""
    SELECT *, named_struct('at', at, 'none', CAST(null AS int), 'm', map('k', tenth)) AS s,
           array(l, null) AS a, CAST('ab' AS binary) AS raw FROM ({FLAT})"""
    file, _ = copied(spark, nested, tmp_path, "json")
    lines = file.read_text(encoding="utf-8").splitlines()
    read = {row["id"]: row for row in (json.loads(line, parse_float=Decimal) for line in lines)}
    expected = {row["id"]: row for row in rows_of(spark.sql(FLAT))}
    assert read.keys() == expected.keys()
    for key, times in TEXT_OF_TIMES.items():
        assert (read[key]["at"], read[key]["wall"], read[key]["day"]) == times
        assert read[key]["s"]["at"] == times[0]
    for key, row in expected.items():
        assert same(number(str(read[key]["x"])), row["x"])
        assert [read[key][name] for name in ("l", "b", "t", "tenth", "big")] == [
            row[name] for name in ("l", "b", "t", "tenth", "big")
        ]
        assert read[key]["a"] == [row["l"], None]
        assert base64.b64decode(read[key]["raw"]) == b"ab"
        assert read[key]["s"]["none"] is None, "a field that is null is told"
        assert read[key]["s"]["m"] == {"k": row["tenth"]}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "csv",
            r"csv can't hold the columns s \(.*\), a \(array<binary>\), m \(.*\), nothing \(void\); choose",
        ),
        (
            "json",
            r"the columns m \(map<integer,string>\), a2\.element\.k \(map<.*\); choose parquet",
        ),
    ],
)
def test_columns_that_a_format_cannot_hold_are_refused_by_name(
    spark: SparkSession, tmp_path: Path, name: str, message: str
) -> None:
    columns = """named_struct('x', 1) AS s, array(CAST('a' AS binary)) AS a, map(1, 'x') AS m,
                 null AS nothing, 1 AS one"""
    if name == "json":
        columns += ", array(named_struct('k', map(1, 2))) AS a2"
    write(spark.sql(f"SELECT {columns}"), str(tmp_path / "table"))
    with pytest.raises(InvalidArgumentError, match=message):
        copy_snapshot(spark, CopyRequest(str(tmp_path / "table"), 0, str(tmp_path / "copy"), name))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["table"]


def test_a_lonely_null_is_no_line(spark: SparkSession, tmp_path: Path) -> None:
    write(spark.sql("SELECT 'x' AS only UNION ALL SELECT ''").coalesce(1), str(tmp_path / "table"))
    target = str(tmp_path / "copy")
    copy_snapshot(spark, CopyRequest(str(tmp_path / "table"), 0, target, "csv"))
    (file,) = (tmp_path / "copy").glob("*.csv")
    assert sorted(file.read_text().splitlines()) == ['""', "only", "x"]
    write(spark.sql("SELECT CAST(null AS string) AS only"), str(tmp_path / "table"))
    with pytest.raises(InvalidArgumentError, match="nulls of the column only"):
        copy_snapshot(spark, CopyRequest(str(tmp_path / "table"), 1, target, "csv"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy", "table"]
    marker = read_marker(DeltaTable(target).storage)
    assert marker
    assert (marker.version, marker.format, marker.num_rows) == (0, "csv", 2)


@pytest.mark.parametrize("name", ["csv", "json"])
def test_a_copy_of_no_rows(spark: SparkSession, tmp_path: Path, name: str) -> None:
    write(spark.sql("SELECT 1 AS id, 'x' AS p WHERE 1 = 0"), str(tmp_path / "table"))
    request = CopyRequest(str(tmp_path / "table"), 0, str(tmp_path / "copy"), name)
    assert copy_snapshot(spark, request).num_rows == 0
    text = "".join(file.read_text() for file in (tmp_path / "copy").glob(f"part-*.{name}"))
    assert text == ("id,p\n" if name == "csv" else "")
