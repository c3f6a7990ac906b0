"""What ``_last_checkpoint`` repeats of a V2 checkpoint spares reading it, and is never an authority."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from airflow_delta.engine.log.last_checkpoint import LastCheckpointHint
from airflow_delta.engine.storage.memory import MemoryStorage
from tests.log_builder import add, metadata, remove
from tests.table_builder import (
    Action,
    Files,
    MemoryTable,
    commits,
    state_of,
    states,
    v2_checkpoint,
)

V2 = {
    "protocol": {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["v2Checkpoint"],
        "writerFeatures": ["v2Checkpoint"],
    }
}
HISTORY: list[list[Action]] = [
    [V2, metadata(), add("a"), add("b")],
    [
        add("c"),
        remove("a", deletionTimestamp=4_000_000_000_000),
        {"txn": {"appId": "app", "version": 3}},
    ],
    [add("d")],
]
TOP = f"_delta_log/{1:020}.checkpoint.{uuid.UUID(int=1)}.json"
HINT = "_delta_log/_last_checkpoint"


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that are read, in whatever way."""
    paths: list[str] = []
    for name in ("read", "open"):
        method = getattr(MemoryStorage, name)

        def noted(
            self: Any, path: str, *args: Any, _method: Callable[..., Any] = method, **kwargs: Any
        ) -> Any:
            paths.append(path)
            return _method(self, path, *args, **kwargs)

        monkeypatch.setattr(MemoryStorage, name, noted)
    return paths


def files(*, sidecars: int = 2) -> Files:
    return {
        **commits(HISTORY),
        **v2_checkpoint(states(HISTORY)[1], 1, form="json", sidecars=sidecars),
    }


def embedding(table: Files) -> LastCheckpointHint:
    """The hint as Delta Spark writes it for the checkpoint."""
    actions = [json.loads(line) for line in table[TOP].splitlines()]
    content = {
        "path": TOP.rpartition("/")[2],
        "sizeInBytes": len(table[TOP]),
        "modificationTime": 1,
        "nonFileActions": [action for action in actions if "sidecar" not in action],
        "sidecarFiles": [action["sidecar"] for action in actions if "sidecar" in action],
    }
    return LastCheckpointHint(version=1, size=9, v2_checkpoint=content)


def changed(hint: LastCheckpointHint, **content: Any) -> LastCheckpointHint:
    assert hint.v2_checkpoint is not None
    return replace(hint, v2_checkpoint={**hint.v2_checkpoint, **content})


def test_the_top_level_is_not_read(opened: list[str]) -> None:
    table = files()
    table[HINT] = embedding(table).to_json().encode()
    with MemoryTable(table) as stored:
        snapshot = stored.delta().snapshot()
        found = state_of(snapshot)
    assert found == states(HISTORY)[2]
    assert snapshot.segment.checkpoint is not None
    assert snapshot.segment.checkpoint.path == TOP
    assert TOP not in opened
    assert sum("/_sidecars/" in path for path in opened) > 0


def test_opening_costs_the_hint_and_the_commits_alone(opened: list[str]) -> None:
    table = files()
    table[HINT] = embedding(table).to_json().encode()
    with MemoryTable(table) as stored:
        opened.clear()
        snapshot = stored.delta().snapshot()
        assert snapshot.protocol.reader_features == {"v2Checkpoint"}
        assert snapshot.transactions["app"].version == 3
        assert opened == [HINT]  # commits are read by `read_many`


@pytest.mark.parametrize(
    "stale",
    [
        lambda hint: changed(hint, path=TOP.replace(str(uuid.UUID(int=1)), str(uuid.UUID(int=9)))),
        lambda hint: changed(hint, sizeInBytes=1),
        lambda hint: changed(hint, nonFileActions=None),
        lambda hint: changed(hint, sidecarFiles=[]),
        lambda hint: changed(hint, sidecarFiles=["a.parquet"]),
        lambda hint: changed(hint, nonFileActions=["protocol"]),
        lambda hint: changed(hint, nonFileActions=hint.v2_checkpoint["nonFileActions"][1:]),
    ],
    ids=["uuid", "size", "no actions", "no sidecars", "text", "texts", "without metadata"],
)
def test_content_of_another_file_or_broken_content_is_ignored(
    stale: Callable[[LastCheckpointHint], LastCheckpointHint], opened: list[str]
) -> None:
    table = files()
    table[HINT] = stale(embedding(table)).to_json().encode()
    with MemoryTable(table) as stored:
        assert state_of(stored.delta().snapshot()) == states(HISTORY)[2]
    assert TOP in opened


def test_content_without_a_checksum_is_ignored(opened: list[str]) -> None:
    table = files()
    fields = json.loads(embedding(table).to_json())
    del fields["checksum"]
    table[HINT] = json.dumps(fields).encode()
    with MemoryTable(table) as stored:
        assert state_of(stored.delta().snapshot()) == states(HISTORY)[2]
    assert TOP in opened


@pytest.mark.filterwarnings("error")
def test_where_the_content_cannot_be_used_the_file_itself_decides(opened: list[str]) -> None:
    table = files()
    gone = {"path": "gone.parquet", "sizeInBytes": 1, "modificationTime": 1}
    table[HINT] = changed(embedding(table), sidecarFiles=[gone]).to_json().encode()
    with MemoryTable(table) as stored:
        assert state_of(stored.delta().snapshot()) == states(HISTORY)[2]
    assert TOP in opened


def test_file_actions_in_the_top_level_are_read_there() -> None:
    table = files(sidecars=0)
    table[HINT] = embedding(table).to_json().encode()
    with MemoryTable(table) as stored:
        assert state_of(stored.delta().snapshot()) == states(HISTORY)[2]
