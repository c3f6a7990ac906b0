from __future__ import annotations

from typing import Any

import pytest

from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.spark.jobs.checkpoint import checked_parameters

GIVEN = {"table_uri": "/t", "version": 7, "policy": "v2", "if_needed": True}


def test_parameters_are_taken_as_they_are() -> None:
    assert checked_parameters(GIVEN) == GIVEN
    assert checked_parameters({"table_uri": "/t"}) == {"table_uri": "/t"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": "7"}, "'version': expected int, found '7'"),
        ({"version": True}, "'version': expected int, found True"),
        ({"if_needed": 1}, "'if_needed': expected bool, found 1"),
        ({"colour": "red"}, r"unknown \['colour'\]"),
    ],
)
def test_wrong_parameters_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        checked_parameters({**GIVEN, **change})


def test_a_missing_table_is_named() -> None:
    with pytest.raises(InvalidArgumentError, match=r"missing \['table_uri'\]"):
        checked_parameters({"version": 7})
