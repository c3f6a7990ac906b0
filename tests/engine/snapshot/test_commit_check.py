"""The newest commit of a table, looked at with one request."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import (
    CorruptLogError,
    InvalidTableError,
    UnsupportedFeatureError,
    VersionNotFoundError,
)
from airflow_delta.engine.snapshot import commit_check
from airflow_delta.engine.storage.local import LocalStorage
from tests.log_builder import add, commit_path, write_commit, write_table

NEW = {
    "protocol": {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["fromTheFuture"],
        "writerFeatures": ["fromTheFuture"],
    }
}


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return write_table(tmp_path / "t", [add("a")], [add("b")])


def test_a_commit_is_read_with_one_request(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    for name in ("read", "read_many", "head", "list", "walk", "open"):
        real = getattr(LocalStorage, name)

        def counted(*arguments: Any, _real: Any = real, _name: str = name, **named: Any) -> Any:
            calls.append(_name)
            return _real(*arguments, **named)

        monkeypatch.setattr(LocalStorage, name, counted)
    DeltaTable(table).check_commit(1)
    assert calls == ["read"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b'{"add": ', "line 1: not valid JSON"),
        (b'{"commitInfo": {}}\n{"add": ', "line 2: not valid JSON"),
        (b"\xff\xfe", "line 1: expected UTF-8"),
        (b"[]", "expected a JSON object with one action"),
        (b'{"add": {}, "remove": {}}', "expected one action in a line"),
        (b'{"protocol": {"minReaderVersion": "1"}}', "minReaderVersion"),
    ],
)
def test_a_commit_that_is_none_is_refused(table: Path, content: bytes, message: str) -> None:
    commit_path(table, 1).write_bytes(content)
    with pytest.raises(CorruptLogError, match=message) as raised:
        DeltaTable(table).check_commit(1)
    assert f"{1:020}.json" in str(raised.value)
    DeltaTable(table).check_commit(0)


def test_a_protocol_that_the_engine_does_not_know_is_refused(table: Path) -> None:
    write_commit(table, 2, NEW)
    with pytest.raises(UnsupportedFeatureError, match="fromTheFuture"):
        DeltaTable(table).check_commit(2)
    contradiction = {**NEW["protocol"], "minReaderVersion": 1}
    write_commit(table, 3, {"protocol": contradiction})
    with pytest.raises(InvalidTableError):
        DeltaTable(table).check_commit(3)


def test_features_for_writers_and_actions_from_the_future_are_no_hindrance(table: Path) -> None:
    protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["fromTheFuture"]}
    write_commit(table, 2, {"protocol": protocol}, {"fromTheFuture": {"x": 1}})
    DeltaTable(table).check_commit(2)


def test_of_a_large_commit_the_beginning_is_read(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [json.dumps(NEW), *(json.dumps(add(f"f{number}")) for number in range(50))]
    commit_path(table, 2).write_text("\n".join([*lines, "not JSON"]))
    monkeypatch.setattr(commit_check, "_HEAD", len(lines[0]) + 10)
    with pytest.raises(UnsupportedFeatureError, match="fromTheFuture"):
        DeltaTable(table).check_commit(2)
    commit_path(table, 2).write_text("\n".join([*lines[1:], "not JSON"]))
    DeltaTable(table).check_commit(2)
    monkeypatch.undo()
    with pytest.raises(CorruptLogError, match="line 51"):
        DeltaTable(table).check_commit(2)


def test_a_commit_that_a_checkpoint_stands_for_is_no_error(table: Path) -> None:
    DeltaTable(table).checkpoint()
    commit_path(table, 0).unlink()
    commit_path(table, 1).unlink()
    DeltaTable(table).check_commit(1)
    with pytest.raises(VersionNotFoundError):
        DeltaTable(table).check_commit(2)
