"""Check the content of commits: whether it can be read, is consistent, and has ascending times.

Spec: PROTOCOL.md, "Actions", "Action Reconciliation"; RFC in-commit-timestamps. All existing commits are
read, also those that only time travel and history need: some hundreds at a time, and one by one only if
some can't be read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pyarrow as pa

from airflow_delta.engine.arrow.action_schema import VERSION
from airflow_delta.engine.arrow.json.reader import ParsedCommits, parse_commits
from airflow_delta.engine.errors import DeltaError, ObjectNotFoundError, StorageError
from airflow_delta.engine.features.in_commit_timestamps import TimestampSource, timestamp_source
from airflow_delta.engine.log.files import LogCommit
from airflow_delta.engine.maintenance.check.findings import (
    Finding,
    error,
    join_names,
    join_ranges,
    plural,
    warning,
)
from airflow_delta.engine.maintenance.check.subject import Subject
from airflow_delta.engine.progress import report_progress
from airflow_delta.engine.remedies import PUT_FILE_BACK
from airflow_delta.engine.replay.file_key import file_keys
from airflow_delta.engine.replay.key_hashes import KeyHasher
from airflow_delta.engine.replay.reconcile import values_of
from airflow_delta.engine.snapshot.commit_texts import commit_texts

__all__ = ["CHECKS"]

_BATCH_FILES = 256
_BATCH_BYTES = 64 << 20


@dataclass(slots=True)
class _Seen:
    """The faults and the timestamps that are found while commits are read.

    Attributes:
        unreadable: by version, what is wrong.
        contradictory: versions with two actions for one file.
        times: by version, the in-commit timestamp, None if it is missing.
    """

    unreadable: dict[int, str] = field(default_factory=dict)
    contradictory: set[int] = field(default_factory=set)
    times: dict[int, int | None] = field(default_factory=dict)


def _check_contents(subject: Subject) -> Iterator[Finding]:
    """Whether commits can be read, and are consistent."""
    seen = _Seen()
    present = _list_present(subject)
    with report_progress("read commits", "commits", len(present)) as reporter:
        for batch in _split_into_batches(present):
            _read(subject, batch, seen)
            reporter.advance(len(batch))
    newest = subject.newest_checkpoint
    after = -1 if newest is None else newest.version
    needed = [version for version in seen.unreadable if version > after]
    older = [version for version in seen.unreadable if version <= after]
    subject.reported_commits += [seen.unreadable[version] for version in needed]
    if needed:
        yield error(
            "commit-unreadable",
            f"the newest version needs {plural(len(needed), 'commit')} that can't be read: "
            f"{join_names([seen.unreadable[version] for version in needed])}",
            PUT_FILE_BACK,
        )
    if older:
        yield warning(
            "commit-unreadable",
            f"{plural(len(older), 'commit')} from before the newest checkpoint can't be read, so "
            f"older versions are lost: {join_names([seen.unreadable[version] for version in older])}",
            f"{PUT_FILE_BACK}; newer versions don't need it",
        )
    if seen.contradictory:
        found = sorted(seen.contradictory)
        yield warning(
            "commit-contradictory",
            f"more than one action for a file in {plural(len(found), 'commit')} ({join_ranges(found)}), "
            "though the protocol allows only one: engines interpret that differently",
            "nothing here: find the writer that is at fault, and compare the table with its source",
        )
    yield from _check_timestamps(subject, seen)


CHECKS = (_check_contents,)


def _list_present(subject: Subject) -> Sequence[LogCommit]:
    """Return the commits that have content, with those that aren't backfilled at the end."""
    logged: list[LogCommit] = [commit for commit in subject.listing.commits if commit.size]
    if subject.snapshot is None:
        return logged
    last = logged[-1].version if logged else -1
    later = (each for each in subject.snapshot.segment.commits if each.version > last)
    return [*logged, *later]


def _split_into_batches(commits: Sequence[LogCommit]) -> Iterator[list[LogCommit]]:
    batch: list[LogCommit] = []
    size = 0
    for commit in commits:
        batch.append(commit)
        size += commit.size
        if len(batch) >= _BATCH_FILES or size >= _BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _read(subject: Subject, commits: list[LogCommit], seen: _Seen) -> None:
    """Read commits together; if that fails, read each half."""
    try:
        parsed = parse_commits(
            commit_texts(subject.storage, commits, table=subject.table),
            columns=("path",),
            kinds=("commitInfo",) if _has_times(subject, commits[-1].version) else (),
            table=subject.table,
        )
        twice = _find_contradictory(parsed, subject.table)
    except DeltaError as failure:
        if len(commits) > 1:
            middle = len(commits) // 2
            _read(subject, commits[:middle], seen)
            _read(subject, commits[middle:], seen)
            return
        if isinstance(failure, ObjectNotFoundError):
            return  # a cleanup has deleted it concurrently
        if isinstance(failure, StorageError):
            subject.probe()
        seen.unreadable[commits[0].version] = failure.message
        return
    seen.contradictory |= twice
    if _has_times(subject, commits[-1].version):
        # A loop over commits; their files are columns.
        times = dict.fromkeys((each.version for each in commits), None) | {
            action.version: action.value.get("inCommitTimestamp")
            for action in parsed.non_file_actions
            if action.kind == "commitInfo"
        }
        seen.times |= times


def _find_contradictory(parsed: ParsedCommits, table: str) -> set[int]:
    """Return the versions that have more than one action for a file."""
    actions = parsed.files
    chunks = [
        chunk
        for rows in (actions.adds, actions.removes)
        for chunk in file_keys(rows, table=table).chunks
    ]
    codes, _ = KeyHasher().hashes(pa.chunked_array(chunks, pa.string())).factorize()
    versions = values_of(actions, VERSION)
    order = np.lexsort((versions, codes))
    same = (np.diff(codes[order]) == 0) & (np.diff(versions[order]) == 0)
    return set(np.unique(versions[order][1:][same]).tolist())


def _has_times(subject: Subject, version: int) -> bool:
    """Whether a commit must have an in-commit timestamp."""
    if subject.snapshot is None:
        return False
    source = timestamp_source(
        version, subject.snapshot.protocol, subject.snapshot.metadata, table=subject.table
    )
    return source is TimestampSource.COMMIT_INFO


def _check_timestamps(subject: Subject, seen: _Seen) -> Iterator[Finding]:
    """Whether in-commit timestamps exist and ascend."""
    wanted = {
        version: time
        for version, time in sorted(seen.times.items())
        if _has_times(subject, version)
    }
    lacking = [version for version, time in wanted.items() if not isinstance(time, int)]
    if lacking:
        yield error(
            "timestamp-missing",
            f"no in-commit timestamp in {plural(len(lacking), 'commit')} ({join_ranges(lacking)}), though "
            "the table requires it: the time is unknown, and time travel by timestamp fails",
            "nothing here: commits can't be changed. Find the writer that is at fault",
        )
    times = [(version, time) for version, time in wanted.items() if isinstance(time, int)]
    back = [version for (_, before), (version, time) in pairwise(times) if time <= before]
    if back:
        yield warning(
            "timestamp-not-ascending",
            f"in {plural(len(back), 'commit')} ({join_ranges(back)}) the in-commit timestamp isn't later "
            "than the one before: time travel by timestamp may find a wrong version",
            "nothing here: commits can't be changed. Find the writer that is at fault",
        )
