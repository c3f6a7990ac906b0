"""Every ``_last_checkpoint`` there can be, over every kind of log it can stand in.

It is a hint: whatever it says, each version comes out as the commits tell it.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from airflow_delta.engine.errors import DeltaWarning
from tests.log_builder import PROTOCOL, add, metadata, remove
from tests.table_builder import (
    FAR_FUTURE_MS,
    Files,
    MemoryTable,
    classic_checkpoint,
    commit_file,
    commits,
    multipart_checkpoint,
    state_of,
    states,
    v2_checkpoint,
)

PATH = "_delta_log/_last_checkpoint"
HISTORY = [
    [PROTOCOL, metadata(), add("a"), add("b")],
    [add("c"), {"txn": {"appId": "app", "version": 1}}],
    [remove("a", deletionTimestamp=FAR_FUTURE_MS)],
    [add("a", size=7)],
    [add("d")],
]
LAST, MIDDLE = 4, 2
STATES = [state.visible() for state in states(HISTORY)]

LOGS: dict[str, Files] = {
    "commits": commits(HISTORY),
    "classic": commits(HISTORY) | classic_checkpoint(STATES[MIDDLE], MIDDLE),
    "parts": commits(HISTORY) | multipart_checkpoint(STATES[MIDDLE], MIDDLE, parts=2),
    "v2": commits(HISTORY) | v2_checkpoint(STATES[MIDDLE], MIDDLE, form="json", sidecars=2),
    "two": commits(HISTORY)
    | classic_checkpoint(STATES[MIDDLE], MIDDLE)
    | classic_checkpoint(STATES[LAST], LAST),
}
# After a cleanup the oldest version is that of the checkpoint.
for name in ("parts", "v2"):
    LOGS[name] = {path: c for path, c in LOGS[name].items() if path >= commit_file(MIDDLE)[:-5]}


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """PROTOCOL.md, "JSON checksum": every leaf, as its path and its value."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, f'{path}{"+" if path else ""}"{quote(key, safe="-._~")}"')
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from leaves(item, f"{path}+{index}")
    else:
        yield (
            path,
            f'"{quote(value, safe="-._~")}"' if isinstance(value, str) else json.dumps(value),
        )


def with_checksum(fields: dict[str, Any], *, by_path: bool) -> bytes:
    """A hint with its checksum; Spark sorts the whole entries, the specification by path."""
    found = list(leaves(fields))
    entries = (
        [f"{path}={value}" for path, value in sorted(found)]
        if by_path
        else sorted(f"{path}={value}" for path, value in found)
    )
    digest = hashlib.md5(",".join(entries).encode()).hexdigest()
    return json.dumps({**fields, "checksum": digest}).encode()


def plain(version: int, **more: Any) -> bytes:
    return json.dumps({"version": version, "size": 5, **more}).encode()


ELEVEN = {
    "version": MIDDLE,
    "size": 5,
    "v2Checkpoint": {
        "path": "another.checkpoint",
        "nonFileActions": [{"protocol": {"writerFeatures": [*"abcdefghijk"]}}],
    },
}
HUGE = {
    "type": "struct",
    "fields": [
        {"name": f"column{n}", "type": "long", "nullable": True, "metadata": {}} for n in range(500)
    ],
}

HINTS: dict[str, bytes | None] = {
    "absent": None,
    "empty": b"",
    "blank": b"\n \n",
    "torn": b"{bad",
    "right": plain(MIDDLE),
    "garbage in the second line": plain(MIDDLE) + b"\n{bad",
    "past the end": plain(99),
    "of a checkpoint that is gone": plain(1),
    "of a version without a checkpoint": plain(3),
    "of the last version": plain(LAST),
    "wrong checksum": plain(MIDDLE, checksum="0" * 32),
    "checksum by path": with_checksum(ELEVEN, by_path=True),
    "checksum by entry": with_checksum(ELEVEN, by_path=False),
    "schema left out": with_checksum({"version": MIDDLE, "size": 5}, by_path=True),
    "huge schema": plain(MIDDLE, checkpointSchema=HUGE),
    "unknown fields": plain(MIDDLE, tomorrow={"a": [1, None]}, checkpointSchema=None),
    "two parts": plain(MIDDLE, parts=2),
    "three parts": plain(MIDDLE, parts=3),
    "no parts": plain(MIDDLE, parts=0),
    "other totals": plain(MIDDLE, sizeInBytes=1, numOfAddFiles=10**9),
    "not UTF-8": b'{"version":2,"size":5,"tags":{"a":"\xff"}}',
    "no object": b"[2]",
    "nested deeply": b'{"version":2,"size":5,"tags":{"a":' + b"[" * 100_000,
    "nested deeply, with a checksum": plain(
        MIDDLE, checksum="0" * 32, tags={"a": json.loads("[" * 900 + "]" * 900)}
    ),
}


@pytest.fixture(params=HINTS)
def hint(request: pytest.FixtureRequest) -> Files:
    content = HINTS[request.param]
    return {} if content is None else {PATH: content}


def test_the_checksums_of_the_two_orders_differ() -> None:
    assert HINTS["checksum by path"] != HINTS["checksum by entry"]


@pytest.mark.filterwarnings("ignore:.*_last_checkpoint is ignored")
@pytest.mark.parametrize("log", LOGS)
def test_no_hint_changes_what_is_read(log: str, hint: Files) -> None:
    with MemoryTable(LOGS[log] | hint) as table:
        assert table.delta().latest_version() == LAST
        newest = table.delta().snapshot()
        assert (newest.version, state_of(newest)) == (LAST, STATES[LAST])
        older = table.delta().snapshot(version=MIDDLE)
        assert state_of(older) == STATES[MIDDLE]


@pytest.mark.filterwarnings("ignore:.*_last_checkpoint is ignored")
@pytest.mark.parametrize("log", ["commits", "classic"])
def test_a_new_checkpoint_puts_the_hint_right(log: str, hint: Files) -> None:
    with MemoryTable(LOGS[log] | hint) as table:
        assert table.delta().checkpoint().written
        assert json.loads(table.storage.read(PATH))["version"] == LAST
        with warnings.catch_warnings():
            warnings.simplefilter("error", DeltaWarning)
            assert table.delta().snapshot().num_files == len(STATES[LAST].files)
