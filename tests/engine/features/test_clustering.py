from __future__ import annotations

import json

import pytest

from airflow_delta.engine.errors import InvalidTableError
from airflow_delta.engine.features.clustering import DOMAIN, parse_clustering_columns


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
