from __future__ import annotations

from typing import Any

import pytest

from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.spark.jobs.optimize import optimize


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"max_deleted_ratio": 1}, "'max_deleted_ratio': expected float, found 1"),
        ({"z_order_by": "a"}, "'z_order_by': expected list, found 'a'"),
        ({"dry_run": True}, r"unknown \['dry_run'\]"),
    ],
)
def test_wrong_parameters_are_refused_before_spark_starts(
    parameters: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        optimize({"table_uri": "/t", **parameters}, {})
