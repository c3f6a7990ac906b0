"""The commits after a snapshot: how whoever holds one learns what was committed since.

Opening a table again costs a hint, a listing, a checkpoint and every commit after it. Whoever holds a
snapshot needs just the commits that are new, and carries it on by them (`Snapshot.advance`).

That is right only while the log is still the one that the snapshot was read from. A cleanup may have
taken the new commits as well; or the table was deleted, and another one created in its place. Then the
snapshot's own newest commit is gone, or is another file by size and time, and so that file is looked at
as well, each time. Any doubt (a gap, a commit of zero bytes) is left to a fresh look at the log, which
has the words for it.

Of a managed table it is the commit owner who tells which commits are new; see `ratified`.
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
from airflow_delta.engine.storage.base import Storage

if TYPE_CHECKING:
    from airflow_delta.engine.arrow.json.reader import ParsedCommits

__all__ = ["NewCommits", "commits_after", "is_newest", "read_new_commits"]

_PROBES = 32
"""So many commits are asked for one by one, where that is cheaper than listing; then it isn't."""


@dataclass(frozen=True, slots=True)
class NewCommits:
    """Consecutive commits, read.

    Attributes:
        commits: their files, ascending by version.
        parsed: what they say.
    """

    commits: tuple[LogCommit, ...]
    parsed: ParsedCommits


def commits_after(
    storage: Storage, known: LogCommit, owned: OwnedTable | None = None
) -> tuple[LogCommit, ...] | None:
    """The commits that follow one, up to the newest.

    Args:
        storage: where the log is.
        known: a commit as an earlier look had it.
        owned: the table and its commit owner, as of the known commit; None for a table that the file
            system manages.

    Returns:
        The commits, none where the known one is the newest. None where the known one isn't there any
        more, or what follows is no whole log.

    Raises:
        CommitOwnerError: the owner can't be reached, or doesn't have the table.
        StorageError: the store failed.
    """
    logged: tuple[Commit, ...] | None
    if isinstance(known, Commit):
        # What is in the log is proven, even where the owner's books lag behind it.
        logged = _logged_after(storage, known)
    else:
        logged = () if owned is not None and _is_there(storage, known) else None
    if owned is None or logged is None:
        return logged
    following = ratified_after(storage, logged[-1] if logged else known, owned)
    return None if following is None else (*logged, *following)


def _logged_after(storage: Storage, known: Commit) -> tuple[Commit, ...] | None:
    if storage.capabilities.remote:
        found = list_log(storage, start=known.version).commits
    else:
        # A directory of a file system gives all its names or none, however many there are.
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

    That the name of the next commit is free doesn't tell: where a cleanup has taken the commits after
    the version, or the table was deleted and made anew, the name is free and long past.

    Args:
        storage: where the log is.
        segment: the part of the log that gave the version.
        owned: see `commits_after`.

    Raises:
        TableNotFoundError: there is no table any more.
        CommitOwnerError: the owner can't be reached, or doesn't have the table.
        StorageError: the store failed.
    """
    known = segment.last_commit
    if known is not None and (owned is not None or isinstance(known, Commit)):
        return commits_after(storage, known, owned) == ()
    # Known by its checkpoint alone: there is no commit to be recognised.
    return find_latest_version(storage) == segment.version


def read_new_commits(storage: Storage, commits: tuple[LogCommit, ...], *, table: str) -> NewCommits:
    """Read commits and parse what a snapshot is carried on by.

    Raises:
        ObjectNotFoundError: one vanished since it was listed.
        CorruptLogError: one breaks the protocol.
        StorageError: the store failed.
    """
    return NewCommits(commits, parse_common_columns(storage, commits, table=table))


def _is_there(storage: Storage, known: LogCommit) -> bool:
    """Whether a commit that wasn't backfilled is still there; its name alone tells that it is the same."""
    try:
        storage.head(known.path)
    except ObjectNotFoundError:
        return False
    return True


def _one_by_one(storage: Storage, start: int) -> Iterator[Commit]:
    for version in range(start, start + _PROBES):
        path = commit_path(version)
        try:
            info = storage.head(path)
        except ObjectNotFoundError:
            return
        yield Commit(version, path, info.size, info.modified_ms)
    yield from list_log(storage, start=start + _PROBES).commits
