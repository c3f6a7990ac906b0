"""A commit that takes more memory to parse than there is ends in an error that names it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_delta.engine.arrow.json.non_file_actions import find_non_file_actions
from airflow_delta.engine.arrow.json.reader import parse_commits, stream_commits
from airflow_delta.engine.errors import StorageError
from airflow_delta.engine.log.commit_file import read_commit_info
from airflow_delta.engine.storage.local import LocalStorage
from tests.attacks.limited import run_limited
from tests.log_builder import add, commit_path, metadata, write_table
from tests.table_builder import MemoryTable, commits, lines, states, v2_checkpoint

MARK = "too large for this test"
COMMITS = [(4, lines([add("a")])), (5, lines([add("b"), {"txn": {"appId": MARK, "version": 1}}]))]
V2 = {"minReaderVersion": 3, "minWriterVersion": 7}
V2 |= {"readerFeatures": ["v2Checkpoint"], "writerFeatures": ["v2Checkpoint"]}  # type: ignore[dict-item]


@pytest.fixture
def no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """JSON with the mark in it takes more memory than there is."""
    decode: Callable[..., Any] = json.JSONDecoder.raw_decode

    def exhausted(self: json.JSONDecoder, text: str, idx: int = 0) -> Any:
        if MARK in text:
            raise MemoryError
        return decode(self, text, idx)

    monkeypatch.setattr(json.JSONDecoder, "raw_decode", exhausted)


@pytest.mark.parametrize(
    "parse",
    [
        lambda: parse_commits(COMMITS, table="t"),
        lambda: parse_commits(COMMITS, table="t", small=True),
        lambda: list(stream_commits(reversed(COMMITS), lambda parsed: parsed, table="t")),
        lambda: find_non_file_actions(COMMITS, kinds=("txn",), table="t"),
        lambda: find_non_file_actions(COMMITS, kinds=("txn",), table="t", is_long=True),
    ],
    ids=["columns", "by line", "newest first", "search", "scan"],
)
@pytest.mark.usefixtures("no_memory")
def test_every_parser_names_the_commit(parse: Callable[[], object]) -> None:
    with pytest.raises(
        StorageError, match=r"5\.json' failed: .* memory once it is parsed"
    ) as caught:
        parse()
    assert caught.value.path == f"_delta_log/{5:020}.json"
    assert caught.value.version == 5
    assert caught.value.table == "t"
    assert isinstance(caught.value.__cause__, MemoryError)


@pytest.mark.parametrize("before", [0, 10_000], ids=["in the head", "behind the head"])
@pytest.mark.usefixtures("no_memory")
def test_the_commit_info_is_read_so_as_well(tmp_path: Path, before: int) -> None:
    info = {"commitInfo": {"operation": MARK}}
    write_table(tmp_path, [], [add("x" * 100)] * (before // 100) + [info])
    with pytest.raises(StorageError, match="memory once it is parsed") as caught:
        read_commit_info(LocalStorage(str(tmp_path)), 1)
    assert caught.value.path == f"_delta_log/{1:020}.json"


@pytest.mark.parametrize("kind", ["metaData", "add"])
@pytest.mark.usefixtures("no_memory")
def test_a_checkpoint_in_json_is_named(kind: str) -> None:
    described = metadata()
    described["metaData"]["description"] = MARK if kind == "metaData" else ""
    # A boolean among the tags makes the reader take the line by itself.
    marked = add("b", tags={"x": MARK, "y": True}) if kind == "add" else add("b")
    history = [[{"protocol": V2}, described, marked], [add("c")]]
    files = v2_checkpoint(states(history)[1], 1, form="json", sidecars=0)
    with MemoryTable({**commits(history[:1]), **files}) as table:
        (path,) = files
        with pytest.raises(StorageError, match="memory once it is parsed") as caught:
            table.delta().snapshot().files()
        assert caught.value.path == path


@pytest.mark.parametrize("kind", ["add", "metaData", "txn", "commitInfo"])
def test_in_a_process_with_little_memory_it_is_an_answer_or_a_typed_error(
    tmp_path: Path, kind: str
) -> None:
    """Of escapes of six bytes each, as a control character takes in JSON."""
    text = "\x1b" * 6_000_000
    action: dict[str, Any] = {
        "add": add("c", stats='{"numRecords":1,"minValues":{"id":"' + text + '"}}'),
        "metaData": {"metaData": {**metadata()["metaData"], "description": text}},
        "txn": {"txn": {"appId": text, "version": 1}},
        "commitInfo": {"commitInfo": {"operation": "x", "operationParameters": {"p": text}}},
    }[kind]
    action = action if kind in action else {kind: action}
    write_table(tmp_path, [add("a")], [add("b"), action, action])
    size = commit_path(tmp_path, 1).stat().st_size
    code = """
import resource, sys
import airflow_delta.engine.arrow.json.reader
import airflow_delta.engine.maintenance.check.checking, pyarrow.parquet
from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import StorageError
root, size = sys.argv[1], int(sys.argv[2])
with open("/proc/self/statm") as file:
    now = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (now + size * 5 // 4,) * 2)
table = DeltaTable(root)
for ask in (table.snapshot, table.history, lambda: table.snapshot().files(), table.checkpoint):
    try:
        ask()
        print("answer")
    except StorageError as error:
        assert "doesn't fit into memory" in str(error), error
        print(error.path)
"""
    allowed = {"answer", f"_delta_log/{1:020}.json"}
    said = run_limited(code, str(tmp_path), str(size)).split()
    assert len(said) == 4
    assert {*said} <= allowed
    assert f"_delta_log/{1:020}.json" in said
