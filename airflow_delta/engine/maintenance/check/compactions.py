"""Check log compactions against the commits that they replace.

Spec: PROTOCOL.md, "Log Compaction Files". Readers may open a compaction instead of its commits. If it lacks
a ``remove`` or the removal of a domain, however old, what was deleted before its range comes back; some
engines write such compactions. This engine reads only those that it trusts (``log/compacted.py``), others
read them all.
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
"""How many of the newest compactions are checked."""

_REMEDY = (
    "delete the file, which nobody needs, then DeltaTable.compact_log() or LogCompactionOperator"
)


@dataclass(frozen=True, slots=True)
class _Content:
    """The effect of commits, or of a compaction, on the state."""

    adds: pa.Table
    removes: pa.Table
    non_file_actions: Mapping[tuple[str, str], _NonFileValue]


def _check_contents(subject: Subject) -> Iterator[Finding]:
    """Whether compactions have the effect of their commits."""
    commits = {commit.version: commit for commit in subject.listing.commits if commit.size}
    newest = sorted(subject.listing.compactions, key=lambda file: file.end)[-_MOST:]
    for compaction in newest:
        try:
            recorded = _parse(subject, _read_texts(subject, compaction), compaction)
        except ObjectNotFoundError:
            continue  # a cleanup has deleted it concurrently
        except CorruptLogError as damage:
            yield _report_damage(compaction, damage)
            continue
        covered = range(compaction.start, compaction.end + 1)
        # The name of a compaction may have any end. Don't enumerate more versions than exist.
        if covered.stop - covered.start > len(commits):
            continue
        present = [commits[version] for version in covered if version in commits]
        if len(present) < len(covered):
            continue
        try:
            replayed = _parse(subject, commit_texts(subject.storage, present, table=subject.table))
        except (CorruptLogError, ObjectNotFoundError):
            continue  # `commits` reports it
        yield from _compare(subject, compaction, recorded, replayed)


CHECKS = (_check_contents,)


def _report_damage(compaction: CompactedCommits, damage: CorruptLogError) -> Finding:
    finding = damage.facts.get("finding")
    if finding is not None:
        return error(
            "compaction-unreconciled",
            f"the compaction {compaction.path} differs from its commits: {finding}. This engine reads the "
            "commits, but others read the compaction",
            _REMEDY,
        )
    return warning(
        "compaction-damaged",
        f"the compaction {compaction.path} can't be read: {damage.message}",
        _REMEDY,
    )


def _read_texts(subject: Subject, compaction: CompactedCommits) -> Iterable[tuple[int, bytes]]:
    """Read the content of a compaction, and check its pledge, if it has one."""
    if trusted_compactions(subject.storage, [compaction]):
        return commit_texts(subject.storage, [compaction], table=subject.table)
    return [(compaction.end, subject.storage.read(compaction.path))]


def _parse(
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
    non_file_actions = {
        _make_key(action): _parse_value(action) for action in parsed.non_file_actions
    }
    return _Content(
        reconciled.adds.select(add_schema(_COLUMNS).names),
        reconciled.removes.select(remove_schema(_COLUMNS).names),
        non_file_actions,
    )


def _make_key(action: NonFileAction) -> tuple[str, str]:
    names = {"txn": "appId", "domainMetadata": "domain"}
    name = names.get(action.kind)
    return action.kind, "" if name is None else str(action.value.get(name))


def _parse_value(action: NonFileAction) -> _NonFileValue:
    # As objects, since writers may leave out null fields.
    return _PARSERS[action.kind](action.value, action.kind)


def _compare(
    subject: Subject, compaction: CompactedCommits, recorded: _Content, replayed: _Content
) -> Iterator[Finding]:
    adds = compare_files(recorded.adds, replayed.adds, table=subject.table)
    removes = compare_files(recorded.removes, replayed.removes, table=subject.table)
    actions, expected = recorded.non_file_actions, replayed.non_file_actions
    forgotten = [
        key
        for key, value in expected.items()
        if key not in actions and isinstance(value, DomainMetadata) and value.removed
    ]
    wrong = [
        key
        for key in {*actions, *expected}
        if key not in forgotten and actions.get(key) != expected.get(key)
    ]
    texts = [
        (adds.missing.num_rows, "lacks", "live file"),
        (adds.extra.num_rows, "has wrongly", "live file"),
        (sum(rows.num_rows for rows in adds.differing.values()), "has another size of", "file"),
        (removes.extra.num_rows, "has wrongly", "removed file"),
        (len(wrong), "differs in", "other action"),
    ]
    differing = [f"it {verb} {plural(count, what)}" for count, verb, what in texts if count]
    if differing:
        yield error(
            "compaction-disagrees",
            f"the compaction {compaction.path} differs from its commits: {'; '.join(differing)}",
            _REMEDY,
        )
    # Nothing can come back from before version 0.
    if compaction.start and (removes.missing.num_rows or forgotten):
        yield error(
            "compaction-forgets",
            f"the compaction {compaction.path} lacks {plural(removes.missing.num_rows, 'removed file')} "
            f"and {plural(len(forgotten), 'removed domain')} of its commits: engines that read it bring "
            "back what was deleted",
            _REMEDY,
        )
