from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from airflow_delta.engine.errors import (
    CorruptLogError,
    InvalidArgumentError,
    NotRegularFileError,
    OutsidePathError,
)
from airflow_delta.engine.model.paths import encode_path, resolve
from airflow_delta.engine.storage.file_access import FileAccess
from airflow_delta.engine.storage.location import open_storage
from airflow_delta.spark.runtime.locations import hadoop_path, hadoop_uri, hadoop_uris

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
    access = FileAccess(open_storage(table), allowed_outside=("/", "s3://b"))
    assert hadoop_uris(chunks, access).to_pylist() == wanted


def test_no_files_have_no_locations() -> None:
    assert hadoop_uris(pa.chunked_array([], pa.string()), _access("/t")).to_pylist() == []


@pytest.mark.parametrize("path", ["a%2/b", "b/a%2"])
def test_paths_that_are_no_uris(path: str) -> None:
    with pytest.raises(CorruptLogError, match="two hexadecimal digits"):
        hadoop_uris(pa.chunked_array([["c", path]]), _access("/t"))


@pytest.mark.parametrize("table", ["/t", "s3://b/t", "abfss://c@a.dfs.core.windows.net/t"])
@pytest.mark.parametrize(
    "path",
    [
        "../victim/x.parquet",
        "k=1/../../victim/x.parquet",
        "..%2fvictim/x.parquet",
        "%2e%2e/victim/x.parquet",
        "k=1/%2E./x.parquet",
        "k=1/..",
        "file:///victim/x.parquet",
        "file://host/t/x.parquet",
        "file:/t/../victim/x.parquet",
        "s3://other/x.parquet",
        "s3a://b.evil/t/x.parquet",
        "gs://b/t/x.parquet",
        "abfss://c@a.dfs.evil.example/t/x.parquet",
        "abfss://c@other.dfs.core.windows.net/t/x.parquet",
        "hdfs://b/t/x.parquet",
        "ftp://evil/x.parquet",
        "data:text/plain,x",
        "a:1.parquet",
    ],
)
def test_spark_is_given_no_path_outside(table: str, path: str) -> None:
    """Wherever it stands among others."""
    for paths in ([path], ["k=1/a.parquet", path, "b.parquet"]):
        with pytest.raises((OutsidePathError, CorruptLogError)) as refused:
            hadoop_uris(pa.chunked_array([paths], pa.string()), _access(table))
        assert refused.value.table == table


@pytest.mark.parametrize(
    "path",
    [
        "wasb://c@a.blob.core.windows.net/u/k=1/x.parquet",
        "abfs://c@a.dfs.core.windows.net/u/k=1/x.parquet",
        "abfss://c@A.blob.core.windows.net/u/k=1/x.parquet",
        "az://c/u/k=1/x%2Eparquet",
    ],
)
def test_spark_gets_the_users_name_for_a_store_and_not_the_logs(path: str) -> None:
    """By the log's, Spark would ask another endpoint, or the same one without encryption."""
    access = _access("abfss://c@a.dfs.core.windows.net/t")
    found = hadoop_uris(pa.chunked_array([[path]], pa.string()), access)
    assert found.to_pylist() == ["abfss://c@a.dfs.core.windows.net/u/k=1/x.parquet"]


def test_a_link_is_not_given_to_spark(tmp_path: Path) -> None:
    """Wherever it leads: the engine doesn't follow it either."""
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim" / "x.parquet").touch()
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "own.parquet").touch()
    (tmp_path / "t" / "own link.parquet").symlink_to("own.parquet")
    (tmp_path / "t" / "k=1").symlink_to(tmp_path / "victim")
    (tmp_path / "t" / "x.parquet").symlink_to(tmp_path / "victim" / "x.parquet")
    access = FileAccess(open_storage(str(tmp_path / "t")))
    assert len(hadoop_uris(pa.chunked_array([["own.parquet", "./own.parquet"]]), access)) == 2
    for path in ("k=1/x.parquet", "x.parquet", "own%20link.parquet"):
        with pytest.raises(NotRegularFileError, match="a link leads from there to"):
            hadoop_uris(pa.chunked_array([["own.parquet", path]]), access)


def _access(table: str) -> FileAccess:
    return FileAccess(open_storage(table))
