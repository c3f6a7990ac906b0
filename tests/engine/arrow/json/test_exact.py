"""The rules for one line; `test_reader` has the cases of whole commits."""

from __future__ import annotations

import pytest

from airflow_delta.engine.arrow.action_schema import ADD_FIELDS
from airflow_delta.engine.arrow.json.exact import InvalidLineError, file_columns, read_line


@pytest.mark.parametrize(
    "line",
    [b"", b" \t\r", b"{}", b'{"add":null}', b'{"sidecar":{"path":"x"}}', b'{"novel":[1]}'],
)
def test_lines_without_a_known_action(line: bytes) -> None:
    assert read_line(line) is None


def test_white_space_around_a_line() -> None:
    assert read_line(b' \t{"txn" : {"appId":"a"}} \r') == ("txn", {"appId": "a"})


def test_a_value_is_named_in_few_words() -> None:
    with pytest.raises(InvalidLineError, match=r'got "x{39}…$'):
        read_line(b'"' + b"x" * 1000 + b'"')


def test_the_failing_row_is_told_by_number() -> None:
    def failed(number: int, error: InvalidLineError) -> Exception:
        return LookupError(f"row {number}: {error}")

    rows = [{"path": "a", "size": 1}, {"path": "b", "size": 1.5}]
    with pytest.raises(LookupError, match=r"row 1: add\.size: expected an integer of 64 bits"):
        file_columns("add", rows, fields=ADD_FIELDS, failed=failed)
