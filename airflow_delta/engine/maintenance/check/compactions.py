"""Check log compactions against the commits that they stand for.

Readers may open a compaction in place of its commits. One that lacks a ``remove`` or the removal of a
domain, however old, brings back what was deleted before its range; some engines write such (edge case
A17). This engine reads only those that it can trust (``log/compacted.py``), others read them all.

Spec: PROTOCOL.md, "Log Compaction Files".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa

from airflow_delta.engine.arrow.action_schema import add_schema, remove_schema
from airflow_delta.engine.arrow.json.reader import NonFileAction, parse_commits
from airflow_delta.engine.errors import CorruptLogError, ObjectNotFoundError
from airflow_delta.engine.log.compacted import trusted_compactions
from airflow_delta.engine.log.files import CompactedCommits
from airflow_delta.engine.maintenance.check.compared_files import compare_files
from airflow_delta.engine.maintenance.check.findings import (
    Finding,
    error,
    plural,
    warning,
)
from airflow_delta.engine.maintenance.check.subject import Subject
from airflow_delta.engine.model.actions import DomainMetadata, Metadata, Protocol, Txn
from airflow_delta.engine.replay.reconcile import reconcile_commits
from airflow_delta.engine.snapshot.commit_texts import commit_texts
from airflow_delta.engine.snapshot.segment_commits import check_reconciled

__all__ = ["CHECKS"]

_NonFileValue: TypeAlias = Protocol | Metadata | Txn | DomainMetadata
_PARSERS: Mapping[str, Callable[[Mapping[str, Any], str], _NonFileValue]] = {
    "protocol": Protocol.from_json,
    "metaData": Metadata.from_json,
    "txn": Txn.from_json,
    "domainMetadata": DomainMetadata.from_json,
}
_COLUMNS = ("path", "size", "deletionVector")
_MOST = 100
"""So many of the newest compactions are looked at."""

_MEND = (
    "delete the file, which nobody needs, then DeltaTable.compact_log() or LogCompactionOperator"
)


@dataclass(frozen=True, slots=True)
class _Content:
    """What commits, or a compaction, come to."""

    adds: pa.Table
    removes: pa.Table
    non_file_actions: Mapping[tuple[str, str], _NonFileValue]


def _contents(subject: Subject) -> Iterator[Finding]:
    """Whether compactions say what their commits say."""
    commits = {commit.version: commit for commit in subject.listing.commits if commit.size}
    newest = sorted(subject.listing.compactions, key=lambda file: file.end)[-_MOST:]
    for compaction in newest:
        try:
            told = _content(subject, _texts(subject, compaction), compaction)
        except ObjectNotFoundError:
            continue  # a cleanup has taken it meanwhile
        except CorruptLogError as damage:
            yield _damaged(compaction, damage)
            continue
        covered = range(compaction.start, compaction.end + 1)
        # The name of a compaction may state any end: never enumerate more versions than there are.
        if covered.stop - covered.start > len(commits):
            continue
        present = [commits[version] for version in covered if version in commits]
        if len(present) < len(covered):
            continue
        try:
            found = _content(subject, commit_texts(subject.storage, present, table=subject.table))
        except (CorruptLogError, ObjectNotFoundError):
            continue  # `commits` tells of it
        yield from _differences(subject, compaction, told, found)


CHECKS = (_contents,)


def _damaged(compaction: CompactedCommits, damage: CorruptLogError) -> Finding:
    finding = damage.facts.get("finding")
    if finding is not None:
        return error(
            "compaction-unreconciled",
            f"the compaction {compaction.path} isn't what its commits come to: {finding}. This engine "
            "reads the commits, and others read the compaction",
            _MEND,
        )
    return warning(
        "compaction-damaged",
        f"the compaction {compaction.path} can't be read: {damage.message}",
        _MEND,
    )


def _texts(subject: Subject, compaction: CompactedCommits) -> Iterable[tuple[int, bytes]]:
    """The content of a compaction, compared with its pledge, where it has one."""
    if trusted_compactions(subject.storage, [compaction]):
        return commit_texts(subject.storage, [compaction], table=subject.table)
    return [(compaction.end, subject.storage.read(compaction.path))]


def _content(
    subject: Subject,
    texts: Iterable[tuple[int, bytes]],
    compaction: CompactedCommits | None = None,
) -> _Content:
    compacted = {} if compaction is None else {compaction.end: compaction.path}
    parsed = parse_commits(
        texts,
        columns=_COLUMNS,
        kinds=_PARSERS.keys(),
        table=subject.table,
        paths=compacted,
    )
    check_reconciled(parsed.non_file_actions, compacted, table=subject.table)
    reconciled = reconcile_commits(parsed.files, table=subject.table, compactions=compacted)
    non_file_actions = {_key(action): _value(action) for action in parsed.non_file_actions}
    return _Content(
        reconciled.adds.select(add_schema(_COLUMNS).names),
        reconciled.removes.select(remove_schema(_COLUMNS).names),
        non_file_actions,
    )


def _key(action: NonFileAction) -> tuple[str, str]:
    names = {"txn": "appId", "domainMetadata": "domain"}
    name = names.get(action.kind)
    return action.kind, "" if name is None else str(action.value.get(name))


def _value(action: NonFileAction) -> _NonFileValue:
    # As objects, for writers leave out what is null.
    return _PARSERS[action.kind](action.value, action.kind)


def _differences(
    subject: Subject, compaction: CompactedCommits, told: _Content, found: _Content
) -> Iterator[Finding]:
    adds = compare_files(told.adds, found.adds, table=subject.table)
    removes = compare_files(told.removes, found.removes, table=subject.table)
    forgotten = [
        key
        for key, value in found.non_file_actions.items()
        if key not in told.non_file_actions and isinstance(value, DomainMetadata) and value.removed
    ]
    wrong = [
        key
        for key in {*told.non_file_actions, *found.non_file_actions}
        if key not in forgotten
        and told.non_file_actions.get(key) != found.non_file_actions.get(key)
    ]
    texts = [
        (adds.missing.num_rows, "lacks", "live file"),
        (adds.extra.num_rows, "has wrongly", "live file"),
        (sum(rows.num_rows for rows in adds.differing.values()), "has another size of", "file"),
        (removes.extra.num_rows, "has wrongly", "removed file"),
        (len(wrong), "is wrong about", "other action"),
    ]
    differing = [f"it {verb} {plural(count, what)}" for count, verb, what in texts if count]
    if differing:
        yield error(
            "compaction-disagrees",
            f"the compaction {compaction.path} isn't what its commits come to: {'; '.join(differing)}",
            _MEND,
        )
    # Before version 0 there is nothing that could come back.
    if compaction.start and (removes.missing.num_rows or forgotten):
        yield error(
            "compaction-forgets",
            f"the compaction {compaction.path} lacks {plural(removes.missing.num_rows, 'removed file')} "
            f"and {plural(len(forgotten), 'removed domain')} of its commits: engines that read it bring "
            "back what was deleted",
            _MEND,
        )
