from __future__ import annotations

from typing import Any

import pytest

from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.spark.jobs.rewrite import rewrite
from airflow_delta.spark.jobs.vacuum import vacuum
from airflow_delta.spark.vacuum.execution import for_spark


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"retention_hours": 168}, "'retention_hours': expected float, found 168"),
        ({"dry_run": "yes"}, "'dry_run': expected bool, found 'yes'"),
        ({"mode": "lite"}, r"unknown \['mode'\]"),
    ],
)
def test_wrong_parameters_are_refused_before_spark_starts(
    parameters: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        vacuum({"table_uri": "/t", **parameters}, {})


def test_a_missing_feature_is_named() -> None:
    with pytest.raises(InvalidArgumentError, match=r"missing \['feature'\]"):
        rewrite({"table_uri": "/t"}, {})


def test_an_inventory_is_named_as_spark_knows_it() -> None:
    assert for_spark("s3://b/i v") == "s3a://b/i v"
    assert for_spark("file:/b/i") == "file:/b/i"
    assert for_spark("i") == "i"
