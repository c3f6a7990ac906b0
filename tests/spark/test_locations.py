from __future__ import annotations

import pytest

from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.spark.locations import hadoop_path, hadoop_uri


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
