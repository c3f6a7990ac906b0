from __future__ import annotations

from typing import Any

import pytest

from airflow_delta.engine.errors import InvalidTableError
from airflow_delta.engine.features.type_widening import can_widen, unsupported_type_changes
from airflow_delta.engine.model.schema import LONG, ArrayType, StructField, StructType
from airflow_delta.engine.model.schema_json import data_type_from_json

GOOD = [
    *[("byte", new) for new in ("short", "integer", "long", "double", "decimal(4,1)")],
    *[("short", new) for new in ("integer", "long", "double", "decimal(10,0)")],
    *[("integer", new) for new in ("long", "double", "decimal(10,0)", "decimal(12,2)")],
    ("long", "decimal(20,0)"),
    ("long", "decimal(22,2)"),
    ("float", "double"),
    ("decimal(5,2)", "decimal(6,2)"),
    ("decimal(5,2)", "decimal(7,4)"),
    ("date", "timestamp_ntz"),
    ("string", "string"),
]
BAD = [
    ("short", "byte"),
    ("long", "integer"),
    ("long", "double"),
    ("integer", "float"),
    ("double", "float"),
    ("integer", "decimal(10,1)"),
    ("integer", "decimal(9,0)"),
    ("long", "decimal(19,0)"),
    ("byte", "decimal(3,1)"),
    ("decimal(5,2)", "decimal(5,3)"),
    ("decimal(5,2)", "decimal(6,4)"),
    ("decimal(5,2)", "decimal(6,1)"),
    ("decimal(5,0)", "long"),
    ("date", "timestamp"),
    ("integer", "string"),
    ("string", "integer"),
]


@pytest.mark.parametrize(("old", "new"), GOOD)
def test_changes_that_lose_nothing(old: str, new: str) -> None:
    assert can_widen(data_type_from_json(old), data_type_from_json(new))


@pytest.mark.parametrize(("old", "new"), BAD)
def test_changes_that_would_lose_values_or_are_no_widening(old: str, new: str) -> None:
    assert not can_widen(data_type_from_json(old), data_type_from_json(new))


def schema(changes: Any) -> StructType:
    inner = StructType((StructField("x", LONG, metadata={"delta.typeChanges": changes}),))
    return StructType((StructField("a", ArrayType(inner)),))


def test_each_recorded_change_is_judged_at_any_depth() -> None:
    changes = [
        {"fromType": "short", "toType": "integer"},
        {"fromType": "string", "toType": "long"},
        {"fromType": "integer", "toType": "byte", "fieldPath": "element"},
    ]
    assert unsupported_type_changes(schema(changes), table="tbl") == (
        "a.element.x: string to long",
        "a.element.x: integer to byte",
    )
    assert unsupported_type_changes(schema(changes[:1]), table="tbl") == ()


@pytest.mark.parametrize("change", [{"toType": "long"}, {"fromType": "x", "toType": "long"}, "x"])
def test_a_malformed_record_is_refused(change: Any) -> None:
    with pytest.raises(InvalidTableError, match=r"delta\.typeChanges of column a\.element\.x"):
        unsupported_type_changes(schema([change]), table="tbl")
