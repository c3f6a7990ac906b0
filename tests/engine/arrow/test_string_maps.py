"""`map_from_struct` against the maps that `json.loads` gives."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from airflow_delta.engine.arrow.action_schema import STRING_MAP
from airflow_delta.engine.arrow.python_arrays import array_of
from airflow_delta.engine.arrow.string_maps import map_from_struct


def convert(maps: list[dict[str, Any] | None], text: str) -> list[dict[str, Any] | None] | None:
    """What becomes of the struct that the JSON reader makes of the maps of a text's lines."""
    keys = list(dict.fromkeys(key for item in maps for key in item or ()))
    struct = array_of(maps, pa.struct([(key, pa.string()) for key in keys]))
    array = map_from_struct(struct, text=memoryview(text.encode()))
    if array is None:
        return None
    assert array.type == STRING_MAP
    array.validate(full=True)
    return [None if item is None else dict(item) for item in array.to_pylist()]


def text_of(maps: list[dict[str, Any] | None], **layout: Any) -> str:
    return "\n".join(json.dumps({"add": {"m": item}}, **layout) for item in maps)


@pytest.mark.parametrize(
    "maps",
    [
        [],
        [{}, {}],
        [None, {}, None],
        [{"p": "1"}, {"p": "2"}],
        [{"p": "1"}, None, {"p": "2"}],
        [{"p": "1", "q": "x"}, {"p": "2", "q": "y"}],
        [{"p": "1", "q": "x"}, {"p": "2"}, {"q": "z"}, {}],
        [{"p": None}, {"p": "1"}],
        [{"p": None}, {"p": None}],
        [{"p": None, "q": "1"}, {"p": "2", "q": None}, None],
        [{"é": None}, {"é": "1"}],
        [{"p": "null"}, {"q": '"p":null'}],
    ],
)
@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
@pytest.mark.parametrize("ensure_ascii", [True, False])
def test_the_map_says_what_the_json_says(
    maps: list[dict[str, Any] | None], separators: tuple[str, str], ensure_ascii: bool
) -> None:
    text = text_of(maps, separators=separators, ensure_ascii=ensure_ascii)
    assert convert(maps, text) == maps


@pytest.mark.parametrize(
    "text",
    [
        '{"add":{"m":{"p":\tnull,"q":"1"}}}\n{"add":{"m":{"p":"1"}}}',
        '{"add":{"m":{"p" :null,"q":"1"}}}\n{"add":{"m":{"p":"1"}}}',
        '{"add":{"m":{"p":  null,"q":"1"}}}\n{"add":{"m":{"p":"1"}}}',
        '{"add":{"m":{"\\u0070":null,"q":"1"}}}\n{"add":{"m":{"p":"1"}}}',
        '{"add":{"m":{"p":null}}}\n{"add":{"m":{}}}\n{"add":{"m":{"p":"1"}}}',
        '{"add":{"m":{"\\u00E9":null}}}\n{"add":{"m":{"é":"1"}}}',
    ],
)
def test_where_counting_proves_nothing_the_lines_must_be_asked(text: str) -> None:
    maps = [json.loads(line)["add"]["m"] for line in text.split("\n")]
    assert convert(maps, text) is None
