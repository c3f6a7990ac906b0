from __future__ import annotations

import pytest

from airflow_delta.engine.errors import CorruptLogError
from airflow_delta.engine.model.json_fields import (
    json_object,
    nullable_string_map,
    optional,
    optional_strings,
    required,
    required_string_map,
    string_map,
)

WHERE = "commit 7, line 3: add"


@pytest.mark.parametrize(
    ("value", "kind"),
    [("x", str), ("", str), (0, int), (2**63 - 1, int), (-(2**63), int), (False, bool)],
)
def test_a_value_of_the_right_type_is_returned(value: object, kind: type) -> None:
    assert required({"k": value}, "k", kind, WHERE) is value
    assert optional({"k": value}, "k", kind, WHERE) is value


@pytest.mark.parametrize(
    ("value", "kind", "found"),
    [
        (True, int, "found true"),
        (1, bool, "found the number 1"),
        (1.0, int, r"found the number 1\.0"),
        ("12", int, 'found the string "12"'),
        (2**63, int, "expected a 64-bit integer, found the number 9223372036854775808"),
        (12, str, "expected a string, found the number 12"),
        ([], str, r"found the array \[\]"),
        ({}, str, "found the object {}"),
    ],
)
def test_a_value_of_another_type_is_refused(value: object, kind: type, found: str) -> None:
    with pytest.raises(CorruptLogError, match=rf"commit 7, line 3: add\.k: .*{found}") as caught:
        optional({"k": value}, "k", kind, WHERE)
    assert caught.value.where == WHERE


@pytest.mark.parametrize("obj", [{}, {"k": None}])
def test_null_is_like_absent(obj: dict[str, object]) -> None:
    assert optional(obj, "k", str, WHERE) is None
    assert optional_strings(obj, "k", WHERE) is None
    assert nullable_string_map(obj, "k", WHERE) is None
    assert string_map(obj, "k", WHERE) == {}
    with pytest.raises(CorruptLogError, match=r"add\.k: expected a string, .* is required"):
        required(obj, "k", str, WHERE)
    with pytest.raises(CorruptLogError, match=r"add\.k: expected an object .* is required"):
        required_string_map(obj, "k", WHERE)


def test_string_maps() -> None:
    obj = {"k": {"a": "1", "b": None, "c": ""}}
    assert nullable_string_map(obj, "k", WHERE) == {"a": "1", "b": None, "c": ""}
    assert required_string_map(obj, "k", WHERE) == {"a": "1", "b": None, "c": ""}
    assert string_map(obj, "k", WHERE) == {"a": "1", "c": ""}


def test_a_map_with_another_value_names_the_entry() -> None:
    with pytest.raises(CorruptLogError, match=r"add\.k\['b'\]: expected a string, found the num"):
        string_map({"k": {"a": "1", "b": 2}}, "k", WHERE)
    with pytest.raises(CorruptLogError, match=r"add\.k: expected an object .* the array"):
        string_map({"k": [["a", "1"]]}, "k", WHERE)


def test_arrays_of_strings() -> None:
    assert optional_strings({"k": ["b", "a", "b"]}, "k", WHERE) == ("b", "a", "b")
    for wrong in ("ab", {"a": 1}, ["a", None], ["a", 1]):
        with pytest.raises(CorruptLogError, match="expected an array of strings"):
            optional_strings({"k": wrong}, "k", WHERE)


def test_json_object() -> None:
    assert json_object({"a": 1}, WHERE) == {"a": 1}
    with pytest.raises(CorruptLogError, match="line 3: add: expected an object, found null"):
        json_object(None, WHERE)


def test_a_long_value_is_cut_in_the_message() -> None:
    with pytest.raises(CorruptLogError) as caught:
        required({"k": "x" * 10_000}, "k", int, WHERE)
    assert len(str(caught.value)) < 300
