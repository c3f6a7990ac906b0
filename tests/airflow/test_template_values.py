"""What the arguments of tasks mean."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pytest

from airflow_delta.hooks.failures import ArgumentError
from airflow_delta.operators.template_values import (
    Reader,
    as_bytes,
    as_conf,
    as_hours,
    as_names,
    as_required_location,
    as_required_text,
    as_spark_conf,
    as_text,
    as_timestamp,
    as_version,
    as_version_or_before,
    choice,
    flag,
    location,
    switch,
)

MODE = choice("full", "lite", default="full")


@pytest.mark.parametrize("value", [24, "24", " 24 ", "+24", "024"])
def test_a_version_is_a_number_or_its_text(value: object) -> None:
    assert as_version(value, name="version") == 24


@pytest.mark.parametrize("value", ["24.0", "v24", "latest", "{{ x }}", True, 24.0, "२४", -1, "-1"])
def test_anything_else_is_refused_with_the_name_of_the_argument(value: object) -> None:
    with pytest.raises(ArgumentError, match=r"min_version: expected a version such as 24, found"):
        as_version(value, name="min_version")


@pytest.mark.parametrize("value", [-1, "-1"])
def test_minus_one_is_before_the_first_version(value: object) -> None:
    assert as_version_or_before(value, name="after_version") == -1
    with pytest.raises(ArgumentError, match="found -2"):
        as_version_or_before(-2, name="after_version")


@pytest.mark.parametrize(
    ("read", "meant"),
    [
        (as_bytes, None),
        (as_conf, None),
        (as_hours, None),
        (as_names, None),
        (as_spark_conf, None),
        (as_text, None),
        (as_timestamp, None),
        (as_version, None),
        (as_version_or_before, None),
        (location, None),
        (MODE, "full"),
        (flag(default=False), False),
        (switch(default=True), True),
    ],
)
def test_none_is_the_default_and_an_empty_text_is_nothing_at_all(read: Reader, meant: Any) -> None:
    assert read(None, name="it") == meant
    for nothing in ("", "None", " ", "null"):
        with pytest.raises(ArgumentError, match=r"it: expected .*found '.*pass None"):
            read(nothing, name="it")


@pytest.mark.parametrize("read", [as_required_location, as_required_text])
def test_what_must_be_given_has_no_default(read: Reader) -> None:
    for nothing in (None, "", "None"):
        with pytest.raises(ArgumentError, match=f"it: expected .* found {nothing!r}$"):
            read(nothing, name="it")


@pytest.mark.parametrize("value", [1_700_000_000_000, "1700000000000"])
def test_a_whole_number_is_a_timestamp_in_milliseconds(value: object) -> None:
    assert as_timestamp(value, name="t") == 1_700_000_000_000


def test_a_timestamp_is_iso_8601_with_an_offset() -> None:
    assert as_timestamp(" 2024-01-01T00:00:00+00:00 ", name="t") == "2024-01-01T00:00:00+00:00"
    assert as_timestamp("2024-01-01T00:00:00Z", name="t") == "2024-01-01T00:00:00Z"
    moment = datetime(2024, 1, 1, tzinfo=timezone.utc)
    assert as_timestamp(moment, name="t") == "2024-01-01T00:00:00+00:00"


@pytest.mark.parametrize("value", ["yesterday", "2024-01-01T00:00:00", True, datetime(2024, 1, 1)])
def test_other_times_are_none(value: object) -> None:
    with pytest.raises(ArgumentError, match="t: expected ISO-8601 with an offset"):
        as_timestamp(value, name="t")


@pytest.mark.parametrize(
    ("conf", "meant"),
    [
        ({}, {}),
        ({"backfill": "3"}, {"backfill": "3"}),
        ({"backfill": 3}, {"backfill": 3}),
        ({"backfill": None}, None),
        ({"backfill": None, "endpoint": "x"}, {"endpoint": "x"}),
    ],
)
def test_what_is_none_in_a_configuration_is_left_out(conf: Any, meant: Any) -> None:
    assert as_conf(conf, name="conf") == meant


def test_properties_of_spark_become_texts() -> None:
    conf = {"spark.ui.enabled": False, "spark.x": "", "spark.y": 1, "spark.z": None, "spark.r": 0.5}
    assert as_spark_conf(conf, name="spark_conf") == {
        "spark.ui.enabled": "false",
        "spark.x": "",
        "spark.y": "1",
        "spark.r": "0.5",
    }
    for wrong in ("spark.x=1", [("spark.x", "1")], {1: "x"}):
        with pytest.raises(ArgumentError, match="spark_conf: expected a dictionary of Spark"):
            as_spark_conf(wrong, name="spark_conf")
    with pytest.raises(
        ArgumentError, match=r"spark_conf\['spark.x'\]: expected a text, a number or a boolean"
    ):
        as_spark_conf({"spark.x": ["1"]}, name="spark_conf")


@pytest.mark.parametrize(
    "uri", ["/data/t", "s3://lake/t", "file:/data/t", "file:///t", "memory://t", "a.b::c"]
)
def test_a_location_is_an_absolute_path_or_a_uri(uri: str) -> None:
    assert as_required_location(uri, name="table_uri") == uri


@pytest.mark.parametrize("uri", ["data/t", "./t", "~/t", "None/t", "t", "c:/t", "file:t"])
def test_a_relative_location_is_none(uri: str) -> None:
    with pytest.raises(ArgumentError, match=r"target_uri: expected an absolute path .* a worker"):
        location(uri, name="target_uri")


@pytest.mark.parametrize("uri", [7, ["/t"], b"/t"])
def test_a_location_is_a_text(uri: object) -> None:
    with pytest.raises(ArgumentError, match="target_uri: expected a path or a URI"):
        location(uri, name="target_uri")


@pytest.mark.parametrize("value", [168, 168.0, "168", " 168.0 ", "1.68e2"])
def test_hours_are_a_number_or_its_text(value: Any) -> None:
    assert as_hours(value, name="hours") == 168.0


def test_a_text_is_left_as_it_is() -> None:
    assert as_text(" s3://lake/a b ", name="x") == " s3://lake/a b "
    with pytest.raises(ArgumentError, match="x: expected a text, or None, found 7"):
        as_text(7, name="x")


@pytest.mark.parametrize("value", ["a week", "-1", -0.5, "nan", "inf", True, "1e300", "{{ x }}"])
def test_hours_that_are_none_are_refused(value: Any) -> None:
    with pytest.raises(ArgumentError, match="hours: expected a number of hours such as 168, found"):
        as_hours(value, name="hours")


@pytest.mark.parametrize("value", [True, "True", "true", " TRUE "])
def test_a_flag_is_true_or_its_text(value: Any) -> None:
    assert flag(default=False)(value, name="dry_run") is True


@pytest.mark.parametrize("value", [False, "False", "false"])
def test_a_flag_is_false_or_its_text(value: Any) -> None:
    assert flag(default=True)(value, name="dry_run") is False


@pytest.mark.parametrize("value", ["no", "0", 0, 1, "{{ x }}"])
def test_what_says_neither_is_no_flag(value: Any) -> None:
    with pytest.raises(ArgumentError, match="dry_run: expected true or false, found"):
        flag(default=False)(value, name="dry_run")


@pytest.mark.parametrize("value", ["true", "False", "{{ params.force }}", 0, 1])
def test_an_argument_without_templates_is_true_or_false(value: Any) -> None:
    """Python would take each of these texts for true."""
    with pytest.raises(
        ArgumentError, match=r"force: expected True or False \(it isn't templated\)"
    ):
        switch(default=False)(value, name="force")


@pytest.mark.parametrize("value", ["ful", "Full", 7, ["full"]])
def test_a_choice_is_one_of_its_texts(value: Any) -> None:
    assert MODE("lite", name="mode") == "lite"
    with pytest.raises(ArgumentError, match="mode: expected one of full, lite, found"):
        MODE(value, name="mode")


@pytest.mark.parametrize("value", [["a b", "c.d"], ("a b", "c.d"), '["a b", "c.d"]'])
def test_names_are_a_list_or_its_json(value: Any) -> None:
    assert as_names(value, name="columns") == ["a b", "c.d"]


@pytest.mark.parametrize("value", [[], "[]", " [] "])
def test_no_names_are_not_nothing(value: Any) -> None:
    assert as_names(value, name="columns") == []


@pytest.mark.parametrize("value", ["id", '"id"', "['id']", '{"id": 1}', [1], "[null]", 7])
def test_what_is_no_list_of_names_is_refused(value: Any) -> None:
    with pytest.raises(ArgumentError, match="columns: expected a list of names such as"):
        as_names(value, name="columns")
