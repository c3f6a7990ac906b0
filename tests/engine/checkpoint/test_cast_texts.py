"""What becomes of texts of partition values; see also ``tests/spark/reader/test_cast_texts.py``."""

from __future__ import annotations

import math
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pytest

from airflow_delta.engine.checkpoint.cast_texts import cast_text
from airflow_delta.engine.model.schema import ArrayType, DecimalType, PrimitiveType


@pytest.mark.parametrize(
    ("type_", "text", "value"),
    [
        # As the protocol has it.
        ("string", " a ", " a "),
        ("integer", "-17", -17),
        ("timestamp_ntz", "1970-01-01 00:00:00.5", datetime(1970, 1, 1, microsecond=500_000)),
        # What is cast besides.
        ("integer", " -17.9\t", -17),
        ("boolean", "Y", True),
        ("float", "1e39", math.inf),
        ("double", "1e39", 1e39),
        ("date", "2024-01-02 10:30", date(2024, 1, 2)),
        ("timestamp", "2024-01-01", datetime(2024, 1, 1, tzinfo=timezone.utc)),
        ("timestamp", "2024-01-01 10:30", datetime(2024, 1, 1, 10, 30, tzinfo=timezone.utc)),
        (
            "timestamp",
            "2024-01-01 10:30:15.1234567",
            datetime(2024, 1, 1, 10, 30, 15, 123456, timezone.utc),
        ),
        ("timestamp_ntz", "2024-01-01 10:30:15+2", datetime(2024, 1, 1, 10, 30, 15)),
        ("binary", "Ā", b"\xc4\x80"),
        # No values.
        ("byte", "128.5", None),
        ("boolean", "on", None),
        ("date", "2024-02-30", None),
        ("timestamp", "2024-01-01 10:30:15 Europe/Berlin", None),
        ("string", "", None),
        ("long", None, None),
        ("void", "x", None),
    ],
)
def test_a_text_is_cast_or_null(type_: str, text: str | None, value: Any) -> None:
    assert cast_text(text, PrimitiveType(type_)) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1.15", Decimal("1.2")),
        ("-1.15", Decimal("-1.2")),
        ("1.149999", Decimal("1.1")),
        ("999999999.96", None),
        ("1e-400", Decimal("0.0")),
        ("NaN", None),
    ],
)
def test_decimals_are_rounded_half_up(text: str, value: Decimal | None) -> None:
    assert cast_text(text, DecimalType(10, 1)) == value


def test_what_can_not_partition_a_table_has_no_values() -> None:
    assert cast_text("[1]", ArrayType(PrimitiveType("long"), contains_null=True)) is None
