"""Which columns get statistics: the rules of Delta Spark's ``validateDeltaStatsColumns``."""

from __future__ import annotations

import pytest

from airflow_delta.engine.errors import InvalidArgumentError, InvalidTableError
from airflow_delta.engine.features.statistics_columns import (
    check_statistics_columns,
    columns_with_statistics,
    has_bounds,
    leaf_columns,
)
from airflow_delta.engine.model.properties import TableProperties
from airflow_delta.engine.model.schema import (
    BINARY,
    BOOLEAN,
    DATE,
    INTEGER,
    LONG,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VARIANT,
    VOID,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    StructField,
    StructType,
)

INNER = StructType((StructField("x", INTEGER), StructField("odd, name", DATE)))
SCHEMA = StructType(
    (
        StructField("Id", LONG),
        StructField("s", INNER),
        StructField("mixed", StructType((StructField("y", LONG), StructField("b", BOOLEAN)))),
        StructField("part", STRING),
    )
)


def properties(listed: str | None = None, number: str | None = None) -> TableProperties:
    given = {
        "delta.dataSkippingStatsColumns": listed,
        "delta.dataSkippingNumIndexedCols": number,
    }
    return TableProperties({k: v for k, v in given.items() if v is not None}, "tbl")


@pytest.mark.parametrize(
    "data_type", [INTEGER, STRING, DATE, TIMESTAMP, TIMESTAMP_NTZ, DecimalType(5, 2)]
)
def test_types_with_least_and_greatest_values(data_type: DataType) -> None:
    assert has_bounds(data_type)


@pytest.mark.parametrize(
    "data_type",
    [BINARY, BOOLEAN, VARIANT, VOID, ArrayType(INTEGER, True), MapType(STRING, INTEGER, True)],
)
def test_types_without(data_type: DataType) -> None:
    assert not has_bounds(data_type)


@pytest.mark.parametrize(
    ("listed", "number", "expected"),
    [
        ("ID,s.`odd, name`", "0", {("Id",), ("s", "odd, name")}),
        ("s", None, {("s", "x"), ("s", "odd, name")}),
        ("", None, set()),
        (None, "0", set()),
        (None, "2", {("Id",), ("s", "x")}),
    ],
)
def test_the_list_counts_or_else_the_number(
    listed: str | None, number: str | None, expected: set[tuple[str, ...]]
) -> None:
    leaves = leaf_columns(SCHEMA)
    assert columns_with_statistics(leaves, properties(listed, number)) == expected
    everything = columns_with_statistics(leaves, properties(None, "-1"))
    assert everything == columns_with_statistics(leaves, properties()) == leaves.keys()


@pytest.mark.parametrize("listed", [None, "", "id", "id, S", "s.x,s.`odd, name`", "mixed.y"])
def test_lists_that_can_be(listed: str | None) -> None:
    check_statistics_columns(SCHEMA, ["part"], properties(listed))


@pytest.mark.parametrize(
    ("listed", "problem"),
    [
        ("nope", "'nope' is no column"),
        ("s.z", "'s.z' is no column"),
        ("id.x", "'id.x' is no column"),
        ("Part", "'Part' is a partition column"),
        ("mixed", "'mixed.b' is of the type boolean"),
        ("id,ID", "'ID' is listed twice"),
        ("s,s.x", "'s.x' is listed twice"),
    ],
)
def test_lists_that_can_not(listed: str, problem: str) -> None:
    with pytest.raises(InvalidArgumentError, match=problem):
        check_statistics_columns(SCHEMA, ["part"], properties(listed))


def test_a_malformed_list_is_refused() -> None:
    with pytest.raises(InvalidTableError, match=r"dataSkippingStatsColumns: 'my col' is no list"):
        check_statistics_columns(SCHEMA, ["part"], properties("my col"))
