"""The lines of a compaction: the newest of each thing, as it stood, and every removal."""

from __future__ import annotations

import json
import warnings
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_delta.engine.arrow.json.lines import SLICE_BYTES
from airflow_delta.engine.errors import CorruptLogError, DeltaWarning
from airflow_delta.engine.log.compacted import pledged
from airflow_delta.engine.maintenance.log_compaction.content import reconcile_lines
from tests.laws.histories import histories
from tests.log_builder import PROTOCOL, add, metadata, remove
from tests.table_builder import Action, lines, replay

LONG_AGO = 1
VECTORS = [
    {"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "offset": n,
     "sizeInBytes": 40, "cardinality": 6}
    for n in (1, 4)
]  # fmt: skip


def reconciled(*commits: list[Action] | bytes, start: int = 1) -> list[bytes]:
    """The lines that commits come to, without the pledge."""
    contents = [
        (start + number, commit if isinstance(commit, bytes) else lines(commit))
        for number, commit in enumerate(commits)
    ]
    end = start + len(commits) - 1
    found = reconcile_lines(contents, start=start, end=end, table="memory://t")
    _, *rest, after = found.text.split(b"\n")
    assert after == b""
    assert found.text == pledged(start, end, rest, lines=len(rest))
    assert found.count == len(rest)
    return rest


def actions(*commits: list[Action] | bytes) -> list[Any]:
    return [json.loads(line) for line in reconciled(*commits)]


def test_the_example_of_the_specification() -> None:
    app = "3ae45b72-24e1-865a-a211-34987ae02f2a"
    found = actions(
        [{"commitInfo": {}}, add("f2"), remove("f1")],
        [{"commitInfo": {}}, add("f3"), add("f4"), {"txn": {"appId": app, "version": 4389}}],
        [{"commitInfo": {}}, remove("f3"), {"txn": {"appId": app, "version": 4390}}],
    )
    expected = [
        add("f2"),
        add("f4"),
        remove("f1"),
        remove("f3"),
        {"txn": {"appId": app, "version": 4390}},
    ]
    assert sorted(map(json.dumps, found)) == sorted(map(json.dumps, expected))


def test_every_removal_is_kept_however_old() -> None:
    """Other engines lose such removes: their add is before the range."""
    removals = [
        remove("f", deletionTimestamp=LONG_AGO),
        {"remove": {"path": "undated", "dataChange": True}},
        remove("g", deletionVector=VECTORS[0], deletionTimestamp=LONG_AGO),
        {"domainMetadata": {"domain": "d", "configuration": "", "removed": True}},
    ]
    assert actions([add("h")], [*removals, add("g", deletionVector=VECTORS[1])]) == [
        add("h"),
        *removals,
        add("g", deletionVector=VECTORS[1]),
    ]


def test_lines_are_kept_unchanged() -> None:
    odd = [
        b'{ "add" : {"path":"a","future":{"n":1.50},"size":1e3,"path":"b", "partitionValues":{}}}',
        '{"txn":{"appId":"ü\\u00fc","version":5,"more":[]},"future":7}'.encode(),
        b'{"metaData":{"id":"x","later":null}}',
    ]
    assert reconciled(b"\xef\xbb\xbf\r\n\r\n" + b"\r\n".join(odd), b"{}") == [
        line + b"\r" * (number < 2) for number, line in enumerate(odd)
    ]


def test_what_is_no_part_of_the_state_is_left_out() -> None:
    cdc = {"path": "_change_data/x", "partitionValues": {}, "size": 1, "dataChange": False}
    left_out = [
        {"commitInfo": {"operation": "WRITE"}},
        {"cdc": cdc},
        {"sidecar": {"path": "x", "sizeInBytes": 1, "modificationTime": 1}},
        {"novelty": {"path": "a"}},
        {},
        {"add": None},
    ]
    assert actions(left_out) == []
    # The pledge of a compaction itself is such an action.
    assert actions(pledged(1, 1, [], lines=0)) == []


def test_the_newest_wins_also_where_versions_go_down() -> None:
    first = [PROTOCOL, metadata(), {"txn": {"appId": "a", "version": 9}}]
    second = [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 1}},
        metadata(configuration={"k": "v"}),
        {"txn": {"appId": "a", "version": 3}},
    ]
    assert actions(first, second) == second


@pytest.mark.parametrize("big", [1, 3])
def test_lines_are_found_across_slices(big: int) -> None:
    stats = "x" * (SLICE_BYTES // 4)
    commits = [
        [add(f"{number}.{n}", stats=stats) for n in range(3)] + [remove(f"{number - 1}.0")]
        for number in range(big)
    ]
    found = actions(*commits, [add("small")])
    paths = [next(iter(action.values()))["path"] for action in found]
    last = big - 1
    assert paths == [
        path
        for number in range(big)
        for path in [
            *([f"{number}.0"] if number == last else []),
            f"{number}.1",
            f"{number}.2",
            f"{number - 1}.0",
        ]
    ] + ["small"]


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (b"", "empty"),
        (b"{", "not valid JSON"),
        (b'{"add":{"size":1}}', "add.path"),
        (b'{"txn":{"version":1}}', "appId"),
        (b'{"domainMetadata":{"domain":"d"}}', "commit 1: domainMetadata"),
    ],
)
def test_a_broken_commit_is_an_error(broken: bytes, message: str) -> None:
    with pytest.raises(CorruptLogError, match=message):
        reconciled(broken)


@settings(max_examples=50)
@given(st.data(), histories())
def test_replacing_commits_by_their_compaction_changes_nothing(
    data: st.DataObject, history: list[list[Action]]
) -> None:
    """By brute force: on every state before it, and as a state of its own, removals included."""
    start = data.draw(st.integers(0, len(history) - 1))
    end = data.draw(st.integers(start, len(history) - 1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeltaWarning)
        found = reconciled(*(lines(commit) for commit in history[start : end + 1]), start=start)
    compacted = [json.loads(line) for line in found]
    for before in range(start + 1):
        base = replay(history[:before])
        assert replay([compacted], base) == replay(history[start : end + 1], base)
    keys = [json.dumps(sorted(action)) + json.dumps(action, sort_keys=True) for action in compacted]
    assert len(set(keys)) == len(keys)
