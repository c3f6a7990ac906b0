from __future__ import annotations

import re

import pytest

from airflow_delta.engine.errors import InvalidTableError
from airflow_delta.engine.model.sql_names import split_names, sql_name


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", []),
        (" \n", []),
        ("a", [("a",)]),
        (" a . b ,c ", [("a", "b"), ("c",)]),
        ("é1", [("é1",)]),
        ("a, b.c ,d", [("a",), ("b", "c"), ("d",)]),
        ("`d,e`, `f.g`.h", [("d,e",), ("f.g", "h")]),
        ("`a``b` , `c d`", [("a`b",), ("c d",)]),
    ],
)
def test_names_between_commas(text: str, names: list[tuple[str, ...]]) -> None:
    assert split_names(text) == names


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        (("a", "b_1"), "a.b_1"),
        (("a b", "c.d"), "`a b`.`c.d`"),
        (("a`b",), "`a``b`"),
        (("1",), "`1`"),
        (("é",), "`é`"),
    ],
)
def test_a_name_and_its_parts(parts: tuple[str, ...], text: str) -> None:
    assert sql_name(parts) == text
    assert split_names(text) == [parts]


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("my col", "my col"),
        ("a, `x", " `x"),
        ("a`b", "a`b"),
        ("`a`b", "`a`b"),
        ("``", "``"),
        ("a..b", ".b"),
        ("a,,b", ",b"),
        (",a", ",a"),
        ("a,", ""),
        ("a.", ""),
        ("a-b", "a-b"),
        ("a, b;", " b;"),
    ],
)
def test_what_is_no_list_of_names(text: str, rest: str) -> None:
    with pytest.raises(InvalidTableError, match=re.escape(f"{text!r} is no list") + ".*") as error:
        split_names(text)
    assert f"at {rest!r}: expected names separated by commas" in error.value.message
