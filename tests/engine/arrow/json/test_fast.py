"""The fast reader gives up rather than lose anything, and learns from what it meets."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_delta.engine.arrow.action_schema import ADD_FIELDS
from airflow_delta.engine.arrow.json.fast import ActionShape, read_columns

ADD = {"path": "a", "size": 1, "tags": {"t": "x"}}


def read(text: str, shape: ActionShape) -> list[Any] | None:
    rows = text.count("\n") + 1
    columns = read_columns(memoryview(text.encode()), shape, rows=rows, fields=ADD_FIELDS)
    return columns and [column.to_pylist() for column in columns]


def learnt(*actions: dict[str, Any]) -> ActionShape:
    shape = ActionShape("add")
    shape.learn(actions)
    return shape


def test_what_was_learnt_can_be_read() -> None:
    text = json.dumps({"add": ADD})
    assert read(text, ActionShape("add")) is None
    columns = read(text, learnt(ADD))
    assert columns is not None
    assert dict(zip(ADD_FIELDS, columns, strict=True)) == {
        **{name: [None] for name in ADD_FIELDS},
        "path": ["a"],
        "size": [1],
        "tags": [[("t", "x")]],
    }


def test_learning_says_whether_it_changed_anything() -> None:
    shape = learnt(ADD)
    assert not shape.learn([ADD, {"path": "b"}])
    assert shape.learn([{"tags": {"u": "y"}}])
    assert shape.learn([{"novel": 1.5}])
    assert not shape.learn([{"nested": {"a": 1}}, {"tags": "not a map"}])


@pytest.mark.parametrize(
    "text",
    [
        '{"add":{"path":"a","tags":{"new":"x"}}}',
        '{"add":{"path":"a","new":1}}',
        '{"add":{"path":"a"},"protocol":{}}',
        '{"add":{"path":"a"},"protocol":null}',
        '{"add":{"path":"a","path":"b"}}',
        '{"add":{"path":"a","size":5.0}}',
        '{"add":{"size":5}}',
        '{"add":null}',
        '{"add":{"path":"a"}}{"add":{"path":"b"}}',
        '{"add":{"path":"a","tags":{"t":null}}}\n{"add":{"path":"a","tags":{}}}',
        '{"add":{"path":"a","deletionVector":{"storageType":"u"}}}',
        '{"add":{"path":"\\ud800"}}',
        '{"add":{"path":"a"',
    ],
)
def test_what_might_be_lost_is_left_to_the_exact_path(text: str) -> None:
    assert read(text, learnt(ADD, {"deletionVector": {}})) is None
