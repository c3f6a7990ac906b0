"""Read the commits that other writers made while a transaction was open.

A transaction that lost the race for its version moves on to the newest version and checks every commit on
the way, in order (`conflicts`). Each `WinningCommit` comes with the protocol and the metadata before it, so
that its changes are known.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.action_schema import VERSION, FileActions
from airflow_delta.engine.arrow.python_arrays import scalar_of
from airflow_delta.engine.commit.registry import CommitOwners, OwnedTable
from airflow_delta.engine.errors import (
    CommitConflictError,
    CorruptLogError,
    MetadataChangedError,
    ObjectNotFoundError,
)
from airflow_delta.engine.log.completeness import check_commits
from airflow_delta.engine.log.files import LogCommit, UnbackfilledCommit
from airflow_delta.engine.log.listing import list_log
from airflow_delta.engine.model.actions import CommitInfo, Metadata, Protocol
from airflow_delta.engine.snapshot.new_commits import NewCommits, commits_after, read_new_commits
from airflow_delta.engine.snapshot.opening import open_newest
from airflow_delta.engine.snapshot.snapshot import Snapshot

__all__ = ["ConcurrentCommits", "WinningCommit", "load_concurrent_commits"]


@dataclass(frozen=True, slots=True)
class WinningCommit:
    """A commit that another writer made while a transaction was open.

    Attributes:
        table: the table's location.
        version: its version.
        info: its ``commitInfo``.
        files: its file actions: paths, partition values and deletion vectors at least.
        protocol: its ``protocol`` action, None where it has none.
        metadata: its ``metaData`` action, None where it has none.
        protocol_before: the protocol of the version before it.
        metadata_before: the metadata of the version before it.
        app_ids: the applications whose ``txn`` it set.
        domains: the domains whose ``domainMetadata`` it set or removed.
    """

    table: str
    version: int
    info: CommitInfo
    files: FileActions
    protocol: Protocol | None
    metadata: Metadata | None
    protocol_before: Protocol
    metadata_before: Metadata
    app_ids: frozenset[str] = frozenset()
    domains: frozenset[str] = frozenset()

    @property
    def protocol_after(self) -> Protocol:
        """The protocol after it."""
        return self.protocol or self.protocol_before

    @property
    def metadata_after(self) -> Metadata:
        """The metadata after it."""
        return self.metadata or self.metadata_before

    @property
    def is_blind_append(self) -> bool:
        """Whether its ``commitInfo`` says that it added files without reading any."""
        return self.info.is_blind_append is True


@dataclass(frozen=True, slots=True)
class ConcurrentCommits:
    """The commits made since a snapshot of a table.

    Attributes:
        base: the snapshot.
        commits: the commits.
        opened: the newest snapshot, if the table had to be opened again.
    """

    base: Snapshot
    commits: NewCommits
    opened: Snapshot | None = None

    @property
    def parsed_commits(self) -> Iterator[WinningCommit]:
        """The commits, oldest first.

        Raises:
            CorruptLogError: an action breaks the protocol.
        """
        return _parse_commits(
            self.commits, self.base.protocol, self.base.metadata, table=self.base.table
        )

    def newest(self) -> Snapshot:
        """The snapshot after the commits.

        Raises:
            MetadataChangedError: the table was replaced by another one.
            DeltaError: see `Snapshot.advance`.
        """
        newest = self.opened or self.base.advance(self.commits.commits, self.commits.parsed)
        _check_is_same_table(self.base, newest)
        return newest


def load_concurrent_commits(
    base: Snapshot, owners: CommitOwners | None = None, owned: OwnedTable | None = None
) -> ConcurrentCommits:
    """Find and read the commits since a snapshot.

    Args:
        base: the snapshot.
        owners: the known commit owners; none by default.
        owned: the table and its commit owner as of the snapshot; None if the file system manages the table.

    Raises:
        CommitOwnerError: the owner can't be reached, or doesn't have the table.
        MetadataChangedError: the table was replaced by another one.
        CommitConflictError: commits between the snapshot and the newest version are missing; or the
            snapshot's own version was taken back.
        TableNotFoundError: the table was deleted.
        CorruptLogError: the newest version can't be opened.
        StorageError: the store failed.
    """
    storage, known = base.storage, base.segment.last_commit
    commits = None if known is None else commits_after(storage, known, owned)
    if commits is not None:
        # A running cleanup, or a damaged commit that a checkpoint covers: open the table again below.
        with suppress(ObjectNotFoundError, CorruptLogError):
            return ConcurrentCommits(base, read_new_commits(storage, commits, table=base.table))
    return _reopen(base, owners)


def _reopen(base: Snapshot, owners: CommitOwners | None) -> ConcurrentCommits:
    """Open the newest version, and read the commits since a snapshot."""
    storage, version = base.storage, base.version
    newest = open_newest(storage, owners=owners, for_writing=True, parsed=True)
    _check_is_same_table(base, newest)
    commits = _commits_from(newest, version)
    if commits and commits[0].version == version:
        own, commits = commits[0], commits[1:]
        taken_back = _is_another(own, base.segment.last_commit)
    else:
        taken_back = newest.version < version
    if taken_back:
        raise CommitConflictError(
            f"version {version}, on which this commit is based, was taken back or replaced by "
            "another writer; run the operation again on the newest version",
            table=base.table,
            version=newest.version,
        )
    try:
        check_commits(commits, after=version, to=newest.version, table=base.table)
        return ConcurrentCommits(base, read_new_commits(storage, commits, table=base.table), newest)
    except (CorruptLogError, ObjectNotFoundError) as error:
        raise CommitConflictError(
            f"the newest version is {newest.version}, but commits since version {version}, on which this "
            "commit is based, were cleaned up or are damaged, so that conflicts with them can't be "
            "detected; run the operation again on the newest version",
            table=base.table,
            version=newest.version,
        ) from error


def _commits_from(newest: Snapshot, version: int) -> tuple[LogCommit, ...]:
    """The commits from a version on: those in the log, then those that aren't backfilled."""
    end = max(version, newest.version)
    listed = list_log(newest.storage, start=version, end=end).commits
    following = listed[-1].version + 1 if listed else version
    return (
        *listed,
        *(
            commit
            for commit in newest.segment.commits
            if isinstance(commit, UnbackfilledCommit) and commit.version >= following
        ),
    )


def _is_another(found: LogCommit, known: LogCommit | None) -> bool:
    """Whether a version's commit is another one than before; a backfilled commit is a copy of the same."""
    if known is None or found == known:
        return False
    return type(found) is type(known) or found.size != known.size


def _check_is_same_table(base: Snapshot, newest: Snapshot) -> None:
    if newest.metadata.id != base.metadata.id:
        raise MetadataChangedError(
            "the table was replaced by another one; run the operation again on the new table",
            table=newest.table,
            version=newest.version,
        )


def _parse_commits(
    commits: NewCommits, protocol: Protocol, metadata: Metadata, *, table: str
) -> Iterator[WinningCommit]:
    non_file: defaultdict[int, defaultdict[str, list[Mapping[str, Any]]]]
    non_file = defaultdict(lambda: defaultdict(list))
    for action in commits.parsed.non_file_actions:
        non_file[action.version][action.kind].append(action.value)
    for commit in commits.commits:
        parsed = _parse_commit(
            commit.version,
            non_file[commit.version],
            _of_version(commits.parsed.files, commit.version),
            before=(protocol, metadata),
            table=table,
        )
        protocol, metadata = parsed.protocol_after, parsed.metadata_after
        yield parsed


def _parse_commit(
    version: int,
    non_file: Mapping[str, Sequence[Mapping[str, Any]]],
    files: FileActions,
    *,
    before: tuple[Protocol, Metadata],
    table: str,
) -> WinningCommit:
    # If there are several of a kind the last one counts, as it does for the state of the table.
    info, protocol, metadata = (
        next(reversed(non_file.get(kind, ())), None)
        for kind in ("commitInfo", "protocol", "metaData")
    )
    where = f"commit {version}"
    return WinningCommit(
        table=table,
        version=version,
        info=CommitInfo.from_json(info or {}, version=version),
        files=files,
        protocol=None if protocol is None else Protocol.from_json(protocol, f"{where}: protocol"),
        metadata=None if metadata is None else Metadata.from_json(metadata, f"{where}: metaData"),
        protocol_before=before[0],
        metadata_before=before[1],
        app_ids=frozenset(str(txn.get("appId")) for txn in non_file.get("txn", ())),
        domains=frozenset(str(each.get("domain")) for each in non_file.get("domainMetadata", ())),
    )


def _of_version(files: FileActions, version: int) -> FileActions:
    wanted = scalar_of(version, pa.int64())
    adds, removes = (
        rows.filter(pc.equal(rows[VERSION], wanted)) for rows in (files.adds, files.removes)
    )
    return FileActions(adds, removes)
