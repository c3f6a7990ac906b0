"""What a history of transactions must be like: judged by the log, with dictionaries.

Two judges share nothing with the engine, nor with each other:

* `_unserial` asks of each commit whether its transaction, had it run alone between the version before
  and its own, would have seen what it saw (PROTOCOL.md, "Delta Table Specification": "serializable
  ACID writes"), as far as the isolation level promises it;
* `_matrix` is the table of conflicts, and is checked both ways: a commit that failed had a reason, and one
  that committed had none to fail.

Beside that each commit must hold what was staged, row ids must be unique and in-commit timestamps ascend.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from airflow_delta.engine import CommitResult
from airflow_delta.engine.errors import CommitConflictError
from airflow_delta.engine.model.actions import AddFile, RemoveFile
from tests.races.random_writers import JOB, Condition, Work
from tests.races.replayed_log import Commit, Log
from tests.table_builder import Action, State, key_of

__all__ = ["problems", "row_id_problems", "timestamp_problems"]

_MARK = "delta.rowTracking"
_ENABLEMENT = {
    "delta.inCommitTimestampEnablementVersion",
    "delta.inCommitTimestampEnablementTimestamp",
}
_HARMLESS = {"delta.enableInCommitTimestamps", *_ENABLEMENT}
"""Properties of which one that changes is in nobody's way, of those that are changed here."""
_BINDING = {"checkConstraints", "managedCommit"}
"""Likewise features that are in the way; one that goes always is."""
_REPEATED = ("partitionValues", "size", "tags", "deletionVector", "stats")
"""What a remove repeats of the add of its file, beside its path and row numbers."""


def problems(log: Log, works: Sequence[Work], level: str) -> Iterator[str]:
    """What is wrong with a history.

    Args:
        log: the table's.
        works: the transactions that were made or tried.
        level: the table's isolation level.
    """
    authors = {work.name: work for work in works}
    for commit in log.commits[1:]:
        author = authors.get(commit.info.get("userMetadata", ""))
        if author is None or not _is_result(author.outcome, commit.version):
            yield f"version {commit.version} is there, but its writer didn't get it as its result: {author}"
        yield from log.checksum_problems(commit.version)
    for work in works:
        outcome = work.outcome
        if isinstance(outcome, CommitResult) and outcome.repeated:
            yield from _unrepeated(log, work, outcome)
        elif isinstance(outcome, CommitResult):
            found = _committed(log, work, outcome, authors, level)
            yield from (f"{work.name}, version {outcome.version}: {each}" for each in found)
        elif isinstance(outcome, CommitConflictError):
            found = _unfounded(log, work, outcome, authors, level)
            yield from (f"{work.name}: {each}" for each in found)
        else:
            yield f"{work.name} has come to {outcome!r}"
    yield from row_id_problems(log)
    yield from timestamp_problems(log)


def _is_result(outcome: object, version: int) -> bool:
    return isinstance(outcome, CommitResult) and not outcome.repeated and outcome.version == version


def _unrepeated(log: Log, work: Work, result: CommitResult) -> Iterator[str]:
    """An earlier commit has the same transaction identifier, and it is the only one."""
    wanted = work.set_apps[JOB]
    made = [
        commit.version
        for commit in log.commits
        for txn in commit.of("txn")
        if (txn["appId"], txn["version"]) == (JOB, wanted)
    ]
    if made != [result.version]:
        yield f"{work.name} got version {result.version} as its result, but {JOB} {wanted} is in {made}"


def _committed(
    log: Log, work: Work, result: CommitResult, authors: Mapping[str, Work], level: str
) -> Iterator[str]:
    commit = log.commits[result.version]
    if commit.info.get("userMetadata") != work.name:
        yield f"the commit is of {commit.info.get('userMetadata')}"
        return
    yield from _differences(log, work, commit, result)
    yield from _unserial(log, work, commit.version, authors, level)
    for winner in log.between(work.base, commit.version):
        if found := _matrix(log, work, winner, authors, level):
            yield f"should have failed by version {winner.version}: {sorted(found)}"


def _unfounded(
    log: Log,
    work: Work,
    error: CommitConflictError,
    authors: Mapping[str, Work],
    level: str,
) -> Iterator[str]:
    """A conflict is with the first winner that is in the way, and of a kind that this one is."""
    if error.version is None or not work.base < error.version < len(log.commits):
        yield f"failed by a version that it didn't lose to: {error}"
        return
    for winner in log.between(work.base, error.version):
        if found := _matrix(log, work, winner, authors, level):
            yield f"should have failed by version {winner.version}, {sorted(found)}: {error}"
    found = _matrix(log, work, log.commits[error.version], authors, level)
    if type(error).__name__ not in found:
        yield f"failed without a reason, {sorted(found)}: {error}"


def _differences(log: Log, work: Work, commit: Commit, result: CommitResult) -> Iterator[str]:
    """What is in the commit and wasn't staged, or the other way round."""
    old = log.states[commit.version - 1]
    staged = {
        "add": {path: _fields(file) for path, file in work.adds.items()},
        "remove": {path: _completed(file, old) for path, file in work.removes.items()},
        "txn": work.set_apps,
        "domainMetadata": {
            name: (old.domains.get(name) if text is None else text, text is None)
            for name, text in work.set_domains.items()
        },
        "protocol": work.protocol and work.protocol.to_json(),
        "metaData": work.metadata and _without_enablement(work.metadata.to_json()),
        "blind": work.is_blind,
        "read version": work.base,
        "first": "commitInfo",
    }
    written: dict[str, Any] = {
        "add": {file["path"]: _fields(file) for file in commit.of("add")},
        "remove": {file["path"]: _fields(file) for file in commit.of("remove")},
        "txn": {txn["appId"]: txn["version"] for txn in commit.of("txn")},
        "domainMetadata": {
            each["domain"]: (each["configuration"], each["removed"])
            for each in commit.of("domainMetadata")
            if each["domain"] != _MARK
        },
        "protocol": next(iter(commit.of("protocol")), None),
        "metaData": next(map(_without_enablement, commit.of("metaData")), None),
        "blind": commit.info["isBlindAppend"],
        "read version": commit.info["readVersion"],
        "first": commit.first,
    }
    for kind, expected in staged.items():
        if written[kind] != expected:
            yield f"{kind} is {written[kind]}, expected {expected}"
    counts = (len(work.adds), len(work.removes), commit.info["timestamp"])
    if (result.num_files_added, result.num_files_removed, result.timestamp_ms) != counts:
        yield f"the result is {result}, expected {counts}"


def _fields(file: AddFile | RemoveFile | Action) -> Action:
    """A file action, without what the engine is to fill in."""
    fields = file if isinstance(file, dict) else file.to_json()
    numbers = {"baseRowId", "defaultRowCommitVersion"}
    return {key: value for key, value in fields.items() if key not in numbers}


def _completed(file: RemoveFile, old: State) -> Action:
    """A remove with what the add of its file says, which the engine takes over."""
    live = old.files.get(key_of(file.to_json()), {})
    known = {key: live[key] for key in _REPEATED if live.get(key) is not None}
    return {**known, **_fields(file), "extendedFileMetadata": True}


def _without_enablement(metadata: Action) -> Action:
    kept = {k: v for k, v in metadata["configuration"].items() if k not in _ENABLEMENT}
    return {**metadata, "configuration": kept}


def _unserial(
    log: Log, work: Work, version: int, authors: Mapping[str, Work], level: str
) -> Iterator[str]:
    """What the transaction would have found otherwise just before its version."""
    old, then = log.states[version - 1], log.states[work.base]
    for file in work.removes.values():
        if key_of(file.to_json()) not in old.files:
            yield f"removes {file.path}, which isn't there"
    seen = {
        key
        for key, file in old.files.items()
        if any(condition.may_hold_in(file) for condition in work.conditions)
    }
    if gone := work.read - seen:
        yield f"has read {gone}, which aren't there any more"
    if unseen := seen - work.read - _forgiven(log, work, version, authors, level):
        yield f"has not read {unseen}, which are there by now"
    for app, found in work.apps.items():
        if old.transactions.get(app, (None,))[0] != found:
            yield f"relies on {app} at {found}, and it is at {old.transactions.get(app)}"
    for domain, text in work.domains.items():
        if old.domains.get(domain) != text:
            yield f"relies on {domain} as {text!r}, and it is {old.domains.get(domain)!r}"
    if work.protocol and old.protocol != then.protocol:
        yield f"replaces the protocol {old.protocol}, which it doesn't know"
    changed = _changed_properties(then, old)
    if changed - (set() if work.metadata else _HARMLESS):
        yield f"doesn't know of changed properties: {changed}"


def _forgiven(
    log: Log, work: Work, version: int, authors: Mapping[str, Work], level: str
) -> set[tuple[str, str | None]]:
    """The files added meanwhile that the isolation level lets a transaction miss."""
    missed = [
        commit
        for commit in log.between(work.base, version)
        if not _appends_matter(work, authors[commit.info["userMetadata"]], level)
    ]
    return {key_of(file) for commit in missed for file in commit.of("add")}


def _appends_matter(work: Work, winner: Work, level: str) -> bool:
    if work.is_data_kept:
        return False
    return level == "Serializable" or bool(work.metadata) or not winner.is_blind


def _changed_properties(old: State, new: State) -> set[str]:
    assert old.metadata
    assert new.metadata
    before, after = old.metadata["configuration"], new.metadata["configuration"]
    assert {**old.metadata, "configuration": after} == new.metadata
    return {key for key in before | after if before.get(key) != after.get(key)}


def _matrix(
    log: Log, work: Work, winner: Commit, authors: Mapping[str, Work], level: str
) -> set[str]:
    """The errors by which a transaction may fail because of a commit made meanwhile."""
    before, after = log.states[winner.version - 1], log.states[winner.version]
    found = set()
    if winner.of("protocol"):
        old, new = _features(before), _features(after)
        if work.protocol or (new - old) & _BINDING or old - new:
            found.add("ProtocolChangedError")
    if winner.of("metaData"):
        changed = _changed_properties(before, after)
        if work.metadata or changed - _HARMLESS:
            found.add("MetadataChangedError")
    domains = {each["domain"] for each in winner.of("domainMetadata")} - {_MARK}
    apps = {txn["appId"] for txn in winner.of("txn")}
    if domains & work.domains.keys() or apps & work.apps.keys():
        found.add("ConcurrentTransactionError")
    if _appends_matter(work, authors[winner.info["userMetadata"]], level) and any(
        condition.concerns(file) for condition in work.conditions for file in winner.of("add")
    ):
        found.add("ConcurrentAppendError")
    if work.adds.keys() & {file["path"] for file in winner.of("add")}:
        found.add("ConcurrentAppendError")
    removed = {file["path"] for file in winner.of("remove")}
    read_all = Condition() in work.conditions
    read = {path for path, _ in work.read} | work.adds.keys()
    if removed & read or (removed and read_all):
        found.add("ConcurrentDeleteReadError")
    if removed & work.removes.keys():
        found.add("ConcurrentDeleteDeleteError")
    return found


def _features(state: State) -> set[str]:
    assert state.protocol
    return set(state.protocol[3] or ())


def row_id_problems(log: Log) -> Iterator[str]:
    """Of each file, and no number is given to two rows."""
    given: dict[int, str] = {}
    highest = -1
    for commit in log.commits:
        if "rowTracking" not in _features(log.states[commit.version]):
            continue
        old = log.states[commit.version - 1].files if commit.version else {}
        known = {path: file for (path, _), file in old.items()}
        for file in commit.of("add"):
            numbers = (file.get("baseRowId"), file.get("defaultRowCommitVersion"))
            if None in numbers:
                yield f"version {commit.version}: {file['path']} has the numbers {numbers}"
                continue
            before = known.get(file["path"], {})
            if before.get("baseRowId") is not None:
                expected = (before["baseRowId"], before["defaultRowCommitVersion"])
                if numbers != expected:
                    yield f"version {commit.version}: {file['path']} had {expected}, has {numbers}"
                continue
            if numbers[1] != commit.version:
                yield f"version {commit.version}: {file['path']} is from version {numbers[1]}"
            for row in range(file["baseRowId"], file["baseRowId"] + _rows(file)):
                if row in given:
                    yield f"the row id {row} is in {given[row]} and in {file['path']}"
                given[row] = file["path"]
        highest = max([highest, *given])
        recorded = log.states[commit.version].domains.get(_MARK)
        if (json.loads(recorded)["rowIdHighWaterMark"] if recorded else -1) != highest:
            yield f"version {commit.version} has {recorded}, but {highest} is the highest id"


def _rows(file: Action) -> int:
    return int(json.loads(file["stats"])["numRecords"])


def timestamp_problems(log: Log) -> Iterator[str]:
    """They ascend, and the recorded beginning is right."""
    previous, enablement = None, None
    for commit in log.commits:
        state = log.states[commit.version]
        assert state.metadata
        properties = state.metadata["configuration"]
        at = commit.info.get("inCommitTimestamp")
        if properties.get("delta.enableInCommitTimestamps") != "true":
            if at is not None:
                yield f"version {commit.version} has an in-commit timestamp"
            continue
        recorded = {key: properties[key] for key in _ENABLEMENT if key in properties}
        if previous is None:
            beginning = (str(commit.version), str(at))
            enablement = dict(zip(sorted(_ENABLEMENT, reverse=True), beginning, strict=True))
            enablement = enablement if commit.version else {}
        if recorded != enablement:
            yield f"version {commit.version} has {recorded}, expected {enablement}"
        if at is None or (previous is not None and at <= previous):
            yield f"version {commit.version} is of {at}, and the one before of {previous}"
        previous = at if at is not None else previous
