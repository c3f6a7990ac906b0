"""`CommitLoop`: attempt to commit until an attempt succeeds or none can.

Each attempt

1. prepares the staged actions for the version after the newest known one (``prepare``);
2. checks that the newest known version is still the newest (`_is_current`);
3. has a committer make the version: the file system or the table's commit owner (``commit/committers.py``);
4. if another writer has made the version: pauses, loads the commits made since, and checks each of them for
   conflicts (`conflicts`). The next attempt starts from the newest version.

docs/explanation/how-a-commit-happens.md gives the reasons.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass

from airflow_delta.engine.clock import now_ms
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
from airflow_delta.engine.features.protocol import supported_features
from airflow_delta.engine.features.row_tracking import FEATURE as ROW_TRACKING
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
from airflow_delta.engine.transaction.prepare import (
    Prepared,
    check_definition,
    commit_text,
    prepare,
)
from airflow_delta.engine.transaction.provenance import Provenance, is_blind_append
from airflow_delta.engine.transaction.reads import Reads
from airflow_delta.engine.transaction.result import CommitResult, is_checkpoint_due
from airflow_delta.engine.transaction.staged import Actions
from airflow_delta.engine.transaction.stale_log import check_no_stale_log
from airflow_delta.engine.transaction.winning_commits import load_concurrent_commits

__all__ = ["MAX_ATTEMPTS", "CommitLoop", "CommitRequest", "monotonic_s", "now_ms", "pause"]

MAX_ATTEMPTS = 200
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.005, 0.25
"""The bounds of a pause. A writer that has lost often must not wait much longer than the others, or it
never gets its turn."""

_LATEST_MS = 2**63 - 1
"""Times in the log are integers of 64 bits."""

_FRESH_S = 5.0
"""For so long a version of a remote table is believed to be the newest. Cleanups keep logs for days, so
that a version can't disappear sooner."""


@dataclass(frozen=True, slots=True)
class CommitRequest:
    """A transaction's request to commit.

    Attributes:
        storage: the table's storage.
        actions: the staged actions.
        reads: what the transaction has read.
        provenance: the content of ``commitInfo``.
        base: the version that the first attempt follows; None to create the table.
        enforced: the features whose rules the writer has enforced; see `CommitContext`.
        newest_at_s: when `base` was found to be the newest version, at the latest, by `monotonic_s`; None
            if unknown.
        owners: the known commit owners.
        owned: the table and its commit owner as of `base`; None if the file system manages the table, or
            the table is new.
    """

    storage: Storage
    actions: Actions
    reads: Reads
    provenance: Provenance
    base: Snapshot | None
    enforced: frozenset[str]
    newest_at_s: float | None
    owners: CommitOwners
    owned: OwnedTable | None


class CommitLoop:
    """The attempts of one transaction to commit.

    If the table gets or loses its commit owner, that is a change of protocol and metadata, and so a
    conflict. Therefore one owner serves all attempts.

    Args:
        request: what to commit.

    Attributes:
        sent: what was sent to the store by now, or is about to be, by version.
    """

    def __init__(self, request: CommitRequest) -> None:
        self.sent: dict[int, CommitResult] = {}
        self._request = request
        self._storage, self._owned = request.storage, request.owned
        self._base, self._newest_at_s = request.base, request.newest_at_s
        self._enforced = request.enforced
        if request.base is not None and not _tracks_rows(request.base):
            # If another writer turns it on meanwhile, the rows that were copied before have lost their ids.
            self._enforced -= {ROW_TRACKING}

    def run(self) -> CommitResult:
        """Make attempts until one succeeds; see `OptimisticTransaction.commit` for the errors."""
        for attempt in range(1, MAX_ATTEMPTS + 1):
            prepared = self._prepare()
            if self._put(prepared, attempt):
                return self.sent[prepared.context.version]
            # Pause before loading the concurrent commits, so that they are as new as possible at the
            # next put.
            pause(attempt)
            if (made := self._follow_concurrent(prepared)) is not None:
                return made
        raise CommitConflictError(
            f"other writers were faster {MAX_ATTEMPTS} times in a row; run the operation again when "
            "the table is less busy",
            table=self._storage.root,
            version=prepared.context.version,
        )

    def check_definition(self) -> None:
        """Check the staged protocol, metadata and domains; see `prepare.check_definition`."""
        check_definition(self._request.actions, self._context())

    def _prepare(self) -> Prepared:
        try:
            return prepare(self._request.actions, self._context())
        except VersionNotFoundError as gone:
            if self._base is None or is_newest(self._storage, self._base.segment, self._owned):
                raise
            raise CommitConflictError(
                f"the version on which this commit is based was cleaned up concurrently ({gone.message}); "
                "run the operation again on the newest version",
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
                f"version {base.version} is the highest possible one, so nothing can be committed after "
                "it; no real writer reaches it, so remove the files of this version from the log",
                table=self._storage.root,
                version=base.version,
            )
        timestamp_ms = now_ms()
        if base is not None and is_enabled(protocol, metadata, table=self._storage.root):
            timestamp_ms = next_in_commit_timestamp(timestamp_ms, _time_of(base))
            if timestamp_ms > _LATEST_MS:
                raise InvalidTableError(
                    f"version {base.version} has the highest possible in-commit timestamp, so nothing can "
                    "be committed after it; no real clock reaches it, so remove the files of this version "
                    "from the log",
                    table=self._storage.root,
                    version=base.version,
                )
        return CommitContext(
            table=self._storage.root,
            version=0 if base is None else base.version + 1,
            timestamp_ms=timestamp_ms,
            protocol=protocol,
            metadata=metadata,
            base=base,
            operation=self._request.provenance.operation,
            enforced=self._enforced,
            restored_version=actions.restored_version,
            cloned_version=actions.purpose.version
            if isinstance(actions.purpose, CloneVersion)
            else None,
        )

    def _put(self, prepared: Prepared, attempt: int) -> bool:
        """Try to make the version. Return False if another writer made it."""
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
        # Recorded before the put: if something interrupts the put, the commit may be made all the same.
        self.sent[context.version] = result
        path = committer.commit(context.version, data, txn_id=self._request.provenance.txn_id)
        if path is None:
            return False
        if path != commit_path(context.version):
            return True  # Not backfilled: in the log the checksum would belong to no version.
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
        """The table and its commit owner after the commit. One owner can't replace another."""
        if commit_owner(context.supported, context.properties) is None:
            return None
        if self._owned is not None:
            return self._owned
        return self._request.owners.find_owned_table(
            self._storage, context.protocol, context.metadata
        )

    def _is_current(self) -> bool:
        """Whether the version to follow is still the newest.

        A put fails if the next version exists, but not if it existed before: a cleanup deleted it, or the
        table was deleted and created again. The commit would then lie before the checkpoint or behind a
        gap, and be lost. On a remote store, and for a commit owner, this check costs a request. So it is
        skipped for some seconds after the last one.
        """
        if self._base is None:
            check_no_stale_log(self._storage)
            return True
        now_s = monotonic_s()
        fresh = self._newest_at_s is not None and now_s - self._newest_at_s < _FRESH_S
        # Never skipped after a commit that isn't backfilled: the owner may have rolled it back since.
        costly = self._owned is not None or self._storage.capabilities.remote
        if fresh and costly and isinstance(self._base.segment.last_commit, Commit):
            return True
        if not is_newest(self._storage, self._base.segment, self._owned):
            return False
        self._newest_at_s = now_s
        return True

    def _follow_concurrent(self, prepared: Prepared) -> CommitResult | None:
        """Check the concurrent commits for conflicts, and continue from the newest version.

        Returns:
            The result, if one of the commits is our own: a put that seemed to have failed has succeeded
            after all. Otherwise None.
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
        newest_at_s = monotonic_s()
        concurrent = load_concurrent_commits(self._base, self._request.owners, self._owned)
        level = isolation_level(prepared.actions, prepared.context.properties)
        current = CurrentCommit(
            self._base, prepared.actions, self._request.reads, level, self._enforced
        )
        for winning in concurrent.parsed_commits:
            if winning.info.txn_id == txn_id:
                return self.sent[winning.version]
            check_conflicts(current, winning)
        self._base, self._newest_at_s = concurrent.newest(), newest_at_s
        return None


def _tracks_rows(base: Snapshot) -> bool:
    """Whether the rows of a version have ids that a writer can keep."""
    is_supported = ROW_TRACKING in supported_features(base.protocol)
    return is_supported and base.properties.row_tracking_enabled


def _time_of(base: Snapshot) -> int:
    """The in-commit timestamp of a version; from its version checksum, if its commit was cleaned up."""
    try:
        return base.timestamp_ms
    except VersionNotFoundError as gone:
        try:
            checksum = read_checksum(base.storage, base.version)
        except CorruptLogError:
            checksum = None
        if checksum is None or checksum.in_commit_timestamp is None:
            raise gone from None
        return checksum.in_commit_timestamp


def pause(attempt: int) -> None:
    """Wait for a random time after a lost race, so that the same writers don't collide again.

    Args:
        attempt: the number of attempts so far. The longest possible pause grows with it.
    """
    longest = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2**attempt)
    time.sleep(random.uniform(0, longest))  # noqa: S311 - jitter, no secret


def monotonic_s() -> float:
    """The monotonic clock, in seconds."""
    return time.monotonic()
