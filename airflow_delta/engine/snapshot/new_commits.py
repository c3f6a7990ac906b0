"""Find the commits after a snapshot, so that its holder needn't open the table again.

Opening a table costs a hint, a listing, a checkpoint and every commit after it. A process that holds a
snapshot reads only the new commits, and advances the snapshot with them (`Snapshot.advance`).

That is correct only while the log is still the one from which the snapshot was read: it may have been
cleaned up, or the table deleted and created anew. So each call checks that the file of the snapshot's
newest commit has the same size and time. In any doubt (a gap, a commit of zero bytes) the caller must open
the table again. For a managed table the commit owner lists the new commits; see `ratified`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_delta.engine.commit.registry import OwnedTable
from airflow_delta.engine.errors import ObjectNotFoundError
from airflow_delta.engine.log.files import Commit, LogCommit, commit_path
from airflow_delta.engine.log.listing import list_log
from airflow_delta.engine.log.newest import find_latest_version
from airflow_delta.engine.log.segment import LogSegment
from airflow_delta.engine.snapshot.ratified import ratified_after
from airflow_delta.engine.snapshot.segment_commits import parse_common_columns
from airflow_delta.engine.storage.base import Storage, exists

if TYPE_CHECKING:
    from airflow_delta.engine.arrow.json.reader import ParsedCommits

__all__ = ["NewCommits", "commits_after", "is_newest", "read_new_commits"]

_PROBES = 32
"""New commits to look up one by one on a file system; for more, a listing is cheaper."""


@dataclass(frozen=True, slots=True)
class NewCommits:
    """Consecutive commits that have been read.

    Attributes:
        commits: their files, ascending by version.
        parsed: their actions.
    """

    commits: tuple[LogCommit, ...]
    parsed: ParsedCommits


def commits_after(
    storage: Storage, known: LogCommit, owned: OwnedTable | None = None
) -> tuple[LogCommit, ...] | None:
    """The commits after a known one, up to the newest.

    Args:
        storage: where the log is.
        known: a commit that was found earlier.
        owned: the table and its commit owner, as of the known commit; None for a table without
            commit owner.

    Returns:
        The commits; none if the known one is the newest. None if the known commit no longer exists,
        or if the following ones aren't a complete log.

    Raises:
        CommitOwnerError: the owner can't be reached, or doesn't have the table.
        StorageError: the store failed.
    """
    logged: tuple[Commit, ...] | None
    if isinstance(known, Commit):
        # A commit in the log counts, even if the owner doesn't know yet that it is backfilled.
        logged = _logged_after(storage, known)
    else:
        # The name of an un-backfilled commit identifies it.
        logged = () if owned is not None and exists(storage, known.path) else None
    if owned is None or logged is None:
        return logged
    following = ratified_after(storage, logged[-1] if logged else known, owned)
    return None if following is None else (*logged, *following)


def _logged_after(storage: Storage, known: Commit) -> tuple[Commit, ...] | None:
    if storage.capabilities.remote:
        found = list_log(storage, start=known.version).commits
    else:
        # A file system lists all names of a directory or none, however many there are.
        found = tuple(_one_by_one(storage, known.version))
    if not found or found[0] != known:
        return None
    following = range(known.version + 1, known.version + len(found))
    if any(
        commit.version != version or commit.size == 0
        for commit, version in zip(found[1:], following, strict=True)
    ):
        return None
    return found[1:]


def is_newest(storage: Storage, segment: LogSegment, owned: OwnedTable | None = None) -> bool:
    """Whether a version is still the newest of its table.

    It isn't enough that the next commit doesn't exist: a cleanup may have deleted the later
    commits, or the table may have been deleted and created anew.

    Args:
        storage: where the log is.
        segment: the segment of the version.
        owned: see `commits_after`.

    Raises:
        TableNotFoundError: the table no longer exists.
        CommitOwnerError: the owner can't be reached, or doesn't have the table.
        StorageError: the store failed.
    """
    known = segment.last_commit
    if known is not None and (owned is not None or isinstance(known, Commit)):
        return commits_after(storage, known, owned) == ()
    # The version has only a checkpoint: there is no commit to recognise the log by.
    return find_latest_version(storage) == segment.version


def read_new_commits(storage: Storage, commits: tuple[LogCommit, ...], *, table: str) -> NewCommits:
    """Read and parse the commits with which a snapshot is advanced.

    Raises:
        ObjectNotFoundError: one vanished since it was listed.
        CorruptLogError: one breaks the protocol.
        StorageError: the store failed.
    """
    return NewCommits(commits, parse_common_columns(storage, commits, table=table))


def _one_by_one(storage: Storage, start: int) -> Iterator[Commit]:
    for version in range(start, start + _PROBES):
        path = commit_path(version)
        try:
            info = storage.head(path)
        except ObjectNotFoundError:
            return
        yield Commit(version, path, info.size, info.modified_ms)
    yield from list_log(storage, start=start + _PROBES).commits
