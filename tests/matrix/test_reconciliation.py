"""What commits come to, case by case, in every form of the log.

What is expected is told here by hand; `test_commits_by_the_letter` is of the lines of commit files.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from airflow_delta.engine import Snapshot
from airflow_delta.engine.errors import CorruptLogError, DeltaWarning
from tests.log_builder import PROTOCOL, add, metadata, remove
from tests.matrix.log_forms import FORMS
from tests.table_builder import (
    FAR_FUTURE_MS,
    Action,
    Files,
    MemoryTable,
    commit_file,
    commits,
    lines,
)

FEATURES: Action = {
    "protocol": {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["deletionVectors"],
        "writerFeatures": ["deletionVectors", "domainMetadata"],
    }
}
FIRST: list[Action] = [FEATURES, metadata(), add("base")]
VECTOR = {
    "storageType": "u",
    "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^",
    "offset": 1,
    "sizeInBytes": 36,
    "cardinality": 2,
}
OTHER_VECTOR = {**VECTOR, "offset": 45}


def gone(path: str, **fields: Any) -> Action:
    """A tombstone that is kept."""
    return remove(path, **{"deletionTimestamp": FAR_FUTURE_MS, **fields})


def txn(version: int, **fields: Any) -> Action:
    return {"txn": {"appId": "app", "version": version, **fields}}


def domain(configuration: str, *, removed: bool = False) -> Action:
    fields = {"domain": "mine", "configuration": configuration, "removed": removed}
    return {"domainMetadata": fields}


def named(name: str) -> Action:
    action = metadata()
    action["metaData"]["name"] = name
    return action


@dataclass(frozen=True)
class Case:
    """Commits after the first, and what they come to beside the file ``base``.

    Attributes:
        live: paths, with size or deletion vector's offset where the case is about these.
        tombstones: paths that readers still see as removed.
    """

    commits: list[list[Action]]
    live: set[Any] = field(default_factory=set)
    tombstones: set[str] = field(default_factory=set)
    transactions: dict[str, int] = field(default_factory=dict)
    domains: dict[str, str] = field(default_factory=dict)
    name: str | None = None


CASES = {
    "added again after a removal": Case([[add("a")], [gone("a")], [add("a", size=5)]], {("a", 5)}),
    "added again with newer statistics": Case(
        [[add("a", size=4)], [add("a", size=4, stats='{"numRecords":1}', dataChange=False)]],
        {("a", 4)},
    ),
    "removed without having been added": Case([[gone("a")]], tombstones={"a"}),
    "removed without a time": Case([[add("a")], [remove("a", deletionTimestamp=None)]]),
    "removed long ago": Case([[add("a")], [remove("a", deletionTimestamp=1)]]),
    "removed in the future": Case([[add("a")], [gone("a")]], tombstones={"a"}),
    "a new deletion vector": Case(
        [[add("a")], [gone("a"), add("a", deletionVector=VECTOR)]], {("a", 1)}, {"a"}
    ),
    "another deletion vector": Case(
        [
            [add("a", deletionVector=VECTOR)],
            [gone("a", deletionVector=VECTOR), add("a", deletionVector=OTHER_VECTOR, size=9)],
        ],
        {("a", 9)},
        {"a"},
    ),
    "a removal of another deletion vector": Case(
        [[add("a", deletionVector=VECTOR)], [gone("a", deletionVector=OTHER_VECTOR)]],
        {("a", 1)},
        {"a"},
    ),
    "a transaction that goes down": Case([[txn(5)], [txn(3)]], transactions={"app": 3}),
    "a domain set again": Case(
        [[domain("1")], [domain("", removed=True)], [domain("2")]], domains={"mine": "2"}
    ),
    "a domain that is removed": Case([[domain("1")], [domain("", removed=True)]]),
    "metadata twice": Case([[named("one")], [named("two")]], name="two"),
    "nothing": Case([[], [{}]]),
}


def check(snapshot: Snapshot, case: Case) -> None:
    files = {(row["path"], row["size"]) for row in snapshot.files(["path", "size"]).to_pylist()}
    assert files == case.live | {("base", 1)}
    assert set(snapshot.tombstones()["path"].to_pylist()) == case.tombstones
    assert {app: txn.version for app, txn in snapshot.transactions.items()} == case.transactions
    assert {name: d.configuration for name, d in snapshot.domains.items()} == case.domains
    assert snapshot.metadata.name == case.name


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", CASES)
def test_what_commits_come_to(case: str, form: str) -> None:
    told = CASES[case]
    # A commit of no bytes would be an incomplete one.
    history = [FIRST, *[actions or [{}] for actions in told.commits]]
    with MemoryTable(FORMS[form](history)) as table:
        check(table.delta().snapshot(), told)


def test_newer_statistics_take_the_place_of_older_ones() -> None:
    newer = add("base", stats='{"numRecords":7}')
    for form in FORMS.values():
        with MemoryTable(form([FIRST, [newer]])) as table:
            assert table.delta().snapshot().files(["stats"])["stats"].to_pylist() == [
                '{"numRecords":7}'
            ]


@pytest.mark.parametrize(
    ("commit", "live"),
    [
        ([gone("base"), add("base", size=2)], {("base", 2)}),
        ([add("base", size=2), gone("base")], set()),
        ([add("x"), add("x", size=3)], {("base", 1), ("x", 3)}),
        ([add("x"), gone("x"), add("x", size=4)], {("base", 1), ("x", 4)}),
    ],
)
def test_a_contradictory_commit_is_told_of_and_its_last_word_taken(
    commit: list[Action], live: set[Any]
) -> None:
    """The protocol allows one action for each file: engines differ, and so a warning says so."""
    with MemoryTable(commits([FIRST, commit])) as table:
        with pytest.warns(DeltaWarning, match="commit 1 has more than one action for the file"):
            files = table.delta().snapshot().files(["path", "size"])
        assert {(row["path"], row["size"]) for row in files.to_pylist()} == live


ADDED = add("a", partitionValues={}, tags={"k": "é"}, stats='{"numRecords":3}')


def text(*actions: Action) -> bytes:
    return lines(actions)


BY_THE_LETTER: dict[str, tuple[bytes, set[str]]] = {
    "unknown action": (text({"novelty": {"path": "x"}}, ADDED), {"a"}),
    "null in the place of an action": (b'{"add":null}\n{"remove":null}\n{"txn":null}\n', set()),
    "null beside an action": (text({"remove": None, **ADDED}), {"a"}),
    "unknown field": (
        text({"add": {**ADDED["add"], "backReference": {"of": [1]}, "novel": None}}),
        {"a"},
    ),
    "actions that only checkpoints hold": (
        text({"sidecar": {"path": "x"}}, {"checkpointMetadata": {"version": 0}}, ADDED),
        {"a"},
    ),
    "CRLF": (text(ADDED, add("b")).replace(b"\n", b"\r\n"), {"a", "b"}),
    "byte order mark": (b"\xef\xbb\xbf" + text(ADDED, add("b")), {"a", "b"}),
    "byte order mark and CRLF": (
        b"\xef\xbb\xbf" + text(ADDED, add("b")).replace(b"\n", b"\r\n"),
        {"a", "b"},
    ),
    "no line end at the end": (text(ADDED, add("b"))[:-1], {"a", "b"}),
    "blank lines": (b"\n \n" + text(ADDED) + b"\n\n\r\n" + text(add("b")) + b"\n", {"a", "b"}),
    "nothing but a line end": (b"\n", set()),
    "escaped non-ASCII": (json.dumps(add("\u00e9\U0001f600")).encode(), {"\u00e9\U0001f600"}),
    "keys in another order": (
        json.dumps({"add": dict(reversed([*ADDED["add"].items()]))}).encode(),
        {"a"},
    ),
}

READ: dict[str, Callable[[Snapshot], set[str]]] = {
    "paths alone": lambda snapshot: set(snapshot.files(["path"])["path"].to_pylist()),
    "all columns": lambda snapshot: set(snapshot.files()["path"].to_pylist()),
}


@pytest.mark.parametrize("read", READ)
@pytest.mark.parametrize("case", BY_THE_LETTER)
def test_commits_by_the_letter(case: str, read: str) -> None:
    check_commit(*BY_THE_LETTER[case], READ[read])


@pytest.mark.parametrize("read", READ)
def test_a_huge_line_is_read(read: str) -> None:
    """A hundred megabytes of statistics; made here, so that they are held for no longer."""
    huge = add("huge", stats=json.dumps({"x": "y" * 100_000_000}))
    check_commit(text(ADDED, huge, add("b")), {"a", "huge", "b"}, READ[read])


def check_commit(content: bytes, live: set[str], read: Callable[[Snapshot], set[str]]) -> None:
    files: Files = {**commits([FIRST]), commit_file(1): content}
    with MemoryTable(files) as table:
        snapshot = table.delta().snapshot()
        assert snapshot.protocol.writer_features == {"deletionVectors", "domainMetadata"}
        assert read(snapshot) == live | {"base"}
        assert [info.version for info in table.delta().history()] == [1, 0]


def test_a_first_commit_with_a_byte_order_mark_and_crlf_is_read() -> None:
    content = b"\xef\xbb\xbf" + lines([PROTOCOL, metadata(), add("a")]).replace(b"\n", b"\r\n")
    with MemoryTable({commit_file(0): content}) as table:
        snapshot = table.delta().snapshot()
        assert snapshot.metadata.schema_string == metadata()["metaData"]["schemaString"]
        assert READ["all columns"](snapshot) == {"a"}


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (text(ADDED) + b'{"add":{"path":"\xff"}}\n', 2),
        (text(ADDED) + b'{"txn":{"appId":"\xc3\x28","version":1}}\n', 2),
        (b"\xff\xfe{\x00}\x00\n", 1),
    ],
)
def test_bytes_that_are_no_utf8_are_an_error_that_says_where(content: bytes, line: int) -> None:
    with (
        MemoryTable({**commits([FIRST]), commit_file(1): content}) as table,
        pytest.raises(CorruptLogError, match=rf"0001\.json, line {line}") as caught,
    ):
        table.delta().snapshot().files()
    assert caught.value.version == 1
