"""Schemas that callers have put together in ways that the log can't hold."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.engine.model.schema import (
    LONG,
    STRING,
    ArrayType,
    DecimalType,
    MapType,
    StructField,
    StructType,
)
from airflow_delta.engine.model.schema_arguments import check_data_type, check_fields

FINE = StructField("x", MapType(STRING, ArrayType(DecimalType(3, 1))), metadata={"a": [1, None]})


def inside(data_type: Any) -> StructType:
    return StructType((StructField("s", StructType((FINE, StructField("q", data_type)))),))


@pytest.mark.parametrize(
    ("data_type", "path"),
    [
        ("long", r"new_type\.s\.q"),
        (None, r"new_type\.s\.q"),
        (ArrayType("long"), r"new_type\.s\.q\.element"),  # type: ignore[arg-type]
        (MapType("long", LONG), r"new_type\.s\.q\.key"),  # type: ignore[arg-type]
        (MapType(LONG, 3), r"new_type\.s\.q\.value"),  # type: ignore[arg-type]
    ],
)
def test_a_type_is_one_at_any_depth(data_type: Any, path: str) -> None:
    check_data_type("new_type", inside(LONG))
    with pytest.raises(InvalidArgumentError, match=f"^tbl: {path}: expected a type .* LONG, found"):
        check_data_type("new_type", inside(data_type), table="tbl")


@pytest.mark.parametrize(
    ("field", "problem"),
    [
        ("x", r"fields\[1\]: expected a StructField, found the str 'x'"),
        (("q", LONG), r"fields\[1\]: expected a StructField, found the tuple"),
        (StructField(3, LONG), r"fields\[1\]\.name: expected a text, found the int 3"),  # type: ignore[arg-type]
        (StructField("q", LONG, "no"), r"fields\.q\.nullable: .* found the str 'no'"),  # type: ignore[arg-type]
        (StructField("q", LONG, metadata=3), r"fields\.q\.metadata: .* the int 3"),  # type: ignore[arg-type]
        (StructField("q", LONG, metadata={3: 1}), r"the keys of fields\.q\.metadata: .* int 3"),  # type: ignore[dict-item]
        (StructField("q", LONG, metadata={"a": {1}}), r"\['a'\]: expected a JSON value.* \{1\}"),
        (StructField("q", LONG, metadata={"a": float("nan")}), r"\['a'\]: .* the float nan"),
        (StructField("q", LONG, metadata={"a": [{"b": b""}]}), r"\['a'\]: .* the list"),
        (StructField("q", LONG, metadata={"a": {"b": {3: 1}}}), r"\['a'\]: .* the dict"),
    ],
)
def test_columns_are_columns(field: Any, problem: str) -> None:
    with pytest.raises(InvalidArgumentError, match=problem):
        check_fields("fields", [FINE, field])


@pytest.mark.parametrize("fields", ["x", FINE, None, {"x": LONG}])
def test_a_list_is_a_list(fields: Any) -> None:
    with pytest.raises(
        InvalidArgumentError, match="fields: expected a list of StructFields, found"
    ):
        check_fields("fields", fields)


def test_columns_are_given_back_whatever_lists_them() -> None:
    assert check_fields("fields", iter([FINE])) == (FINE,)
