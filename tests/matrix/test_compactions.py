"""Log compaction files among commits and checkpoints: none changes a version.

Besides correct ones there are such as known writers make: without the removes and domain tombstones
that had expired.
"""

from __future__ import annotations

import time

import pytest

from tests.log_builder import PROTOCOL, add, metadata, remove
from tests.table_builder import (
    FAR_FUTURE_MS,
    Action,
    Files,
    History,
    MemoryTable,
    State,
    classic_checkpoint,
    commit_file,
    commits,
    file_rows,
    lines,
    replay,
    small_rows,
    state_of,
    states,
)

TEN_DAYS_MS = 10 * 24 * 3600 * 1000
VECTOR = {
    "storageType": "u",
    "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^",
    "offset": 1,
    "sizeInBytes": 36,
    "cardinality": 2,
}


def days_ago() -> int:
    return int(time.time() * 1000) - TEN_DAYS_MS


def compaction_of(history: History, start: int, end: int, *, lossy: bool = False) -> Files:
    """The compaction of a range; a lossy one lacks old removes and removed domains."""
    state = replay(history[start : end + 1])
    rows = file_rows(state)
    removed = [
        {"domainMetadata": {"domain": name, "configuration": "", "removed": True}}
        for name in sorted(state.removed_domains)
    ]
    if lossy:
        now = int(time.time() * 1000)
        rows = [row for row in rows if row.get("remove", {}).get("deletionTimestamp", now) >= now]
        removed = []
    small = [] if state.protocol is None else small_rows(state)
    marks = [
        *({"txn": {"appId": app, "version": v}} for app, (v, _) in state.transactions.items()),
        *(
            {"domainMetadata": {"domain": name, "configuration": text, "removed": False}}
            for name, text in state.domains.items()
        ),
    ]
    content = lines([*removed, *(small or marks), *rows])
    return {f"_delta_log/{start:020}.{end:020}.compacted.json": content}


def ten_commits() -> list[list[Action]]:
    """Adds, removes of older files, re-adds, a transaction that counts, a domain that goes."""
    features = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["domainMetadata"]}
    history: list[list[Action]] = [[{"protocol": features}, metadata()]]
    for version in range(10):
        actions = [] if version == 0 else [{"txn": {"appId": "app", "version": version}}]
        actions.append(add(f"f{version}", size=version))
        if version >= 2:
            actions.append(remove(f"f{version - 2}", deletionTimestamp=FAR_FUTURE_MS))
        if version in (4, 8):
            actions.append(add(f"f{version - 4}", size=100 + version))
        if version in (1, 6):
            fields = {"domain": "d", "configuration": str(version), "removed": version == 6}
            actions.append({"domainMetadata": fields})
        if version:
            history.append(actions)
        else:
            history[0] += actions
    return history


HISTORY = ten_commits()
STATES = [state.visible() for state in states(HISTORY)]
RANGES = [(2, 4), (2, 7), (5, 9)]


def without_commits_before(files: Files, version: int) -> Files:
    return {path: content for path, content in files.items() if path >= commit_file(version)[:-5]}


LOGS: dict[str, Files] = {"commits": commits(HISTORY)}
LOGS["checkpoint at 3"] = without_commits_before(
    {**commits(HISTORY), **classic_checkpoint(STATES[3], 3)}, 3
)


@pytest.mark.parametrize("lossy", [False, True])
@pytest.mark.parametrize("ranges", [RANGES, [*RANGES, (0, 1)], [(0, 3), (0, 9), *RANGES], [(8, 9)]])
@pytest.mark.parametrize("log", LOGS)
def test_every_version_is_as_without_compactions(
    log: str, ranges: list[tuple[int, int]], lossy: bool
) -> None:
    """Files 0 to 9, 2.4, 2.7 and 5.9: of no use over a checkpoint at 3, or for version 6."""
    files = dict(LOGS[log])
    for start, end in ranges:
        files |= compaction_of(HISTORY, start, end, lossy=lossy)
    with MemoryTable(files) as table:
        for version in (9, 8, 6, 4, 3):
            snapshot = table.delta().snapshot(version=version)
            assert state_of(snapshot) == STATES[version]
        assert [info.version for info in table.delta().history(limit=3)] == [9, 8, 7]


def live(state: State) -> set[tuple[str, str | None]]:
    return set(state.files)


DOMAINS = {
    "protocol": {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["deletionVectors"],
        "writerFeatures": ["deletionVectors", "domainMetadata"],
    }
}


def domain(configuration: str, *, removed: bool) -> Action:
    fields = {"domain": "d", "configuration": configuration, "removed": removed}
    return {"domainMetadata": fields}


@pytest.mark.parametrize("lossy", [False, True], ids=["whole", "lossy"])
@pytest.mark.parametrize("first", [0, 1])
def test_what_was_removed_long_ago_does_not_come_back(first: int, lossy: bool) -> None:
    """Version 0 adds f, 1 adds g, 2 removes f, ten days ago; the compaction covers up to 2."""
    history = [
        [PROTOCOL, metadata(), add("f")],
        [add("g")],
        [remove("f", deletionTimestamp=days_ago())],
    ]
    files = commits(history) | compaction_of(history, first, 2, lossy=lossy)
    with MemoryTable(files) as table:
        assert live(state_of(table.delta().snapshot())) == {("g", None)}


@pytest.mark.parametrize("lossy", [False, True], ids=["whole", "lossy"])
@pytest.mark.parametrize("first", [0, 1])
def test_a_file_without_its_deletion_vector_does_not_come_back(first: int, lossy: bool) -> None:
    history = [
        [DOMAINS, metadata(), add("f")],
        [add("g")],
        [remove("f", deletionTimestamp=days_ago()), add("f", deletionVector=VECTOR)],
    ]
    files = commits(history) | compaction_of(history, first, 2, lossy=lossy)
    with MemoryTable(files) as table:
        vector = f"u{VECTOR['pathOrInlineDv']}@1"
        assert live(state_of(table.delta().snapshot())) == {("g", None), ("f", vector)}


@pytest.mark.parametrize("lossy", [False, True], ids=["whole", "lossy"])
@pytest.mark.parametrize("first", [0, 1])
def test_a_removed_domain_does_not_come_back(first: int, lossy: bool) -> None:
    history = [
        [DOMAINS, metadata(), domain("{}", removed=False)],
        [add("g")],
        [domain("", removed=True)],
    ]
    files = commits(history) | compaction_of(history, first, 2, lossy=lossy)
    with MemoryTable(files) as table:
        assert not table.delta().snapshot().domains
