"""The protocols of a range of versions: what each of them asks of readers and writers.

Since features can be dropped without truncating the log, an older version may need what the newest one
doesn't (checkpoint-protection.md). The protocol of the first version comes from its checkpoint, or from
version 0; that of each later one from its commit, where a ``protocol`` action replaces the one before. Of a
commit that is larger than the version checksum beside it, the checksum is read instead, which repeats the
protocol in force.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import groupby, islice
from typing import TypeAlias

from airflow_delta.engine.arrow.json_small import find_small_actions
from airflow_delta.engine.errors import CorruptLogError
from airflow_delta.engine.log.completeness import check_commits, without_action
from airflow_delta.engine.log.files import Checksum, Commit, parse_log_file
from airflow_delta.engine.log.listing import list_names
from airflow_delta.engine.log.segment import load_segment
from airflow_delta.engine.log.version_checksum import VersionChecksum
from airflow_delta.engine.model.actions import Protocol
from airflow_delta.engine.model.json_fields import json_object
from airflow_delta.engine.snapshot.commit_texts import commit_texts
from airflow_delta.engine.snapshot.state import LogState
from airflow_delta.engine.storage.base import Storage

__all__ = ["protocol_history"]

_Source: TypeAlias = tuple[Commit, Checksum | None]

_BATCH = 256
"""Files that are asked for at a time."""


def protocol_history(storage: Storage, *, first: int, last: int) -> Iterator[tuple[int, Protocol]]:
    """The protocols of consecutive versions, each with the version that it begins at.

    Whether the engine knows them is not asked, so the first version need not be one that it can read.

    Args:
        storage: where the table is.
        first: the first version, which can be rebuilt.
        last: the last one; all commits up to it are there.

    Yields:
        The protocol of the first version, and then each that differs from the one before.

    Raises:
        VersionNotFoundError: the first version can't be rebuilt.
        CorruptLogError: a commit is missing or broken, or there is no protocol. The protocols of the
            versions before have been given by then. Facts, where known: version.
        ObjectNotFoundError: a commit vanished meanwhile.
        StorageError: the store failed.
    """
    state = LogState(storage, load_segment(storage, version=first))
    current = state.small.protocol
    if current is None:
        raise without_action(
            "protocol",
            version=first,
            checkpoint=state.segment.checkpoint,
            table=storage.root,
        )
    yield first, current
    for version, protocol in _told(storage, _sources(storage, first + 1, last)):
        if protocol != current:
            yield version, protocol
            current = protocol


def _sources(storage: Storage, first: int, last: int) -> list[_Source]:
    """Each commit, and the checksum that is to be read in its place."""
    if first > last:
        return []
    commits: list[Commit] = []
    checksums: dict[int, Checksum] = {}
    for info in list_names(storage, start=first, end=last):
        match parse_log_file(info):
            case Commit() as commit:
                commits.append(commit)
            case Checksum() as checksum:
                checksums[checksum.version] = checksum
    check_commits(commits, after=first - 1, to=last, table=storage.root)
    found = []
    for commit in commits:
        told = checksums.get(commit.version)
        found.append((commit, told if told is not None and 0 < told.size < commit.size else None))
    return found


def _told(storage: Storage, sources: Sequence[_Source]) -> Iterator[tuple[int, Protocol]]:
    """What the files say, each protocol with its version, ascending."""
    for is_checksum, run in groupby(sources, key=lambda source: source[1] is not None):
        while batch := [*islice(run, _BATCH)]:
            if is_checksum:
                yield from _by_checksums(storage, batch)
            else:
                yield from _by_commits(storage, [commit for commit, _ in batch])


def _by_commits(storage: Storage, commits: Sequence[Commit]) -> Iterator[tuple[int, Protocol]]:
    # One by one, so that of a broken commit nothing is told but what comes before it.
    for text in commit_texts(storage, commits, table=storage.root):
        for action in find_small_actions([text], kinds=("protocol",), table=storage.root):
            where = f"commit {action.version}: protocol"
            yield action.version, Protocol.from_json(action.value, where)


def _by_checksums(storage: Storage, sources: Sequence[_Source]) -> Iterator[tuple[int, Protocol]]:
    checksums = [checksum for _, checksum in sources if checksum is not None]
    contents = storage.read_many([checksum.path for checksum in checksums])
    for (commit, _), content in zip(sources, contents, strict=True):
        protocol = None if content is None else _protocol_in(content)
        if protocol is not None:
            yield commit.version, protocol
        else:
            yield from _by_commits(storage, [commit])


def _protocol_in(content: bytes) -> Protocol | None:
    """What a checksum says; None where it says nothing, for it is optional in every way."""
    try:
        return VersionChecksum.from_json(json_object(json.loads(content), "crc"), "crc").protocol
    except (ValueError, RecursionError, CorruptLogError):
        return None
