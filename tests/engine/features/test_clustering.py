from __future__ import annotations

import json

import pytest

from airflow_delta.engine.errors import InvalidTableError
from airflow_delta.engine.features.clustering import (
    DOMAIN,
    check_clustering_columns,
    clustering_domain,
    parse_clustering_columns,
)
from airflow_delta.engine.model.schema import LONG, ArrayType, StructField, StructType

SCHEMA = StructType(
    (
        StructField("id", LONG),
        StructField("s", StructType((StructField("x", LONG), StructField("a.b", LONG)))),
        StructField("list", ArrayType(LONG)),
    )
)


def test_the_flat_example_of_the_specification() -> None:
    action = json.loads(
        r"""{"domainMetadata": {"domain": "delta.clustering", "configuration":
        "{\"clusteringColumns\":[\"col-daadafd7-7c20-4697-98f8-bff70199b1f9\", \"col-5abe0e80\"]}",
        "removed": false}}"""
    )["domainMetadata"]
    assert action["domain"] == DOMAIN
    assert parse_clustering_columns(action["configuration"], table="tbl") == (
        ("col-daadafd7-7c20-4697-98f8-bff70199b1f9",),
        ("col-5abe0e80",),
    )


def test_paths_as_the_writers_in_use_store_them() -> None:
    configuration = '{"clusteringColumns":[["col1"],["a","b"]],"domainName":"delta.clustering"}'
    assert parse_clustering_columns(configuration, table="tbl") == (("col1",), ("a", "b"))


def test_a_dot_belongs_to_a_name() -> None:
    configuration = '{"clusteringColumns":["a.b"]}'
    assert parse_clustering_columns(configuration, table="tbl") == (("a.b",),)


def test_a_table_clustered_by_nothing() -> None:
    assert parse_clustering_columns('{"clusteringColumns":[]}', table="tbl") == ()


@pytest.mark.parametrize(
    "configuration",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"clusteringColumns":"a"}',
        '{"clusteringColumns":[1]}',
        '{"clusteringColumns":[[]]}',
        '{"clusteringColumns":[["a",1]]}',
        "[" * 100_000,
    ],
)
def test_anything_else_is_refused(configuration: str) -> None:
    with pytest.raises(InvalidTableError, match=r"delta\.clustering holds .*: expected") as caught:
        parse_clustering_columns(configuration, table="tbl")
    assert caught.value.table == "tbl"


def test_what_is_written_is_the_form_of_the_writers_in_use() -> None:
    domain = clustering_domain([("col1",), ("a", "b")])
    assert domain.domain == DOMAIN
    assert json.loads(domain.configuration) == {
        "clusteringColumns": [["col1"], ["a", "b"]],
        "domainName": "delta.clustering",
    }
    assert parse_clustering_columns(domain.configuration, table="t") == (("col1",), ("a", "b"))


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ([("id",), ("s", "x"), ("s", "a.b")], None),
        ([], None),
        ([("x",)], "x is no column"),
        ([("s", "a", "b")], "is no column"),
        ([("s",)], "no statistics are kept"),
        ([("list",)], "no statistics are kept"),
        ([("list", "element")], "is no column"),
        ([("id",), ("s", "x"), ("id",)], "id is listed twice"),
    ],
)
def test_clustering_columns_are_different_columns_with_statistics(
    columns: list[tuple[str, ...]], problem: str | None
) -> None:
    if problem is None:
        check_clustering_columns(columns, SCHEMA, partition_columns=(), table="tbl")
    else:
        with pytest.raises(InvalidTableError, match=problem) as caught:
            check_clustering_columns(columns, SCHEMA, partition_columns=(), table="tbl")
        assert caught.value.table == "tbl"


def test_a_table_is_clustered_or_partitioned() -> None:
    with pytest.raises(InvalidTableError, match=r"partitioned by \['id'\]"):
        check_clustering_columns([("s", "x")], SCHEMA, partition_columns=["id"], table="tbl")
    check_clustering_columns([], SCHEMA, partition_columns=["id"], table="tbl")
