"""What rendered templates mean."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_delta.operators.template_values import as_conf, as_timestamp, as_version


@pytest.mark.parametrize("value", [24, "24", " 24 ", "+24", "024"])
def test_a_version_is_a_number_or_its_text(value: object) -> None:
    assert as_version(value, name="version") == 24


@pytest.mark.parametrize("value", [None, "", "None", "  "])
def test_nothing_means_no_version(value: object) -> None:
    assert as_version(value, name="version") is None


@pytest.mark.parametrize("value", ["24.0", "v24", "latest", "{{ x }}", True, 24.0, "२४"])
def test_anything_else_is_refused_with_the_name_of_the_argument(value: object) -> None:
    with pytest.raises(ValueError, match=r"min_version: expected a version such as 24, found"):
        as_version(value, name="min_version")


@pytest.mark.parametrize("value", [1_700_000_000_000, "1700000000000"])
def test_a_whole_number_is_a_timestamp_in_milliseconds(value: object) -> None:
    assert as_timestamp(value) == 1_700_000_000_000


def test_other_timestamps_are_left_to_the_engine() -> None:
    assert as_timestamp(" 2024-01-01T00:00:00+00:00 ") == "2024-01-01T00:00:00+00:00"


@pytest.mark.parametrize("value", [None, "", "None"])
def test_nothing_means_no_timestamp(value: object) -> None:
    assert as_timestamp(value) is None


@pytest.mark.parametrize(
    ("conf", "meant"),
    [
        (None, None),
        ({}, {}),
        ({"backfill": "3"}, {"backfill": "3"}),
        ({"backfill": 3}, {"backfill": 3}),
        ({"backfill": ""}, None),
        ({"backfill": "None"}, None),
        ({"backfill": None}, None),
        ({"backfill": " ", "endpoint": "x"}, {"endpoint": "x"}),
        ("backfill", "backfill"),
    ],
)
def test_what_is_left_empty_in_a_configuration_is_left_out(conf: Any, meant: Any) -> None:
    assert as_conf(conf) == meant
