"""Read the protocols of a range of versions, which a cleanup must know before it deletes them.

An older version may need a feature that was dropped since (RFC checkpoint-protection). The protocol of the
first version comes from its checkpoint, or from version 0. That of each later one comes from its commit,
where a ``protocol`` action replaces the one before.

Only commits and checkpoints are read. Version checksums, compactions of other writers and
``_last_checkpoint`` repeat the protocol, but prove nothing, and a cleanup deletes files for good.
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
    """Yield the protocols of consecutive versions, each with the version that it begins at.

    It doesn't matter whether the engine knows a protocol, so the first version need not be readable.

    Args:
        storage: where the table is.
        first: the first version, which the log can rebuild.
        last: the last version. All commits up to it exist.

    Yields:
        The protocol of the first version, then each one that differs from the one before.

    Raises:
        VersionNotFoundError: the first version can't be rebuilt.
        CorruptLogError: a commit is missing or damaged, or there is no protocol. The protocols of the
            versions before have been yielded by then. Facts, where known: version.
        ObjectNotFoundError: a commit vanished concurrently.
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
    for version, protocol in _read_commits(storage, first + 1, last):
        if protocol != current:
            yield version, protocol
            current = protocol


def _read_commits(storage: Storage, first: int, last: int) -> Iterator[tuple[int, Protocol]]:
    """Yield the protocol actions of commits, each with its version, ascending."""
    if first > last:
        return
    commits = list_log(storage, start=first, end=last).commits
    check_commits(commits, after=first - 1, to=last, table=storage.root)
    # One by one, so that everything before a damaged commit is yielded.
    for text in commit_texts(storage, commits, table=storage.root):
        for action in find_non_file_actions([text], kinds=("protocol",), table=storage.root):
            where = f"commit {action.version}: protocol"
            yield action.version, Protocol.from_json(action.value, where)
