from __future__ import annotations

import pytest

from airflow_delta.engine.model.sql_names import split_names, sql_name


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a", [("a",)]),
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
