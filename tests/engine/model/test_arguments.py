"""What is said of arguments of the wrong kind."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.engine.model.arguments import check_list, check_mapping, check_text, check_texts


@pytest.mark.parametrize("value", [3, b"x", ["x"]])
@pytest.mark.parametrize("optional", [True, False])
def test_what_is_no_text_is_refused(value: Any, optional: bool) -> None:
    check_text("name", "", optional=optional)
    expected = "a text or None" if optional else "a text"
    with pytest.raises(InvalidArgumentError) as caught:
        check_text("name", value, optional=optional, table="tbl")
    found = f"the {type(value).__name__} {value!r}"
    assert str(caught.value) == f"tbl: name: expected {expected}, found {found}"


def test_the_message_names_none() -> None:
    check_text("name", None, optional=True)
    with pytest.raises(InvalidArgumentError, match=r"^name: .*, found None$"):
        check_text("name", None)


@pytest.mark.parametrize("value", ["ab", b"ab", {"a": 1}, 3, None])
def test_a_list_is_no_text_and_no_mapping(value: Any) -> None:
    fine: Any
    for fine in ([], (), {"a"}, iter("ab")):
        check_list("names", fine, "a list")
    with pytest.raises(InvalidArgumentError, match=r"^names: expected a list, found "):
        check_list("names", value, "a list")


def test_a_list_of_texts() -> None:
    assert check_texts("names", iter("ab"), "a list") == ("a", "b")
    with pytest.raises(InvalidArgumentError, match=r"^names\[1\]: .* a text, found the int 3$"):
        check_texts("names", ["a", 3], "a list")  # type: ignore[list-item]


def test_a_mapping_has_texts_as_keys() -> None:
    check_mapping("options", {"a": 1}, "a mapping")
    with pytest.raises(InvalidArgumentError, match=r"^options: .*, found the list \['a'\]$"):
        check_mapping("options", ["a"], "a mapping")
    with pytest.raises(InvalidArgumentError, match=r"^the keys of options: .* found the int 3$"):
        check_mapping("options", {"a": 1, 3: 2}, "a mapping")


def test_what_is_long_is_cut_and_what_has_lines_is_one() -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        check_text("name", list(range(1000)))
    assert len(caught.value.message) < 150

    class Lines:
        def __repr__(self) -> str:
            return "a\n  b"

    with pytest.raises(InvalidArgumentError, match=r"found the Lines a b$"):
        check_text("name", Lines())
