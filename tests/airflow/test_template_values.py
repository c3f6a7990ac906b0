"""What rendered templates mean."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_delta.operators.template_values import (
    as_conf,
    as_flag,
    as_hours,
    as_names,
    as_text,
    as_timestamp,
    as_version,
)


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


@pytest.mark.parametrize("value", [168, 168.0, "168", " 168.0 ", "1.68e2"])
def test_hours_are_a_number_or_its_text(value: Any) -> None:
    assert as_hours(value, name="hours") == 168.0


@pytest.mark.parametrize("value", [None, "", "None", " "])
def test_nothing_means_no_hours_and_no_text(value: Any) -> None:
    assert as_hours(value, name="hours") is None
    assert as_text(value) is None


def test_a_text_is_left_as_it_is() -> None:
    assert as_text(" s3://lake/a b ") == " s3://lake/a b "


@pytest.mark.parametrize("value", ["a week", "-1", -0.5, "nan", "inf", True, "1e300", "{{ x }}"])
def test_hours_that_are_none_are_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="hours: expected a number of hours such as 168, found"):
        as_hours(value, name="hours")


@pytest.mark.parametrize("value", [True, "True", "true", " TRUE "])
def test_a_flag_is_true_or_its_text(value: Any) -> None:
    assert as_flag(value, name="dry_run") is True


@pytest.mark.parametrize("value", [False, "False", "false"])
def test_a_flag_is_false_or_its_text(value: Any) -> None:
    assert as_flag(value, name="dry_run") is False


@pytest.mark.parametrize("value", ["", "None", None, "no", "0", 0, 1, "{{ x }}"])
def test_what_is_missing_is_no_flag(value: Any) -> None:
    with pytest.raises(ValueError, match="dry_run: expected true or false, found"):
        as_flag(value, name="dry_run")


@pytest.mark.parametrize("value", [["a b", "c.d"], ("a b", "c.d"), '["a b", "c.d"]'])
def test_names_are_a_list_or_its_json(value: Any) -> None:
    assert as_names(value, name="columns") == ["a b", "c.d"]


@pytest.mark.parametrize("value", [[], "[]", " [] "])
def test_no_names_are_not_nothing(value: Any) -> None:
    assert as_names(value, name="columns") == []


@pytest.mark.parametrize("value", [None, "", "None", "null", "  "])
def test_nothing_means_no_list_of_names(value: Any) -> None:
    assert as_names(value, name="columns") is None


@pytest.mark.parametrize("value", ["id", '"id"', "['id']", '{"id": 1}', [1], "[null]", 7])
def test_what_is_no_list_of_names_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="columns: expected a list of names such as"):
        as_names(value, name="columns")
