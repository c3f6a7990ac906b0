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

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_delta.engine.snapshot.snapshot import Snapshot

__all__ = ["Actions", "Cloned", "Dropped", "Reads", "StagedActions"]


@dataclass(frozen=True, slots=True)
class Cloned:
    """The version of another table that a commit makes the table a clone of.

    Attributes:
        version: the version.
        keys: the keys of the files that the table has afterwards, copies of those of the version; see
            `replay.file_key`.
    """

    version: Snapshot
    keys: pa.ChunkedArray


@dataclass(frozen=True, slots=True)
class Dropped:
    """The features that a commit takes out of a table's protocol.

    Attributes:
        features: their names.
        hides_history: whether the versions before the commit are to be hidden behind protected checkpoints:
            the commit then tells from which version on there need be none.
    """

    features: frozenset[str]
    hides_history: bool


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
        restored: the earlier version whose files and metadata the commit brings back; None for all
            commits but those of a restore.
        cloned: the version of another table that the commit makes a clone of; None for all commits but
            those.
        dropped: the features that the commit drops; None for all commits but those.
        tombstones: files below the table that leave it without ever having been data files: deletion
            vectors, so that a vacuum that doesn't know them keeps them for as long as removed files.
        may_be_empty: whether the commit may hold nothing, to be just a version.
    """

    protocol: Protocol | None = None
    metadata: Metadata | None = None
    transactions: tuple[Txn, ...] = ()
    domains: Mapping[str, DomainMetadata] = field(default_factory=lambda: MappingProxyType({}))
    adds: tuple[AddFile, ...] = ()
    removes: tuple[RemoveFile, ...] = ()
    cdc: tuple[AddCdcFile, ...] = ()
    identity_marks: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    restored: Snapshot | None = None
    cloned: Cloned | None = None
    dropped: Dropped | None = None
    tombstones: tuple[RemoveFile, ...] = ()
    may_be_empty: bool = False

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
    restored: Snapshot | None = None
    cloned: Cloned | None = None
    dropped: Dropped | None = None
    tombstones: list[RemoveFile] = field(default_factory=list)
    may_be_empty: bool = False

    def frozen(self) -> Actions:
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
            self.restored,
            self.cloned,
            self.dropped,
            tuple(self.tombstones),
            self.may_be_empty,
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
