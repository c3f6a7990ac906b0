from __future__ import annotations

import pyarrow as pa
import pytest

from airflow_delta.engine.errors import CorruptLogError, InvalidArgumentError
from airflow_delta.engine.model.paths import encode_path, resolve
from airflow_delta.spark.locations import hadoop_path, hadoop_uri, hadoop_uris

LOG_PATHS = [
    *map(
        encode_path,
        [
            "part-0.parquet",
            "k=1/part-0.parquet",
            "a b/p 1.parquet",
            "a b/p 2.parquet",
            "a%b/x%41",
            "c:d",
            "c:d/é",
            "/abs/a b/é",
            "😀\u3000/part.parquet",
            "a#b?c/p",
            "~/.x",
            "a\nb/c\nd",
            "x/",
        ],
    ),
    "file:/p%40q",
    "file:///p/q",
    "s3://b/k%20/x.parquet",
    "hdfs://h:80/a:b/c:d",
    "/x",
    "x%2Fy",
]


@pytest.mark.parametrize(
    ("location", "path", "uri"),
    [
        ("/a b/c%20d", "file:/a b/c%20d", "file:/a%20b/c%2520d"),
        ("s3://bucket/a b", "s3a://bucket/a b", "s3a://bucket/a%20b"),
        ("s3a://bucket/é", "s3a://bucket/é", "s3a://bucket/é"),
        ("gcs://bucket/x", "gs://bucket/x", "gs://bucket/x"),
        (
            "abfss://c@account.dfs.core.windows.net/{x}",
            "abfss://c@account.dfs.core.windows.net/{x}",
            "abfss://c@account.dfs.core.windows.net/%7Bx%7D",
        ),
    ],
)
def test_locations_as_hadoop_spells_them(location: str, path: str, uri: str) -> None:
    assert (hadoop_path(location), hadoop_uri(location)) == (path, uri)


@pytest.mark.parametrize(
    ("location", "message"),
    [
        ("memory://x/t", "can't see the memory of this process"),
        ("az://container/t", "use abfss://"),
        ("relative/t", "no absolute location"),
    ],
)
def test_locations_that_spark_cannot_reach(location: str, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        hadoop_uri(location)


@pytest.mark.parametrize("table", ["/data/t x%", "s3://bucket/a%20b", "file:///a%20b/", "/"])
def test_all_files_at_once_are_where_each_of_them_is(table: str) -> None:
    wanted = [hadoop_uri(resolve(table, path)) for path in LOG_PATHS]
    chunks = pa.chunked_array([LOG_PATHS[:3], [], LOG_PATHS[3:]], pa.string())
    assert hadoop_uris(chunks, table=table).to_pylist() == wanted


def test_no_files_have_no_locations() -> None:
    assert hadoop_uris(pa.chunked_array([], pa.string()), table="/t").to_pylist() == []


@pytest.mark.parametrize("path", ["a%2/b", "b/a%2"])
def test_paths_that_are_no_uris(path: str) -> None:
    with pytest.raises(CorruptLogError, match="two hexadecimal digits"):
        hadoop_uris(pa.chunked_array([["c", path]]), table="/t")
