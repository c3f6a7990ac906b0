"""`OptimisticTransaction`: read a version of a table, stage actions, commit them as the next version.

The transaction collects what the caller reads (`reads`) and stages (`staged`). `commit` hands both to
`commit_loop`, which prepares the actions and makes the version. If other writers were faster, it checks
their commits for conflicts with what was read, and follows them. Nothing is visible before the commit.
After a failed commit the log is as it was, unless the error is `CommitOutcomeUnknownError`.

PROTOCOL.md, "Requirements for Writers"; docs/explanation/how-a-commit-happens.md.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from airflow_delta.engine.clock import now_ms
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
from airflow_delta.engine.transaction.commit_loop import CommitLoop, CommitRequest
from airflow_delta.engine.transaction.file_rows import check_file_rows, remove_actions
from airflow_delta.engine.transaction.intent import (
    CheckedRows,
    CloneVersion,
    Intent,
    RestoreVersion,
)
from airflow_delta.engine.transaction.provenance import (
    Provenance,
    check_operation,
    metric_texts,
    parameter_texts,
)
from airflow_delta.engine.transaction.reads import Reads
from airflow_delta.engine.transaction.result import CommitResult
from airflow_delta.engine.transaction.staged import StagedActions
from airflow_delta.engine.transaction.stale_log import check_no_stale_log
from airflow_delta.engine.transaction.task_run import current_task_run

__all__ = ["CommitResult", "OptimisticTransaction"]

_FEATURES = "a list of names of table features, such as ['checkConstraints']"
_FILES = "a list of AddFiles"
_CDC_FILES = "a list of AddCdcFiles"


class OptimisticTransaction:
    """One change of a table, which commits at most once. `DeltaTable.transaction` makes it.

    Args:
        storage: the table's storage.
        snapshot: the version that the change is based on; None to create the table.
        operation: the name of the operation in ``commitInfo``, such as ``"WRITE"``.
        operation_parameters: its parameters; values that aren't strings are written as JSON.
        user_metadata: a text for ``commitInfo.userMetadata``.
        enforces: the features whose rules about rows the writer of the added files enforces, such as
            ``"checkConstraints"``.
        newest_at_s: a time, by `commit_loop.monotonic_s`, at which the snapshot was the newest version;
            None if unknown. If it is less than a few seconds ago, the commit saves a request to the store.
        owners: the known commit owners; by default those that are installed.

    Raises:
        UnsupportedFeatureError: the table needs something of writers that the engine lacks.
        CommitOwnerUnavailableError: the table's commit owner isn't known here.
        TableAlreadyExistsError: the table is to be created, but exists; its first commits were cleaned up.
        InvalidTableError: the table is to be created, but files of a former table's log are left.
        InvalidArgumentError: ``enforces`` names an unknown feature; or an argument for ``commitInfo`` has
            the wrong type.
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
        newest_at_s: float | None = None,
        owners: CommitOwners | None = None,
    ) -> None:
        check_operation(operation, user_metadata, table=storage.root)
        self._storage = storage
        self._snapshot = snapshot
        self._operation = operation
        self._parameters = parameter_texts(operation_parameters, table=storage.root)
        self._user_metadata = user_metadata
        self._enforced = frozenset(check_texts("enforces", enforces, _FEATURES, table=storage.root))
        self._newest_at_s = newest_at_s
        self._owners = CommitOwners() if owners is None else owners
        self._owned: OwnedTable | None = None
        self._staged = StagedActions(storage.root)
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
            # Each attempt checks it again. An early error saves the work of writing data.
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
        """The version that the change is based on; None for a new table.

        The transaction doesn't record what you read from it. If your change relies on files, transaction
        identifiers or metadata domains, read them with `read_files`, `read_table`, `transaction_version`
        and `read_domain`, so that concurrent changes of them are conflicts. Concurrent changes of protocol
        and metadata are always checked.
        """
        return self._snapshot

    @property
    def base(self) -> Snapshot:
        """The version that the change is based on, for changes of an existing table.

        Raises:
            InvalidArgumentError: the table is new.
        """
        return self._existing()

    @property
    def read_version(self) -> int | None:
        """The number of the version that the change is based on; None for a new table."""
        return self._snapshot.version if self._snapshot else None

    def read_table(self) -> Snapshot:
        """Record that the whole table was read, and return the snapshot that the change is based on.

        A concurrent commit that adds or removes any file is then a conflict.

        Raises:
            InvalidArgumentError: the table is new.
        """
        snapshot = self._existing()
        self._reads.whole_table = True
        return snapshot

    def read_files(
        self, predicate: PredicateLike | None = None, columns: Sequence[str] | None = None
    ) -> pa.Table:
        """Return the live files that may have rows that match a predicate, and record that they were read.

        A concurrent commit is then a conflict if it removes one of these files, or adds a file whose
        partition values may match the predicate.

        Args:
            predicate: see `Snapshot.files`.
            columns: see `Snapshot.files`.

        Raises:
            InvalidArgumentError: the table is new; or as `Snapshot.files`.
        """
        snapshot = self._existing()
        expression = None
        if predicate is not None:
            # Parsed once: the files of concurrent commits are compared with the same expression.
            expression = as_expression(predicate, snapshot.schema, table=self.table)
        wanted = [*columns, "path"] if columns and not isinstance(columns, str) else columns
        files = snapshot.files(columns=wanted, predicate=expression)
        self._reads.predicates.append(expression)
        self._reads.paths.append(files["path"])
        return files if columns is None else files.select(list(columns))

    def note_read(self, files: pa.Table) -> None:
        """Record that files of the snapshot were read, however they were found.

        A concurrent commit is then a conflict if it removes one of them, but not if it adds others.

        Args:
            files: rows of `Snapshot.files`, with the column ``path``.
        """
        self._reads.paths.append(files["path"])

    def transaction_version(self, app_id: str) -> int | None:
        """Return an application's last transaction, if any, and record that it was read.

        A concurrent commit that sets the application's transaction is then a conflict. PROTOCOL.md,
        "Transaction Identifiers".

        Raises:
            InvalidArgumentError: the application isn't a text.
        """
        check_text("app_id", app_id, table=self.table)
        self._reads.app_ids.add(app_id)
        txn = self._snapshot.transactions.get(app_id) if self._snapshot else None
        return txn.version if txn else None

    def read_domain(self, domain: str) -> DomainMetadata | None:
        """Return a metadata domain, if there is one, and record that it was read.

        A concurrent commit that sets or removes the domain is then a conflict. PROTOCOL.md, "Domain
        Metadata".

        Raises:
            InvalidArgumentError: the domain isn't a text.
        """
        check_text("domain", domain, table=self.table)
        self._reads.domains.add(domain)
        return self._snapshot.domains.get(domain) if self._snapshot else None

    def add_file(self, file: AddFile) -> None:
        """Stage a data file. The file itself must be written already."""
        self._staged.adds.append(file)

    def add_files(self, files: Iterable[AddFile]) -> None:
        """Stage data files. The files themselves must be written already.

        Raises:
            InvalidArgumentError: this is no list. `commit` checks its items.
        """
        check_list("files", files, _FILES, table=self.table)
        self._staged.adds.extend(files)

    def remove_file(self, file: RemoveFile) -> None:
        """Stage the logical removal of a data file."""
        self._staged.removes.append(file)

    def remove_files(self, rows: pa.Table, *, data_change: bool = True) -> None:
        """Stage the logical removal of data files, given as rows of `read_files` or `Snapshot.files`.

        Example:
            ``transaction.remove_files(transaction.read_files("day = '2026-01-01'"))``

        Args:
            rows: one row for each file, with at least the columns ``path`` and ``deletionVector``. The
                other fields of a ``remove`` come from the rows, or else from the table.
            data_change: False if the commit only rearranges data, so that it adds other files with the same
                rows.

        Raises:
            InvalidArgumentError: these are no rows of files, or a column is missing. `commit` checks
                whether the table has the files.
        """
        base = self._existing()
        features = supported_features(base.protocol)
        has_vectors = "deletionVectors" in features
        check_file_rows(rows, has_vectors=has_vectors, table=self.table)
        self._staged.removes.extend(remove_actions(rows, data_change=data_change))

    def add_cdc_file(self, file: AddCdcFile) -> None:
        """Stage a change data file, which must be written already (PROTOCOL.md, "Add CDC File")."""
        self._staged.cdc.append(file)

    def add_cdc_files(self, files: Iterable[AddCdcFile]) -> None:
        """Stage change data files; see `add_cdc_file`, and `add_files` for the errors."""
        check_list("files", files, _CDC_FILES, table=self.table)
        self._staged.cdc.extend(files)

    def use_identity_values(self, column: str, furthest: int) -> None:
        """Record which values of an identity column the staged files contain.

        The commit moves the column's high water mark, which is part of the table's metadata (PROTOCOL.md,
        "Identity Columns").

        Args:
            column: the column's logical name.
            furthest: the highest value in the files; the lowest if the column's step is negative.

        Raises:
            InvalidArgumentError: the name isn't a text.
        """
        check_text("column", column, table=self.table)
        self._staged.identity_marks[column] = furthest

    def set_transaction(self, app_id: str, version: int) -> None:
        """Stage the transaction identifier of an application (PROTOCOL.md, "Transaction Identifiers").

        This also records that the application's identifier was read, as `transaction_version` does, because
        the caller chose the new one by the last one, wherever it looked that up. Without the record two
        tries of one task could both commit.

        Raises:
            InvalidArgumentError: the application isn't a text, or the version isn't a 64-bit integer.
        """
        self._staged.set_transaction(app_id, version, now_ms=now_ms())
        self._reads.app_ids.add(app_id)

    def set_domain(self, domain: str, configuration: str) -> None:
        """Stage the configuration of a user's metadata domain (PROTOCOL.md, "Domain Metadata").

        The table must support the feature ``domainMetadata``. A concurrent commit that sets or removes the
        same domain is a conflict.

        Raises:
            InvalidArgumentError: the name begins with ``delta.``, so that the domain belongs to the
                protocol; or an argument isn't a text.
        """
        check_text("configuration", configuration, table=self.table)
        self._staged.set_user_domain(DomainMetadata(domain, configuration))

    def remove_domain(self, domain: str) -> None:
        """Stage the removal of a user's metadata domain; see `set_domain`."""
        self._staged.set_user_domain(DomainMetadata(domain, "", removed=True))

    def declare(self, intent: Intent) -> None:
        """Stage an intent that only the engine's own operations have; see `intent`.

        Raises:
            InvalidArgumentError: the transaction has another purpose already.
        """
        self._staged.declare(intent)
        if isinstance(intent, RestoreVersion | CloneVersion | CheckedRows):
            self._reads.whole_table = True

    def set_protocol(self, protocol: Protocol) -> None:
        """Stage the table's protocol. It must support all features that the table supports now.

        Raises:
            InvalidArgumentError: this is no `Protocol`.
        """
        check_type("protocol", protocol, Protocol, "a Protocol", table=self.table)
        self._staged.protocol = protocol

    def set_metadata(self, metadata: Metadata) -> None:
        """Stage the table's metadata.

        Raises:
            InvalidArgumentError: this is no `Metadata`.
        """
        check_type("metadata", metadata, Metadata, "a Metadata", table=self.table)
        self._staged.metadata = metadata

    def commit(self, *, operation_metrics: Mapping[str, int] | None = None) -> CommitResult:
        """Make the next version of the table.

        If an error occurs before anything is sent to the store, you may correct the cause and call this
        again. After something was sent, a second call is refused, whatever the outcome of the first one.

        Args:
            operation_metrics: numbers for ``commitInfo.operationMetrics``.

        Raises:
            InvalidArgumentError: there is nothing to commit, the commit was tried already, or a metric is
                no whole number.
            CommitConflictError: a concurrent commit changed what this one relies on; or it was cleaned up,
                so that its changes aren't known.
            TableAlreadyExistsError: the table was to be created, but exists.
            ConstraintViolationError: the staged actions break a rule.
            UnsupportedFeatureError: the table needs something of writers that the engine lacks, or has a
                rule about rows that the writer doesn't enforce.
            InvalidTableError: protocol and metadata contradict the specification or each other.
            CommitOwnerUnavailableError: the table's commit owner can't be reached; nothing was committed.
            CommitOwnerError: the table's commit owner refuses the commit.
            CommitOutcomeUnknownError: the store or the commit owner failed, and it is unknown whether the
                commit was made.
            StorageError: the store failed, and the commit was not made.
        """
        if self._was_sent:
            raise InvalidArgumentError(
                "this transaction was committed already, or tried to be; begin a new one",
                table=self.table,
            )
        loop = self._commit_loop(operation_metrics)
        try:
            return loop.run()
        finally:
            self._was_sent = bool(loop.sent)

    def check_definition(self) -> None:
        """Check the staged protocol, metadata and domains, so that a refusal comes before the work.

        Raises:
            DeltaError: `commit` would raise it, whatever files are staged until then.
        """
        self._commit_loop(None).check_definition()

    def _commit_loop(self, operation_metrics: Mapping[str, int] | None) -> CommitLoop:
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
            task_run=current_task_run(),
        )
        return CommitLoop(
            CommitRequest(
                self._storage,
                actions,
                self._reads,
                provenance,
                base=self._snapshot,
                enforced=self._enforced,
                newest_at_s=self._newest_at_s,
                owners=self._owners,
                owned=self._owned,
            )
        )

    def _existing(self) -> Snapshot:
        if self._snapshot is None:
            raise InvalidArgumentError("a new table can't be read", table=self.table)
        return self._snapshot
