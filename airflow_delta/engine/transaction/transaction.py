"""`OptimisticTransaction`: stage actions, commit them as the next version, or learn why not.

PROTOCOL.md, "Requirements for Writers". A transaction reads a snapshot, notes what it looks at, stages
actions, and tries to make the next version. If another writer was faster it loads every commit made
meanwhile, checks each for conflicts, and tries again after them (`commit_loop`). Nothing is visible before
the commit. Where a commit fails the log is as it was, unless the error is `CommitOutcomeUnknownError`.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from airflow_delta.engine.commit.registry import CommitOwners, OwnedTable
from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.engine.features.protocol import Operation, check_writable, supported_features
from airflow_delta.engine.features.registry import FEATURES
from airflow_delta.engine.model.actions import (
    AddCdcFile,
    AddFile,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    Txn,
)
from airflow_delta.engine.model.arguments import (
    check_list,
    check_text,
    check_texts,
    check_type,
)
from airflow_delta.engine.scan.predicates.reading import PredicateLike, as_expression
from airflow_delta.engine.snapshot.snapshot import Snapshot
from airflow_delta.engine.storage.base import Storage
from airflow_delta.engine.transaction.commit_loop import CommitLoop, CommitRequest, now_ms
from airflow_delta.engine.transaction.file_rows import check_file_rows, remove_actions
from airflow_delta.engine.transaction.intent import (
    CheckedRows,
    CloneVersion,
    Intent,
    RestoreVersion,
    SystemDomain,
)
from airflow_delta.engine.transaction.provenance import (
    Provenance,
    check_operation,
    metric_texts,
    parameter_texts,
)
from airflow_delta.engine.transaction.result import CommitResult
from airflow_delta.engine.transaction.staged import Reads, StagedActions
from airflow_delta.engine.transaction.stale_log import check_no_stale_log

__all__ = ["CommitResult", "OptimisticTransaction", "check_identifier"]

_FEATURES = "a list of names of table features, such as ['checkConstraints']"
_FILES = "a list of AddFiles"
_CDC_FILES = "a list of AddCdcFiles"


class OptimisticTransaction:
    """One change of a table. Made by `DeltaTable.transaction`; commits at most once.

    Args:
        storage: where the table is.
        snapshot: the version that the change is based on; None to create the table.
        operation: what the commit calls itself, such as ``"WRITE"``.
        operation_parameters: its parameters; values that aren't strings are written as JSON.
        user_metadata: a text for ``commitInfo.userMetadata``.
        enforces: the features whose rules about rows the writer of the files to be added enforces, such
            as ``"checkConstraints"``.
        seen_s: when, by `commit_loop.monotonic_s`, the version was found to be the newest, at the latest;
            None where nobody can tell. It saves a request while that is a few seconds ago.
        owners: the commit owners that there are; those that are installed unless given.

    Raises:
        UnsupportedFeatureError: the table needs something of writers that the engine lacks.
        CommitOwnerUnavailableError: the table's commit owner isn't known here.
        TableAlreadyExistsError: the table is to be new, and is there without its first commits.
        InvalidTableError: the table is new, and there are remains of a former one's log.
        InvalidArgumentError: ``enforces`` names something that is no feature; or what the commit is to
            say of itself isn't of the right types.
    """

    def __init__(
        self,
        storage: Storage,
        snapshot: Snapshot | None,
        operation: str,
        *,
        operation_parameters: Mapping[str, Any] | None = None,
        user_metadata: str | None = None,
        enforces: Iterable[str] = (),
        seen_s: float | None = None,
        owners: CommitOwners | None = None,
    ) -> None:
        check_operation(operation, user_metadata, table=storage.root)
        self._storage = storage
        self._snapshot = snapshot
        self._operation = operation
        self._parameters = parameter_texts(operation_parameters, table=storage.root)
        self._user_metadata = user_metadata
        self._enforced = frozenset(check_texts("enforces", enforces, _FEATURES, table=storage.root))
        self._seen_s = seen_s
        self._owners = CommitOwners() if owners is None else owners
        self._owned: OwnedTable | None = None
        self._staged = StagedActions()
        self._reads = Reads()
        self._was_sent = False
        if unknown := sorted(self._enforced - FEATURES.keys()):
            raise InvalidArgumentError(
                f"enforces: expected {_FEATURES}, found {unknown}",
                table=self.table,
            )
        if snapshot is None:
            check_no_stale_log(storage)
        else:
            # Asked again before each attempt; refusing at once saves the work of writing data.
            check_writable(
                snapshot.protocol,
                snapshot.metadata,
                table=self.table,
                operation=Operation.COMMIT,
                enforced=self._enforced,
            )
            self._owned = self._owners.find_owned_table(
                storage, snapshot.protocol, snapshot.metadata
            )

    @property
    def table(self) -> str:
        """The table's location."""
        return self._storage.root

    @property
    def snapshot(self) -> Snapshot | None:
        """The version that the change is based on, None for a new table.

        What is found out by it isn't noted: for anything that the change relies on ask the transaction
        (`read_files`, `read_table`, `transaction_version`, `read_domain`). Protocol and metadata are
        relied on in any case.
        """
        return self._snapshot

    @property
    def base(self) -> Snapshot:
        """As `snapshot`, for those who change a table that is there.

        Raises:
            InvalidArgumentError: the table is new.
        """
        return self._existing()

    @property
    def read_version(self) -> int | None:
        """The number of the version that the change is based on, None for a new table."""
        return self._snapshot.version if self._snapshot else None

    def read_table(self) -> Snapshot:
        """The snapshot that the change is based on, noted as read whole.

        A commit made meanwhile that adds or removes any file is a conflict then.

        Raises:
            InvalidArgumentError: the table is new.
        """
        snapshot = self._existing()
        self._reads.whole_table = True
        return snapshot

    def read_files(
        self, predicate: PredicateLike | None = None, columns: Sequence[str] | None = None
    ) -> pa.Table:
        """The live files that may have rows for which a predicate is true, noted as read.

        A commit made meanwhile is a conflict then if it removes one of these files, or adds one whose
        partition values may match the predicate (edge case E8).

        Args:
            predicate: see `Snapshot.files`.
            columns: see `Snapshot.files`.

        Raises:
            InvalidArgumentError: the table is new; or as `Snapshot.files`.
        """
        snapshot = self._existing()
        expression = None
        if predicate is not None:
            # Once: what other writers add meanwhile is held against the same expression.
            expression = as_expression(predicate, snapshot.schema, table=self.table)
        wanted = [*columns, "path"] if columns and not isinstance(columns, str) else columns
        files = snapshot.files(columns=wanted, predicate=expression)
        self._reads.predicates.append(expression)
        self._reads.paths.append(files["path"])
        return files if columns is None else files.select(list(columns))

    def note_read(self, files: pa.Table) -> None:
        """Note files of the snapshot as read, by whatever way they were found.

        A commit made meanwhile is a conflict then if it removes one of them, not if it adds others.

        Args:
            files: rows of `Snapshot.files`, with the column ``path``.
        """
        self._reads.paths.append(files["path"])

    def transaction_version(self, app_id: str) -> int | None:
        """The last transaction of an application; one set meanwhile is a conflict then.

        PROTOCOL.md, "Transaction Identifiers".

        Raises:
            InvalidArgumentError: the application is no text.
        """
        check_text("app_id", app_id, table=self.table)
        self._reads.app_ids.add(app_id)
        txn = self._snapshot.transactions.get(app_id) if self._snapshot else None
        return txn.version if txn else None

    def read_domain(self, domain: str) -> DomainMetadata | None:
        """A metadata domain; one set or removed meanwhile is a conflict then.

        PROTOCOL.md, "Domain Metadata".

        Raises:
            InvalidArgumentError: the domain is no text.
        """
        check_text("domain", domain, table=self.table)
        self._reads.domains.add(domain)
        return self._snapshot.domains.get(domain) if self._snapshot else None

    def add_file(self, file: AddFile) -> None:
        """Stage a data file; it must be written already."""
        self._staged.adds.append(file)

    def add_files(self, files: Iterable[AddFile]) -> None:
        """Stage data files; they must be written already.

        Raises:
            InvalidArgumentError: they are no list. What is in it is looked at by `commit`.
        """
        check_list("files", files, _FILES, table=self.table)
        self._staged.adds.extend(files)

    def remove_file(self, file: RemoveFile) -> None:
        """Stage the logical removal of a data file."""
        self._staged.removes.append(file)

    def remove_files(self, rows: pa.Table, *, data_change: bool = True) -> None:
        """Stage the logical removal of data files, as rows of `read_files` or `Snapshot.files`.

        Example:
            ``transaction.remove_files(transaction.read_files("day = '2026-01-01'"))``

        Args:
            rows: a row for each file, with the columns ``path`` and ``deletionVector`` at least; what
                else a removal says is taken from the rows, or else from the table.
            data_change: False where the commit only rearranges data: the rows of the files are in files
                that it adds.

        Raises:
            InvalidArgumentError: these are no rows of files, or a column is missing. Whether the table has
                the files is looked at by `commit`.
        """
        base = self._existing()
        features = supported_features(base.protocol)
        has_vectors = "deletionVectors" in features
        check_file_rows(rows, has_vectors=has_vectors, table=self.table)
        self._staged.removes.extend(remove_actions(rows, data_change=data_change))

    def add_cdc_file(self, file: AddCdcFile) -> None:
        """Stage a file of changed rows (PROTOCOL.md, "Add CDC File"); it must be written already."""
        self._staged.cdc.append(file)

    def add_cdc_files(self, files: Iterable[AddCdcFile]) -> None:
        """Stage files of changed rows; see `add_cdc_file`, and `add_files` for the errors."""
        check_list("files", files, _CDC_FILES, table=self.table)
        self._staged.cdc.extend(files)

    def use_identity_values(self, column: str, furthest: int) -> None:
        """Tell which values of an identity column the staged files hold.

        The commit moves the column's high water mark, which is part of the table's metadata
        (PROTOCOL.md, "Identity Columns").

        Args:
            column: the column's logical name.
            furthest: the highest value in the files; the lowest where the column's step is negative.

        Raises:
            InvalidArgumentError: the name is no text.
        """
        check_text("column", column, table=self.table)
        self._staged.identity_marks[column] = furthest

    def set_transaction(self, app_id: str, version: int) -> None:
        """Stage the transaction identifier of an application (PROTOCOL.md, "Transaction Identifiers").

        Whoever sets one has decided so by the one that was there, wherever it was looked up; so a
        commit made meanwhile that sets the same application's is a conflict, as if by
        `transaction_version`. Otherwise two tries of one task could commit twice.

        Raises:
            InvalidArgumentError: the application is no text, or the version no integer of 64 bits.
        """
        check_identifier(app_id, version, table=self.table)
        self._reads.app_ids.add(app_id)
        self._staged.transactions[app_id] = Txn(app_id, version, now_ms())

    def set_domain(self, domain: str, configuration: str) -> None:
        """Stage the configuration of a user's metadata domain (PROTOCOL.md, "Domain Metadata").

        The table must support the feature ``domainMetadata``. A commit made meanwhile that sets or
        removes the same domain is a conflict.

        Raises:
            InvalidArgumentError: the domain belongs to the protocol, which begins its own with
                ``delta.``; or one of the two is no text.
        """
        check_text("configuration", configuration, table=self.table)
        self._set_domain(DomainMetadata(domain, configuration))

    def remove_domain(self, domain: str) -> None:
        """Stage the removal of a user's metadata domain; see `set_domain`."""
        self._set_domain(DomainMetadata(domain, "", removed=True))

    def declare(self, intent: Intent) -> None:
        """Stage what only the engine's own operations do; see `intent`.

        Raises:
            InvalidArgumentError: the transaction has another purpose already.
        """
        if isinstance(intent, SystemDomain):
            self._staged.domains[intent.action.domain] = intent.action
            return
        if isinstance(intent, CheckedRows):
            self._reads.whole_table = True
            self._staged.rows_checked = True
            return
        if self._staged.purpose is not None:
            raise InvalidArgumentError(
                f"a commit has one purpose: expected {type(self._staged.purpose).__name__}, found "
                f"{type(intent).__name__}; use a transaction for each",
                table=self.table,
            )
        if isinstance(intent, RestoreVersion | CloneVersion):
            self._reads.whole_table = True
        self._staged.purpose = intent

    def set_protocol(self, protocol: Protocol) -> None:
        """Stage the table's protocol, which may support more than before, and not less.

        Raises:
            InvalidArgumentError: it is no `Protocol`.
        """
        check_type("protocol", protocol, Protocol, "a Protocol", table=self.table)
        self._staged.protocol = protocol

    def set_metadata(self, metadata: Metadata) -> None:
        """Stage the table's metadata.

        Raises:
            InvalidArgumentError: they are no `Metadata`.
        """
        check_type("metadata", metadata, Metadata, "a Metadata", table=self.table)
        self._staged.metadata = metadata

    def commit(self, *, operation_metrics: Mapping[str, int] | None = None) -> CommitResult:
        """Make the next version of the table.

        May be called again after an error that came before anything was sent to the store, once
        what was wrong is put right. From then on a second call is refused, whatever became of the
        first one.

        Args:
            operation_metrics: numbers for ``commitInfo.operationMetrics``.

        Raises:
            InvalidArgumentError: there is nothing to commit, the commit was tried already, or a metric is
                no whole number.
            CommitConflictError: a commit made meanwhile touches what this one relies on, or is gone so
                that it can't be told what it touches.
            TableAlreadyExistsError: the table was to be created and is there.
            ConstraintViolationError: the staged actions break a rule.
            UnsupportedFeatureError: the table needs something of writers that the engine lacks, or a
                rule about rows that the writer doesn't enforce.
            InvalidTableError: protocol and metadata contradict the specification or each other.
            CommitOwnerUnavailableError: the table's commit owner can't be reached; nothing was committed.
            CommitOwnerError: the table's commit owner doesn't take the commit.
            CommitOutcomeUnknownError: the store, or the commit owner, failed so that it can't be told
                whether the commit was made.
            StorageError: the store failed and the commit was not made.
        """
        if self._was_sent:
            raise InvalidArgumentError(
                "this transaction was committed already, or tried to be; begin a new one",
                table=self.table,
            )
        actions = self._staged.freeze()
        if actions.is_empty:
            raise InvalidArgumentError("there is nothing to commit", table=self.table)
        provenance = Provenance(
            self._operation,
            self._parameters,
            metric_texts(operation_metrics, table=self.table),
            self._user_metadata,
            txn_id=str(uuid.uuid4()),
            read_version=self.read_version,
        )
        loop = CommitLoop(
            CommitRequest(
                self._storage,
                actions,
                self._reads,
                provenance,
                base=self._snapshot,
                enforced=self._enforced,
                seen_s=self._seen_s,
                owners=self._owners,
                owned=self._owned,
            )
        )
        try:
            return loop.run()
        finally:
            self._was_sent = bool(loop.sent)

    def _existing(self) -> Snapshot:
        if self._snapshot is None:
            raise InvalidArgumentError("a new table can't be read", table=self.table)
        return self._snapshot

    def _set_domain(self, action: DomainMetadata) -> None:
        check_text("domain", action.domain, table=self.table)
        if action.is_system_controlled:
            raise InvalidArgumentError(
                f"the metadata domain {action.domain!r} belongs to the protocol; take a name that "
                "doesn't begin with 'delta.'",
                table=self.table,
            )
        self._staged.domains[action.domain] = action


def check_identifier(app_id: object, version: object, *, table: str) -> None:
    """Make sure that an application id and a version can be a transaction identifier.

    Raises:
        InvalidArgumentError: they can't.
    """
    whole = isinstance(version, int) and not isinstance(version, bool) and _fits(version)
    if not (isinstance(app_id, str) and whole):
        raise InvalidArgumentError(
            "a transaction identifier is a text and an integer of 64 bits, found "
            f"{app_id!r} and {version!r}",
            table=table,
        )


def _fits(number: int) -> bool:
    return -(2**63) <= number < 2**63
