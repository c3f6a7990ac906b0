"""The actions that a transaction is about to commit.

`StagedActions` grows while the transaction is open, and checks what it is given. `Actions` is a frozen copy
of it. Each attempt to commit starts from that copy, which the stages of ``prepare`` turn into the actions
to write. So what an attempt computes for its version, such as row ids, never reaches the next attempt.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.engine.model.actions import (
    AddCdcFile,
    AddFile,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    Txn,
)
from airflow_delta.engine.model.arguments import check_text
from airflow_delta.engine.transaction.intent import (
    CheckedRows,
    EmptyVersion,
    Intent,
    Purpose,
    RestoreVersion,
    SystemDomain,
    Tombstones,
)

if TYPE_CHECKING:
    from airflow_delta.engine.snapshot.snapshot import Snapshot

__all__ = ["Actions", "StagedActions", "check_identifier", "check_txn"]


@dataclass(frozen=True, slots=True)
class Actions:
    """The actions of one attempt to commit, without its ``commitInfo``.

    Attributes:
        protocol: the new protocol; None if it stays.
        metadata: the new metadata; None if it stays.
        transactions: transaction identifiers, at most one of each application.
        domains: metadata domains that are set or removed, by name.
        adds: the ``add`` actions.
        removes: the ``remove`` actions.
        cdc: the change data files.
        identity_marks: for each identity column, by name, the furthest value in the added files.
        purpose: what a commit of the engine's own operations is for; None for commits of users.
        rows_checked: whether the rows of the table are known to keep the rules that the commit adds; see
            `intent.CheckedRows`.
    """

    protocol: Protocol | None = None
    metadata: Metadata | None = None
    transactions: tuple[Txn, ...] = ()
    domains: Mapping[str, DomainMetadata] = field(default_factory=lambda: MappingProxyType({}))
    adds: tuple[AddFile, ...] = ()
    removes: tuple[RemoveFile, ...] = ()
    cdc: tuple[AddCdcFile, ...] = ()
    identity_marks: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    purpose: Purpose | None = None
    rows_checked: bool = False

    @property
    def restored_version(self) -> Snapshot | None:
        """The earlier version that the commit restores; None if it is no restore."""
        return self.purpose.version if isinstance(self.purpose, RestoreVersion) else None

    @property
    def tombstones(self) -> tuple[RemoveFile, ...]:
        """Removals of files that never were data files; see `intent.Tombstones`."""
        return self.purpose.files if isinstance(self.purpose, Tombstones) else ()

    @property
    def changes_data(self) -> bool:
        """Whether the commit may change the table's rows."""
        return any(file.data_change for file in self.adds) or any(
            file.data_change for file in self.removes
        )

    @property
    def only_files(self) -> bool:
        """Whether there are no actions but file actions."""
        return not (self.protocol or self.metadata or self.transactions or self.domains)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to commit."""
        if isinstance(self.purpose, EmptyVersion):
            return False
        files = self.adds or self.removes or self.cdc or self.tombstones
        return self.only_files and not (files or self.identity_marks)


@dataclass(slots=True)
class StagedActions:
    """The actions that an open transaction has staged so far; see `Actions` for the fields.

    Attributes:
        table: the table's location, for messages.
    """

    table: str
    protocol: Protocol | None = None
    metadata: Metadata | None = None
    transactions: dict[str, Txn] = field(default_factory=dict)
    domains: dict[str, DomainMetadata] = field(default_factory=dict)
    adds: list[AddFile] = field(default_factory=list)
    removes: list[RemoveFile] = field(default_factory=list)
    cdc: list[AddCdcFile] = field(default_factory=list)
    identity_marks: dict[str, int] = field(default_factory=dict)
    purpose: Purpose | None = None
    rows_checked: bool = False

    def set_transaction(self, app_id: str, version: int, *, now_ms: int) -> None:
        """Stage a transaction identifier.

        Args:
            app_id: the application.
            version: its number.
            now_ms: the time of the ``txn``, in epoch ms.

        Raises:
            InvalidArgumentError: the application isn't a text, or the number isn't a 64-bit integer.
        """
        check_identifier(app_id, version, table=self.table)
        self.transactions[app_id] = Txn(app_id, version, now_ms)

    def set_user_domain(self, action: DomainMetadata) -> None:
        """Stage a metadata domain of a user, or its removal.

        Raises:
            InvalidArgumentError: the domain isn't a text, or its name begins with ``delta.``.
        """
        check_text("domain", action.domain, table=self.table)
        if action.is_system_controlled:
            raise InvalidArgumentError(
                f"the metadata domain {action.domain!r} belongs to the protocol; take a name that "
                "doesn't begin with 'delta.'",
                table=self.table,
            )
        self.domains[action.domain] = action

    def declare(self, intent: Intent) -> None:
        """Stage an intent of the engine's own operations.

        Raises:
            InvalidArgumentError: another purpose is staged already.
        """
        if isinstance(intent, SystemDomain):
            self.domains[intent.action.domain] = intent.action
            return
        if isinstance(intent, CheckedRows):
            self.rows_checked = True
            return
        if self.purpose is not None:
            raise InvalidArgumentError(
                f"a commit has one purpose: expected {type(self.purpose).__name__}, found "
                f"{type(intent).__name__}; use a transaction for each",
                table=self.table,
            )
        self.purpose = intent

    def freeze(self) -> Actions:
        """A frozen copy of what is staged so far."""
        return Actions(
            self.protocol,
            self.metadata,
            tuple(self.transactions.values()),
            MappingProxyType(dict(self.domains)),
            tuple(self.adds),
            tuple(self.removes),
            tuple(self.cdc),
            MappingProxyType(dict(self.identity_marks)),
            self.purpose,
            self.rows_checked,
        )


def check_txn(txn: object, *, table: str) -> None:
    """Check that an argument is a pair that can be a transaction identifier.

    Raises:
        InvalidArgumentError: it isn't.
    """
    if not (isinstance(txn, tuple | list) and len(txn) == 2):
        raise InvalidArgumentError(
            f"a transaction identifier is a text and an integer of 64 bits, found {txn!r}",
            table=table,
        )
    check_identifier(*txn, table=table)


def check_identifier(app_id: object, version: object, *, table: str) -> None:
    """Check that an application and a number can be a transaction identifier.

    Raises:
        InvalidArgumentError: the application isn't a text, or the number isn't a 64-bit integer.
    """
    is_long = type(version) is int and -(2**63) <= version < 2**63
    if not (isinstance(app_id, str) and is_long):
        raise InvalidArgumentError(
            "a transaction identifier is a text and an integer of 64 bits, found "
            f"{app_id!r} and {version!r}",
            table=table,
        )
