"""Against PROTOCOL.md, "Partition Value Serialization", and the values of real tables."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_delta.engine.errors import InvalidArgumentError, InvalidTableError
from airflow_delta.engine.model.partition_values import (
    parse_partition_value,
    serialize_partition_value,
)
from airflow_delta.engine.model.schema import (
    BINARY,
    BOOLEAN,
    BYTE,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    PRIMITIVE_TYPES,
    SHORT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VARIANT,
    VOID,
    ArrayType,
    DataType,
    DecimalType,
    StructType,
)
from airflow_delta.engine.model.schema_json import parse_schema

UTC = timezone.utc

# Text that is written as it was read.
EXACT = [
    ("", STRING, None),
    ("null", STRING, "null"),
    ("__HIVE_DEFAULT_PARTITION__", STRING, "__HIVE_DEFAULT_PARTITION__"),
    (" a ", STRING, " a "),
    ("-128", BYTE, -128),
    ("32767", SHORT, 32767),
    ("-2147483648", INTEGER, -(2**31)),
    ("9223372036854775807", LONG, 2**63 - 1),
    ("1.5", DOUBLE, 1.5),
    ("NaN", DOUBLE, math.nan),
    ("Infinity", FLOAT, math.inf),
    ("-Infinity", DOUBLE, -math.inf),
    ("1.10", DecimalType(10, 2), Decimal("1.10")),
    ("true", BOOLEAN, True),
    ("false", BOOLEAN, False),
    ("1970-01-01", DATE, date(1970, 1, 1)),
    ("0001-01-01", DATE, date(1, 1, 1)),
    ("1970-01-01 00:00:00", TIMESTAMP, datetime(1970, 1, 1, tzinfo=UTC)),
    ("1970-01-01 00:00:00.123456", TIMESTAMP, datetime(1970, 1, 1, 0, 0, 0, 123456, UTC)),
    ("1970-01-01 00:00:00", TIMESTAMP_NTZ, datetime(1970, 1, 1)),
    ("1970-01-01 00:00:00.123456", TIMESTAMP_NTZ, datetime(1970, 1, 1, 0, 0, 0, 123456)),
    ("\u0001\u0002\u0003", BINARY, b"\x01\x02\x03"),
    ("\u00ff", BINARY, b"\xc3\xbf"),
    ("Österreich 😀\u0000", BINARY, "Österreich 😀\0".encode()),
]

# Other texts of a value.
READ_ONLY = [
    ("+7", LONG, 7),
    ("-0", LONG, 0),
    ("007", INTEGER, 7),
    ("1e3", DOUBLE, 1000.0),
    ("1.0E10", DOUBLE, 1e10),
    (".5", DOUBLE, 0.5),
    ("5.", DOUBLE, 5.0),
    ("-5", DOUBLE, -5.0),
    ("nan", FLOAT, math.nan),
    ("inf", DOUBLE, math.inf),
    ("0.1", FLOAT, struct.unpack("<f", struct.pack("<f", 0.1))[0]),
    ("1.10", DecimalType(10, 1), Decimal("1.1")),
    ("1e3", DecimalType(10, 1), Decimal("1000.0")),
    ("1E-7", DecimalType(10, 7), Decimal("0.0000001")),
    ("5", DecimalType(3, 2), Decimal("5.00")),
    ("TRUE", BOOLEAN, True),
    ("False", BOOLEAN, False),
    ("1970-1-2", DATE, date(1970, 1, 2)),
    ("1970-01-01T00:00:00.123456Z", TIMESTAMP, datetime(1970, 1, 1, 0, 0, 0, 123456, UTC)),
    ("2024-01-01 00:00:00.5", TIMESTAMP, datetime(2024, 1, 1, 0, 0, 0, 500000, UTC)),
    ("2024-01-01 00:00:00+05:30", TIMESTAMP, datetime(2023, 12, 31, 18, 30, tzinfo=UTC)),
    ("2024-01-01T00:00:00-0800", TIMESTAMP, datetime(2024, 1, 1, 8, tzinfo=UTC)),
    ("2024-01-01T00:00:00", TIMESTAMP_NTZ, datetime(2024, 1, 1)),
    # Of files from before a date was widened, as are whole numbers above for doubles and decimals.
    ("2024-01-01", TIMESTAMP_NTZ, datetime(2024, 1, 1)),
    ("0001-1-2", TIMESTAMP_NTZ, datetime(1, 1, 2)),
]


def _same(found: Any, expected: Any) -> bool:
    if isinstance(expected, float) and math.isnan(expected):
        return isinstance(found, float) and math.isnan(found)
    return type(found) is type(expected) and found == expected and str(found) == str(expected)


@pytest.mark.parametrize(("text", "data_type", "value"), [*EXACT, *READ_ONLY])
def test_a_partition_text_stands_for_its_value(text: str, data_type: DataType, value: Any) -> None:
    assert _same(parse_partition_value(text, data_type), value)


@pytest.mark.parametrize(("text", "data_type", "value"), EXACT)
def test_a_partition_value_has_its_text(text: str, data_type: DataType, value: Any) -> None:
    assert serialize_partition_value(value, data_type) == (text or None)


@pytest.mark.parametrize("data_type", [*PRIMITIVE_TYPES.values(), DecimalType(5, 2)], ids=str)
def test_null_and_empty_text_are_null(data_type: DataType) -> None:
    assert parse_partition_value(None, data_type) is None
    assert parse_partition_value("", data_type) is None
    assert serialize_partition_value(None, data_type) is None


def test_what_would_be_empty_text_is_written_as_null() -> None:
    assert serialize_partition_value("", STRING) is None
    assert serialize_partition_value(b"", BINARY) is None


@pytest.mark.parametrize(
    ("text", "data_type"),
    [
        ("128", BYTE),
        ("-32769", SHORT),
        ("2147483648", INTEGER),
        ("9223372036854775808", LONG),
        ("9" * 5000, LONG),
        ("1e3", INTEGER),
        ("1.0", INTEGER),
        ("1_000", LONG),
        (" 1", LONG),
        ("\N{ARABIC-INDIC DIGIT ONE}", LONG),
        ("__HIVE_DEFAULT_PARTITION__", LONG),
        ("1,5", DOUBLE),
        ("1_0", DOUBLE),
        ("1e39", FLOAT),
        ("0x10", DOUBLE),
        ("1.15", DecimalType(10, 1)),
        ("1000", DecimalType(3, 0)),
        ("1e9999", DecimalType(38, 0)),
        ("NaN", DecimalType(5, 2)),
        ("yes", BOOLEAN),
        ("1", BOOLEAN),
        ("2024-02-30", DATE),
        ("2024-01", DATE),
        ("2024-01-01 00:00:00", DATE),
        ("10000-01-01", DATE),
        ("2024-01-01", TIMESTAMP),
        ("2016-12-31 23:59:60", TIMESTAMP),
        ("2024-01-01 00:00:00.1234567", TIMESTAMP),
        ("2024-01-01 00:00:00+25:00", TIMESTAMP),
        ("0001-01-01 00:00:00+01:00", TIMESTAMP),
        ("2024-01-01 00:00:00Z", TIMESTAMP_NTZ),
        ("2024-02-30", TIMESTAMP_NTZ),
        ("2024-01", TIMESTAMP_NTZ),
        ("\ud800", BINARY),
    ],
)
def test_what_is_no_value(text: str, data_type: DataType) -> None:
    with pytest.raises(
        InvalidTableError, match=r"partition value .* is no .*; expected "
    ) as caught:
        parse_partition_value(text, data_type)
    assert (caught.value.value, caught.value.type) == (text, str(data_type))


@pytest.mark.parametrize("data_type", [VOID, VARIANT, StructType(), ArrayType(LONG)], ids=str)
def test_types_that_cannot_partition(data_type: DataType) -> None:
    with pytest.raises(InvalidTableError, match="can't partition a table"):
        parse_partition_value("1", data_type)
    with pytest.raises(InvalidArgumentError, match="can't partition a table"):
        serialize_partition_value("1", data_type)


@pytest.mark.parametrize(
    ("value", "data_type"),
    [
        (1, STRING),
        ("1", LONG),
        (True, LONG),
        (1.0, LONG),
        (128, BYTE),
        (2**63, LONG),
        ("1", DOUBLE),
        (True, DOUBLE),
        (1e39, FLOAT),
        (1.5, DecimalType(5, 2)),
        (Decimal("1.234"), DecimalType(5, 2)),
        (Decimal("NaN"), DecimalType(5, 2)),
        (Decimal(1000), DecimalType(5, 2)),
        (1, BOOLEAN),
        (datetime(2024, 1, 1), DATE),
        (date(2024, 1, 1), TIMESTAMP_NTZ),
        (datetime(2024, 1, 1), TIMESTAMP),
        (datetime(2024, 1, 1, tzinfo=UTC), TIMESTAMP_NTZ),
        ("x", BINARY),
        (b"\xff", BINARY),
        (b"a\xc3", BINARY),
        (b"\xed\xa0\x80", BINARY),
    ],
)
def test_values_that_are_none_of_the_type(value: Any, data_type: DataType) -> None:
    with pytest.raises(InvalidArgumentError, match=r"is no partition value of type") as caught:
        serialize_partition_value(value, data_type)
    assert caught.value.type == str(data_type)


def test_timestamps_are_written_in_utc() -> None:
    zone = timezone(timedelta(hours=5, minutes=30))
    written = serialize_partition_value(datetime(2024, 1, 1, tzinfo=zone), TIMESTAMP)
    assert written == "2023-12-31 18:30:00"


def test_single_precision_is_written_as_short_as_it_was() -> None:
    for text in ("0.1", "3.4028235e+38", "1e-45", "16777216.0", "-0.0", "1.17549435e-38"):
        written = serialize_partition_value(parse_partition_value(text, FLOAT), FLOAT)
        assert written is not None
        assert len(written) <= len(text)
        assert struct.pack("<f", float(written)) == struct.pack("<f", float(text))


_moments = st.datetimes(timezones=st.just(UTC))
_values = st.one_of(
    st.tuples(st.text(min_size=1), st.just(STRING)),
    st.tuples(st.integers(-(2**63), 2**63 - 1), st.just(LONG)),
    st.tuples(st.floats(allow_nan=False), st.just(DOUBLE)),
    st.tuples(st.floats(allow_nan=False, width=32), st.just(FLOAT)),
    st.tuples(st.decimals(-999, 999, places=4), st.just(DecimalType(7, 4))),
    st.tuples(st.booleans(), st.just(BOOLEAN)),
    st.tuples(st.dates(), st.just(DATE)),
    st.tuples(_moments, st.just(TIMESTAMP)),
    st.tuples(st.datetimes(), st.just(TIMESTAMP_NTZ)),
    st.tuples(st.text(min_size=1).map(str.encode), st.just(BINARY)),
)


@given(_values)
@settings(max_examples=50)
def test_a_partition_value_survives_its_text(case: tuple[Any, DataType]) -> None:
    value, data_type = case
    assert parse_partition_value(serialize_partition_value(value, data_type), data_type) == value


@pytest.mark.parametrize(
    "case",
    [
        "data-reader-partition-values",
        "delta-2.2.0-partitioned-types",
        "kernel-timestamp-partition-col-ISO8601",
        "kernel-timestamp-pst",
        "delta-0.8.0-special-partition",
    ],
)
def test_values_of_real_tables(golden_case: Callable[[str], Path], case: str) -> None:
    schema = StructType()
    seen = 0
    for file in sorted((golden_case(case) / "_delta_log").glob("*.json")):
        actions = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        for action in actions:
            if "metaData" in action:
                schema = parse_schema(action["metaData"]["schemaString"], case)
        for add in (action["add"] for action in actions if "add" in action):
            for name, text in add["partitionValues"].items():
                column = schema.field(name)
                assert column is not None
                value = parse_partition_value(text, column.data_type)
                again = serialize_partition_value(value, column.data_type)
                assert parse_partition_value(again, column.data_type) == value
                assert (value is None) == (text is None or text == "")
                seen += 1
    assert seen
