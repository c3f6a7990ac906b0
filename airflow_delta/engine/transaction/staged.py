"""What a transaction is about to commit, and what it read to decide that.

`StagedActions` grows while the transaction is open. Each attempt to commit starts from `Actions`, the
frozen copy of it, which the stages of ``prepare`` turn into what is written: nothing that an attempt
works out for the version it aims at is left behind for the next one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from airflow_delta.engine.model.actions import (
    AddCdcFile,
    AddFile,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    Txn,
)
from airflow_delta.engine.transaction.intent import (
    EmptyVersion,
    Purpose,
    RestoreVersion,
    Tombstones,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_delta.engine.snapshot.snapshot import Snapshot

__all__ = ["Actions", "Reads", "StagedActions"]


@dataclass(frozen=True, slots=True)
class Actions:
    """The actions of one attempt to commit, apart from its ``commitInfo``.

    Attributes:
        protocol: the new protocol, None where it stays.
        metadata: the new metadata, None where it stays.
        transactions: transaction identifiers, one of each application.
        domains: metadata domains that are set or removed, by name.
        adds: files that join the table.
        removes: files that leave it.
        cdc: files of changed rows.
        identity_marks: by identity column, the furthest value in the files that join.
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
        """The earlier version that the commit restores; None for all commits but those of a restore."""
        return self.purpose.version if isinstance(self.purpose, RestoreVersion) else None

    @property
    def tombstones(self) -> tuple[RemoveFile, ...]:
        """Removals of files that never were data files; see `intent.Tombstones`."""
        return self.purpose.files if isinstance(self.purpose, Tombstones) else ()

    @property
    def changes_data(self) -> bool:
        """Whether the table's rows may differ afterwards."""
        return any(file.data_change for file in self.adds) or any(
            file.data_change for file in self.removes
        )

    @property
    def only_files(self) -> bool:
        """Whether there is nothing but file actions."""
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
    """The actions of a commit in the making."""

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

    def freeze(self) -> Actions:
        """What is staged by now."""
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


@dataclass(slots=True)
class Reads:
    """What a transaction looked at: a concurrent change of it is a conflict.

    Attributes:
        whole_table: all there is, so that any file that is added or removed matters.
        predicates: `pyarrow.compute.Expression`s whose matching files were asked for, so that a new
            file that may match one of them matters; None where all files were.
        paths: the paths of the files that were returned, as they stand in the log; a column for each
            time that files were read, since they may be as many as the table has.
        app_ids: applications whose last transaction was looked up.
        domains: metadata domains that were looked up.
    """

    whole_table: bool = False
    predicates: list[Any] = field(default_factory=list)
    paths: list[pa.ChunkedArray] = field(default_factory=list)
    app_ids: set[str] = field(default_factory=set)
    domains: set[str] = field(default_factory=set)
