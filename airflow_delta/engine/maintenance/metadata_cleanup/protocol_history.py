"""The protocols of a range of versions: what each of them asks of readers and writers.

Since features can be dropped without truncating the log, an older version may need what the newest one
doesn't (checkpoint-protection.md). The protocol of the first version comes from its checkpoint, or from
version 0; that of each later one from its commit, where a ``protocol`` action replaces the one before.

A cleanup deletes files for good by what is read here. So it comes from commits and checkpoints alone: a
version checksum, a compaction of another writer and ``_last_checkpoint`` repeat it, but prove nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from airflow_delta.engine.arrow.json.non_file_actions import find_non_file_actions
from airflow_delta.engine.log.completeness import check_commits, without_action
from airflow_delta.engine.log.listing import list_log
from airflow_delta.engine.log.segment import load_segment
from airflow_delta.engine.model.actions import Protocol
from airflow_delta.engine.snapshot.commit_texts import commit_texts
from airflow_delta.engine.snapshot.state import LogState
from airflow_delta.engine.storage.base import Storage

__all__ = ["read_protocol_history"]


def read_protocol_history(
    storage: Storage, *, first: int, last: int
) -> Iterator[tuple[int, Protocol]]:
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
    state = LogState(storage, load_segment(storage, version=first, verified=True))
    current = state.non_file_state.protocol
    if current is None:
        raise without_action(
            "protocol",
            version=first,
            checkpoint=state.segment.checkpoint,
            table=storage.root,
        )
    yield first, current
    for version, protocol in _in_commits(storage, first + 1, last):
        if protocol != current:
            yield version, protocol
            current = protocol


def _in_commits(storage: Storage, first: int, last: int) -> Iterator[tuple[int, Protocol]]:
    """The protocol actions of commits, each with its version, ascending."""
    if first > last:
        return
    commits = list_log(storage, start=first, end=last).commits
    check_commits(commits, after=first - 1, to=last, table=storage.root)
    # One by one, so that of a broken commit nothing is given but what comes before it.
    for text in commit_texts(storage, commits, table=storage.root):
        for action in find_non_file_actions([text], kinds=("protocol",), table=storage.root):
            where = f"commit {action.version}: protocol"
            yield action.version, Protocol.from_json(action.value, where)
