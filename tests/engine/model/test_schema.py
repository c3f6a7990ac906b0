from __future__ import annotations

import pytest

from airflow_delta.engine.errors import InvalidTableError
from airflow_delta.engine.model.schema import (
    INTEGER,
    PRIMITIVE_TYPES,
    STRING,
    ArrayType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
)


def test_looking_up_columns() -> None:
    schema = StructType((StructField("a", INTEGER), StructField("b", STRING)))
    assert schema.names == ("a", "b")
    assert [column.name for column in schema] == ["a", "b"]
    assert len(schema) == 2
    assert schema.field("b") == StructField("b", STRING, nullable=True, metadata={})
    assert schema.field("B") is None


@pytest.mark.parametrize("names", [("a", "a"), ("a", "A"), ("x", "É", "é")])
def test_names_are_unique_regardless_of_case(names: tuple[str, ...]) -> None:
    with pytest.raises(InvalidTableError, match=f"'{names[-2]}' and '{names[-1]}'") as caught:
        StructType(tuple(StructField(name, STRING) for name in names))
    assert caught.value.names == names[-2:]


@pytest.mark.parametrize(("precision", "scale"), [(1, 0), (1, 1), (38, 0), (38, 38)])
def test_decimals(precision: int, scale: int) -> None:
    assert str(DecimalType(precision, scale)) == f"decimal({precision},{scale})"


@pytest.mark.parametrize(("precision", "scale"), [(0, 0), (39, 0), (5, 6), (5, -1), (-1, -2)])
def test_impossible_decimals_are_refused(precision: int, scale: int) -> None:
    with pytest.raises(InvalidTableError, match=rf"decimal\({precision},{scale}\)"):
        DecimalType(precision, scale)


def test_types_read_like_sql() -> None:
    nested = StructType((StructField("a", ArrayType(MapType(STRING, DecimalType(5, 2)))),))
    assert str(nested) == "struct<a:array<map<string,decimal(5,2)>>>"


def test_every_primitive_is_known_by_its_own_name() -> None:
    assert {PrimitiveType(name) for name in PRIMITIVE_TYPES} == set(PRIMITIVE_TYPES.values())
