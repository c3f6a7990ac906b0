"""Attempt after attempt, until a commit is made or can't be.

An attempt takes the staged actions through the stages of ``prepare``, against the newest version that is
known, and has a committer make a version of the result: the file system, or the table's commit owner
(``commit/committers.py``). If another writer took the version, all the commits made meanwhile are loaded at
once and checked for conflicts in their order, after a pause that grows and is left to chance, so that
writers that collided once don't again; the next attempt follows on the newest.

Before each put the version that it follows is looked at once more. The put fails where the next version
is there, but succeeds where it *was* there: a cleanup has taken it, or the table was deleted and another
one begun. Such a commit would lie before the checkpoint, or behind a gap, and be lost. On a remote store
and of a commit owner that look is a request, and so is left out while the last one is a few seconds old;
but never after a commit that isn't backfilled, which the owner's books may have lost since.

A table whose commit owner changes while a transaction is under way is a conflict in any case: to get an
owner or to lose it is a change of protocol and metadata. So one owner serves all attempts.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass

from airflow_delta.engine.commit.committers import choose_committer, finish_release
from airflow_delta.engine.commit.registry import CommitOwners, OwnedTable
from airflow_delta.engine.errors import (
    CommitConflictError,
    CorruptLogError,
    InvalidArgumentError,
    InvalidTableError,
    TableAlreadyExistsError,
    VersionNotFoundError,
)
from airflow_delta.engine.features.in_commit_timestamps import is_enabled, next_in_commit_timestamp
from airflow_delta.engine.features.managed_commits import commit_owner
from airflow_delta.engine.log.commit_file import read_commit_info
from airflow_delta.engine.log.files import MAX_VERSION, Commit, commit_path
from airflow_delta.engine.log.version_checksum import read_checksum
from airflow_delta.engine.snapshot.new_commits import is_newest
from airflow_delta.engine.snapshot.next_checksum import MadeCommit, leave_next_checksum
from airflow_delta.engine.snapshot.snapshot import Snapshot
from airflow_delta.engine.storage.base import Storage
from airflow_delta.engine.transaction.conflicts import CurrentCommit, check_conflicts
from airflow_delta.engine.transaction.context import CommitContext
from airflow_delta.engine.transaction.intent import CloneVersion
from airflow_delta.engine.transaction.isolation import isolation_level
from airflow_delta.engine.transaction.prepare import Prepared, commit_text, prepare
from airflow_delta.engine.transaction.provenance import Provenance, is_blind_append
from airflow_delta.engine.transaction.result import CommitResult, is_checkpoint_due
from airflow_delta.engine.transaction.staged import Actions, Reads
from airflow_delta.engine.transaction.stale_log import check_no_stale_log
from airflow_delta.engine.transaction.winning_commits import load_concurrent_commits

__all__ = ["MAX_ATTEMPTS", "CommitLoop", "CommitRequest", "monotonic_s", "now_ms", "pause"]

MAX_ATTEMPTS = 200
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.005, 0.25
"""A writer that has lost often must not wait much longer than the others, or it never gets its turn."""

_FRESH_S = 5.0
"""So long what was seen of a remote table is taken to be so: logs are kept for days."""


@dataclass(frozen=True, slots=True)
class CommitRequest:
    """What a transaction wants to commit.

    Attributes:
        storage: where the table is.
        actions: what is staged.
        reads: what was read.
        provenance: what the commit says of itself.
        base: the version that the first attempt follows; None to create the table.
        enforced: see `CommitContext`.
        seen_s: when `base` was found to be the newest version, at the latest, by `monotonic_s`; None if
            unknown.
        owners: the commit owners that are known.
        owned: the table and its commit owner as of `base`; None where the file system manages the table,
            and for a new one.
    """

    storage: Storage
    actions: Actions
    reads: Reads
    provenance: Provenance
    base: Snapshot | None
    enforced: frozenset[str]
    seen_s: float | None
    owners: CommitOwners
    owned: OwnedTable | None


class CommitLoop:
    """The attempts of one transaction to commit.

    Args:
        request: what is to be committed.

    Attributes:
        sent: what was sent to the store by now, or is about to be, by version.
    """

    def __init__(self, request: CommitRequest) -> None:
        self.sent: dict[int, CommitResult] = {}
        self._request = request
        self._storage, self._owned = request.storage, request.owned
        self._base, self._seen_s = request.base, request.seen_s

    def run(self) -> CommitResult:
        """Commit; see `OptimisticTransaction.commit` for the errors."""
        for attempt in range(1, MAX_ATTEMPTS + 1):
            prepared = self._prepared()
            if self._put(prepared, attempt):
                return self.sent[prepared.context.version]
            # First the pause: what is built on should be as new as can be when the put is sent.
            pause(attempt)
            if (made := self._follow_winners(prepared)) is not None:
                return made
        raise CommitConflictError(
            f"other writers were faster {MAX_ATTEMPTS} times in a row; run the operation again when "
            "the table is less busy",
            table=self._storage.root,
            version=prepared.context.version,
        )

    def _prepared(self) -> Prepared:
        try:
            return prepare(self._request.actions, self._context())
        except VersionNotFoundError as gone:
            if self._base is None or is_newest(self._storage, self._base.segment, self._owned):
                raise
            raise CommitConflictError(
                f"the version on which this commit is based was cleaned up meanwhile ({gone.message}); "
                "run the operation again on the new version",
                table=self._storage.root,
                version=gone.facts.get("latest"),
            ) from gone

    def _context(self) -> CommitContext:
        base, actions = self._base, self._request.actions
        protocol = actions.protocol or (None if base is None else base.protocol)
        metadata = actions.metadata or (None if base is None else base.metadata)
        if protocol is None or metadata is None:
            raise InvalidArgumentError(
                "a new table needs a protocol and metadata", table=self._storage.root
            )
        if base is not None and base.version >= MAX_VERSION:
            raise InvalidTableError(
                f"version {base.version} is the last that there can be, so that nothing can be committed "
                "after it: somebody has made up its number; remove the files of that version from the log",
                table=self._storage.root,
                version=base.version,
            )
        timestamp_ms = now_ms()
        if base is not None and is_enabled(protocol, metadata, table=self._storage.root):
            timestamp_ms = next_in_commit_timestamp(timestamp_ms, _time_of(base))
        return CommitContext(
            table=self._storage.root,
            version=0 if base is None else base.version + 1,
            timestamp_ms=timestamp_ms,
            protocol=protocol,
            metadata=metadata,
            base=base,
            operation=self._request.provenance.operation,
            enforced=self._request.enforced,
            restored_version=actions.restored_version,
            cloned_version=actions.purpose.version
            if isinstance(actions.purpose, CloneVersion)
            else None,
        )

    def _put(self, prepared: Prepared, attempt: int) -> bool:
        """Try to make the version; False where another writer made it."""
        actions, context = prepared.actions, prepared.context
        info = self._request.provenance.commit_info(
            timestamp_ms=context.timestamp_ms,
            in_commit=is_enabled(context.protocol, context.metadata, table=context.table),
            isolation=isolation_level(actions, context.properties),
            blind=is_blind_append(actions, self._request.reads),
            tags=prepared.tags,
        )
        data = commit_text(actions, info, timestamp_ms=context.timestamp_ms)
        result = CommitResult(
            context.version,
            context.timestamp_ms,
            len(actions.adds),
            len(actions.removes),
            attempt,
            checkpoint_due=is_checkpoint_due(context.version, context.properties),
        )
        committer = choose_committer(
            self._storage, before=self._owned, after=self._owned_after(context)
        )
        if self._base is not None and self._owned is None:
            finish_release(self._storage, self._base.segment.commits)
        if not self._is_current():
            return False
        # Before the put: whatever interrupts it, the commit may have been made from here on.
        self.sent[context.version] = result
        path = committer.commit(context.version, data, txn_id=self._request.provenance.txn_id)
        if path is None:
            return False
        if path != commit_path(context.version):
            return True  # to those who see the log alone, a checksum would be of no version
        made = MadeCommit(
            context.version,
            info,
            context.protocol,
            context.metadata,
            {txn.app_id: txn for txn in actions.transactions},
            actions.domains,
            actions.adds,
            actions.removes,
        )
        leave_next_checksum(self._storage, self._base, made)
        return True

    def _owned_after(self, context: CommitContext) -> OwnedTable | None:
        """The table and its owner as the commit leaves it; an owner doesn't give way to another one."""
        if commit_owner(context.supported, context.properties) is None:
            return None
        if self._owned is not None:
            return self._owned
        return self._request.owners.find_owned_table(
            self._storage, context.protocol, context.metadata
        )

    def _is_current(self) -> bool:
        """Whether the version to follow is the newest; see the module."""
        if self._base is None:
            check_no_stale_log(self._storage)
            return True
        now_s = monotonic_s()
        fresh = self._seen_s is not None and now_s - self._seen_s < _FRESH_S
        # Of a commit that isn't backfilled the owner's books are all that makes it count.
        costly = self._owned is not None or self._storage.capabilities.remote
        if fresh and costly and isinstance(self._base.segment.last_commit, Commit):
            return True
        if not is_newest(self._storage, self._base.segment, self._owned):
            return False
        self._seen_s = now_s
        return True

    def _follow_winners(self, prepared: Prepared) -> CommitResult | None:
        """Go on to the newest version, if nothing on the way is in ours.

        Returns:
            The result where one of the commits is our own: a put that was taken for lost has arrived
            after all.
        """
        txn_id = self._request.provenance.txn_id
        if self._base is None:
            if (read_commit_info(self._storage, 0) or {}).get("txnId") == txn_id:
                return self.sent[0]
            raise TableAlreadyExistsError(
                "another writer created the table first; open it instead",
                table=self._storage.root,
                version=0,
            )
        seen_s = monotonic_s()
        meanwhile = load_concurrent_commits(self._base, self._request.owners, self._owned)
        level = isolation_level(prepared.actions, prepared.context.properties)
        current = CurrentCommit(
            self._base, prepared.actions, self._request.reads, level, self._request.enforced
        )
        for winner in meanwhile.winners:
            if winner.info.txn_id == txn_id:
                return self.sent[winner.version]
            check_conflicts(current, winner)
        self._base, self._seen_s = meanwhile.newest(), seen_s
        return None


def _time_of(base: Snapshot) -> int:
    """The in-commit timestamp of a version, even where its commit is gone and its checksum tells it."""
    try:
        return base.timestamp_ms
    except VersionNotFoundError as gone:
        try:
            told = read_checksum(base.storage, base.version)
        except CorruptLogError:
            told = None
        if told is None or told.in_commit_timestamp is None:
            raise gone from None
        return told.in_commit_timestamp


def pause(attempt: int) -> None:
    """Wait after a lost race.

    Args:
        attempt: how many attempts were made.
    """
    longest = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2**attempt)
    time.sleep(random.uniform(0, longest))  # noqa: S311 - jitter, no secret


def monotonic_s() -> float:
    """A clock that is never set, in seconds from any point in time."""
    return time.monotonic()


def now_ms() -> int:
    """The clock of the commit, in epoch milliseconds."""
    return time.time_ns() // 1_000_000
