"""`OptimisticTransaction`: stage actions, commit them as the next version, or learn why not.

PROTOCOL.md, "Requirements for Writers". A transaction reads a snapshot, stages actions, and tries to
make the next version. If another writer was faster it loads every commit made meanwhile, checks
each for conflicts, and tries again after them. Nothing is visible before the commit. Where a commit
fails the log is as it was, unless the error is `CommitOutcomeUnknownError`.
"""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Iterable, Mapping
from typing import Any

from airflow_delta.engine.commit.filesystem import FileSystemCommitter
from airflow_delta.engine.errors import (
    CommitConflictError,
    InvalidArgumentError,
    TableAlreadyExistsError,
)
from airflow_delta.engine.features.in_commit_timestamps import is_enabled, next_in_commit_timestamp
from airflow_delta.engine.features.protocol import Operation, check_writable
from airflow_delta.engine.model.actions import (
    AddFile,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    Txn,
)
from airflow_delta.engine.snapshot.next_checksum import MadeCommit, leave_next_checksum
from airflow_delta.engine.snapshot.opening import open_newest
from airflow_delta.engine.snapshot.snapshot import Snapshot
from airflow_delta.engine.storage.base import Storage
from airflow_delta.engine.transaction.conflicts import check_conflicts
from airflow_delta.engine.transaction.context import CommitContext
from airflow_delta.engine.transaction.prepare import commit_text, prepare
from airflow_delta.engine.transaction.provenance import Provenance
from airflow_delta.engine.transaction.remains import check_no_remains
from airflow_delta.engine.transaction.result import CommitResult
from airflow_delta.engine.transaction.staged import Reads, StagedActions
from airflow_delta.engine.transaction.winners import load_winner

__all__ = ["CommitResult", "OptimisticTransaction"]

MAX_ATTEMPTS = 200
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.01, 2.0


class OptimisticTransaction:
    """One change of a table. Made by `DeltaTable.transaction`; commits at most once.

    Args:
        storage: where the table is.
        snapshot: the version that the change is based on; None to create the table.
        operation: what the commit calls itself, such as ``"WRITE"``.
        operation_parameters: its parameters; values that aren't strings are written as JSON.
        user_metadata: a text for ``commitInfo.userMetadata``.

    Raises:
        UnsupportedFeatureError: the table needs something of writers that the engine lacks.
        InvalidTableError: the table is new, and there are remains of a former one's log.
    """

    def __init__(
        self,
        storage: Storage,
        snapshot: Snapshot | None,
        operation: str,
        *,
        operation_parameters: Mapping[str, Any] | None = None,
        user_metadata: str | None = None,
    ) -> None:
        self._storage = storage
        self._snapshot = snapshot
        self._operation = operation
        self._parameters = dict(operation_parameters or {})
        self._user_metadata = user_metadata
        self._staged = StagedActions()
        self._reads = Reads()
        self._txn_id = str(uuid.uuid4())
        self._tried: dict[int, CommitResult] = {}
        if snapshot is None:
            check_no_remains(storage)
        else:
            # Asked again before each attempt; refusing at once saves the work of writing data.
            self._check_writable(snapshot.protocol, snapshot.metadata)

    @property
    def table(self) -> str:
        """The table's location."""
        return self._storage.root

    @property
    def read_version(self) -> int | None:
        """The version that the change is based on, None for a new table."""
        return self._snapshot.version if self._snapshot else None

    def add_file(self, file: AddFile) -> None:
        """Stage a data file; it must be written already."""
        self._staged.adds.append(file)

    def add_files(self, files: Iterable[AddFile]) -> None:
        """Stage data files; they must be written already."""
        self._staged.adds.extend(files)

    def remove_file(self, file: RemoveFile) -> None:
        """Stage the logical removal of a data file."""
        self._staged.removes.append(file)

    def set_transaction(self, app_id: str, version: int) -> None:
        """Stage the transaction identifier of an application (PROTOCOL.md, "Transaction Identifiers").

        A commit made meanwhile that sets the same application's identifier is a conflict.
        """
        self._staged.transactions[app_id] = Txn(app_id, version, _now_ms())

    def set_domain(self, domain: str, configuration: str) -> None:
        """Stage the configuration of a user's metadata domain (PROTOCOL.md, "Domain Metadata").

        The table must support the feature ``domainMetadata``. A commit made meanwhile that sets the
        same domain is a conflict.

        Raises:
            InvalidArgumentError: the domain belongs to the protocol, which begins its own with
                ``delta.``.
        """
        action = DomainMetadata(domain, configuration)
        if action.is_system_controlled:
            raise InvalidArgumentError(
                f"the metadata domain {domain!r} belongs to the protocol; take a name that doesn't "
                "begin with 'delta.'",
                table=self.table,
            )
        self._staged.domains[domain] = action

    def set_protocol(self, protocol: Protocol) -> None:
        """Stage the protocol of a new table.

        Raises:
            InvalidArgumentError: the table exists.
        """
        self._check_is_new("protocol")
        self._staged.protocol = protocol

    def set_metadata(self, metadata: Metadata) -> None:
        """Stage the metadata of a new table.

        Raises:
            InvalidArgumentError: the table exists.
        """
        self._check_is_new("metadata")
        self._staged.metadata = metadata

    def read_table(self) -> Snapshot:
        """The snapshot that the change is based on, marked as read whole.

        A commit made meanwhile that adds or removes any file is a conflict then.

        Raises:
            InvalidArgumentError: the table is new.
        """
        if self._snapshot is None:
            raise InvalidArgumentError("a new table can't be read", table=self.table)
        self._reads.whole_table = True
        return self._snapshot

    def transaction_version(self, app_id: str) -> int | None:
        """The last transaction of an application; one set meanwhile is a conflict then."""
        self._reads.app_ids.add(app_id)
        txn = self._snapshot.transactions.get(app_id) if self._snapshot else None
        return txn.version if txn else None

    def commit(self, *, operation_metrics: Mapping[str, int] | None = None) -> CommitResult:
        """Make the next version of the table.

        May be called again after an error that came before anything was sent to the store, once
        what was wrong is put right. From then on a second call is refused, whatever became of the
        first one.

        Args:
            operation_metrics: numbers for ``commitInfo.operationMetrics``.

        Raises:
            InvalidArgumentError: there is nothing to commit, or the commit was tried already.
            CommitConflictError: a commit made meanwhile touches what this one relies on.
            TableAlreadyExistsError: the table was to be created and is there.
            ConstraintViolationError: the staged actions break a rule.
            UnsupportedFeatureError: the table needs something of writers that the engine lacks.
            CommitOutcomeUnknownError: the store failed so that it can't be told whether the commit
                was made.
            StorageError: the store failed and the commit was not made.
        """
        if self._tried:
            raise InvalidArgumentError(
                "this transaction was committed already, or tried to be; begin a new one",
                table=self.table,
            )
        if self._staged.is_empty:
            raise InvalidArgumentError("there is nothing to commit", table=self.table)
        provenance = Provenance(
            self._operation,
            self._parameters,
            dict(operation_metrics or {}),
            self._user_metadata,
            self._txn_id,
        )
        base = self._snapshot
        for attempt in range(1, MAX_ATTEMPTS + 1):
            if (made := self._attempt(provenance, base, attempt)) is not None:
                return made
            lost = max(self._tried)
            base = self._newest(base)
            if (made := self._judge_winners(range(lost, base.version + 1))) is not None:
                return made
            pause = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2**attempt)
            time.sleep(random.uniform(0, pause))  # noqa: S311 - jitter, no secret
        raise CommitConflictError(
            f"other writers were faster {MAX_ATTEMPTS} times in a row; run the operation again when "
            "the table is less busy",
            table=self.table,
            version=max(self._tried),
        )

    def _attempt(
        self, provenance: Provenance, base: Snapshot | None, attempt: int
    ) -> CommitResult | None:
        context = self._context(base)
        self._check_writable(context.protocol, context.metadata)
        prepare(self._staged, context)
        in_commit = is_enabled(context.protocol, context.metadata, table=self.table)
        timestamp_ms = _now_ms()
        if in_commit and base is not None:
            timestamp_ms = next_in_commit_timestamp(timestamp_ms, base.timestamp_ms)
        info = provenance.commit_info(
            self._staged,
            self._reads,
            timestamp_ms=timestamp_ms,
            in_commit=in_commit,
            read_version=self.read_version,
        )
        data = commit_text(self._staged, info, timestamp_ms=timestamp_ms)
        result = CommitResult(
            context.version,
            timestamp_ms,
            len(self._staged.adds),
            len(self._staged.removes),
            attempt,
        )
        # Before the put: whatever interrupts it, the commit may have been made from here on.
        self._tried[context.version] = result
        committer = FileSystemCommitter(self._storage, table=self.table)
        if not committer.commit(context.version, data, txn_id=self._txn_id):
            return None
        leave_next_checksum(self._storage, base, self._made(context, info))
        return result

    def _context(self, base: Snapshot | None) -> CommitContext:
        if base is not None:
            return CommitContext(self.table, base.version + 1, base.protocol, base.metadata, base)
        if self._staged.protocol is None or self._staged.metadata is None:
            raise InvalidArgumentError(
                "a new table needs a protocol and metadata", table=self.table
            )
        return CommitContext(self.table, 0, self._staged.protocol, self._staged.metadata)

    def _made(self, context: CommitContext, info: Mapping[str, Any]) -> MadeCommit:
        return MadeCommit(
            context.version,
            info,
            context.protocol,
            context.metadata,
            self._staged.transactions,
            self._staged.domains,
            self._staged.adds,
            self._staged.removes,
        )

    def _newest(self, base: Snapshot | None) -> Snapshot:
        if base is None:
            raise TableAlreadyExistsError(
                "another writer created the table first; open it instead",
                table=self.table,
                version=0,
            )
        return open_newest(self._storage)

    def _judge_winners(self, versions: range) -> CommitResult | None:
        """Check commits for conflicts, oldest first; the result where one of them is our own."""
        for version in versions:
            winner = load_winner(self._storage, version)
            if winner.info.txn_id == self._txn_id:
                # A put of ours that was taken for lost has arrived after all.
                return self._tried[version]
            check_conflicts(self._staged, self._reads, winner)
        return None

    def _check_writable(self, protocol: Protocol, metadata: Metadata) -> None:
        check_writable(protocol, metadata, table=self.table, operation=Operation.APPEND)

    def _check_is_new(self, what: str) -> None:
        if self._snapshot is not None:
            raise InvalidArgumentError(
                f"the {what} of an existing table can't be changed by a transaction yet",
                table=self.table,
            )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
