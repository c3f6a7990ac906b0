from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.engine.features.clustering_choice import clustering_paths
from airflow_delta.engine.features.column_mapping import assign_mapping
from airflow_delta.engine.model.properties import TableProperties
from airflow_delta.engine.model.schema import (
    BINARY,
    BOOLEAN,
    DATE,
    INTEGER,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    ArrayType,
    DecimalType,
    StructField,
    StructType,
)

SCHEMA = StructType(
    (
        StructField("i", INTEGER),
        StructField("s", StructType((StructField("x", STRING), StructField("odd name", DATE)))),
        StructField("t", TIMESTAMP),
        StructField("n", TIMESTAMP_NTZ),
        StructField("d", DecimalType(10, 2)),
        StructField("b", BOOLEAN),
        StructField("raw", BINARY),
        StructField("l", ArrayType(INTEGER)),
    )
)


def paths(
    *chosen: str | Sequence[str],
    properties: dict[str, str] | None = None,
    schema: StructType = SCHEMA,
    partition_columns: Sequence[str] = (),
    mode: str = "none",
) -> tuple[tuple[str, ...], ...]:
    return clustering_paths(
        schema, chosen, partition_columns, TableProperties(properties or {}, "tbl"), mode=mode
    )


def test_columns_inside_structs_are_lists_of_names() -> None:
    assert paths("i", ["s", "x"], ("s", "odd name")) == (("i",), ("s", "x"), ("s", "odd name"))
    assert paths("t", "n", "d") == (("t",), ("n",), ("d",))
    assert paths() == ()


def test_the_paths_are_physical_ones() -> None:
    mapped, _ = assign_mapping(SCHEMA, name_of=lambda field: field.name.upper())
    assert paths(("s", "x"), schema=mapped, mode="name") == (("S", "X"),)
    assert paths(("s", "x"), schema=mapped) == (("s", "x"),)


@pytest.mark.parametrize(
    ("chosen", "problem"),
    [
        (["b"], "b is of the type boolean"),
        (["raw"], "raw is of the type binary"),
        (["l"], "l is of the type array<integer>"),
        (["s"], "s is no column of the table, or is a struct"),
        (["nope"], r"nope is no column .* are i, s\.x, s\.odd name"),
        (["I"], "I is no column"),
        ([5], "expected names of columns"),
        ([["s", 5]], "expected names of columns"),
        (["i", "t", "i"], "i is listed twice"),
        (["i", "t", "n", "d", ("s", "x")], "at most 4 columns"),
    ],
)
def test_columns_that_no_table_is_clustered_by(chosen: list[Any], problem: str) -> None:
    with pytest.raises(InvalidArgumentError, match=problem):
        paths(*chosen)


def test_what_is_offered_has_least_and_greatest_values() -> None:
    with pytest.raises(InvalidArgumentError, match="possible columns are") as caught:
        paths("nope")
    offered = caught.value.message.partition("possible columns are ")[2].split(", ")
    assert "i" in offered
    assert not {"b", "raw", "l"} & {*offered}


def test_a_single_text_is_no_list() -> None:
    with pytest.raises(InvalidArgumentError, match=r"such as \['ti'\]"):
        clustering_paths(SCHEMA, "ti", (), TableProperties({}, "tbl"), mode="none")


def test_a_partitioned_table_is_not_clustered() -> None:
    with pytest.raises(InvalidArgumentError, match="partitioned by"):
        paths("i", partition_columns=["t"])


def test_columns_without_statistics_are_refused() -> None:
    few = {"delta.dataSkippingNumIndexedCols": "2"}
    assert paths("i", ("s", "x"), properties=few) == (("i",), ("s", "x"))
    with pytest.raises(InvalidArgumentError, match=r"s\.odd name gets no statistics"):
        paths(("s", "odd name"), properties=few)
    assert paths("t", properties={"delta.dataSkippingNumIndexedCols": "-1"}) == (("t",),)
    listed = {"delta.dataSkippingStatsColumns": "S, `t`", "delta.dataSkippingNumIndexedCols": "0"}
    assert paths("t", ("s", "odd name"), properties=listed) == (("t",), ("s", "odd name"))
    with pytest.raises(InvalidArgumentError, match="i gets no statistics;"):
        paths("i", properties=listed)
