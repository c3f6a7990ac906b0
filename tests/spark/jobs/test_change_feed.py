from __future__ import annotations

from typing import Any

import pytest

from airflow_delta.change_feeds.request import FeedRequest
from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.spark.jobs.change_feed import feed_request

GIVEN = {"table_uri": "/t", "start": 3, "end": 7, "target_uri": "/c"}


def test_parameters_make_a_request() -> None:
    assert feed_request(GIVEN) == FeedRequest("/t", 3, 7, "/c", "delta")
    assert feed_request({**GIVEN, "format": "parquet"}).format == "parquet"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"start": "3"}, "'start': expected int, found '3'"),
        ({"colour": "red"}, r"unknown \['colour'\]"),
        (
            {"format": "csv"},
            "unknown format 'csv' of a change feed: expected one of parquet, delta",
        ),
    ],
)
def test_wrong_parameters_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        feed_request({**GIVEN, **change})


def test_missing_parameters_are_named() -> None:
    with pytest.raises(InvalidArgumentError, match=r"missing \['end', 'start'\]"):
        feed_request({"table_uri": "/t", "target_uri": "/c"})
