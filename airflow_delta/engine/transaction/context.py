"""What staged actions are checked against: the table as the commit will leave it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from airflow_delta.engine.errors import ConstraintViolationError, CorruptLogError
from airflow_delta.engine.features.protocol import supported_features
from airflow_delta.engine.model.actions import DomainMetadata, Metadata, Protocol
from airflow_delta.engine.model.file_actions import AddCdcFile, AddFile, RemoveFile
from airflow_delta.engine.model.paths import canonical_key
from airflow_delta.engine.model.properties import TableProperties
from airflow_delta.engine.snapshot.snapshot import Snapshot

__all__ = ["CommitContext"]


@dataclass(frozen=True, slots=True)
class CommitContext:
    """The table that one attempt to commit will give.

    Attributes:
        table: its location.
        version: the version that the commit makes.
        timestamp_ms: the time of the commit, in epoch ms; its in-commit timestamp where the table has
            them.
        protocol: the protocol that the commit leaves: its own, or else that of `base`.
        metadata: the metadata that the commit leaves, likewise.
        base: the version before; None for a new table.
        operation: what the commit calls itself.
        enforced: the features whose rules about rows the writer of the data files has enforced.
        restored: the earlier version that the commit brings back; None for all but restores.
        cloned: the version of another table that the commit makes a clone of; None for all but those.
    """

    table: str
    version: int
    timestamp_ms: int
    protocol: Protocol
    metadata: Metadata
    base: Snapshot | None = None
    operation: str = ""
    enforced: frozenset[str] = frozenset()
    restored: Snapshot | None = None
    cloned: Snapshot | None = None

    @property
    def written_for(self) -> Snapshot | None:
        """The version whose protocol and metadata tell how the files that stay were written.

        That is `base`; but a restore leaves just the files of the version that it brings back, and a
        clone copies of those of another table's. What was asked of them there is asked of them again.
        """
        return self.restored or self.cloned or self.base

    @property
    def domains(self) -> Mapping[str, DomainMetadata]:
        """The metadata domains before the commit."""
        return self.base.domains if self.base else MappingProxyType({})

    @property
    def properties(self) -> TableProperties:
        """The table properties that the commit leaves."""
        return TableProperties(self.metadata.configuration, self.table)

    @property
    def supported(self) -> frozenset[str]:
        """The features that the table supports after the commit."""
        return supported_features(self.protocol)

    def violation(self, rule: str) -> ConstraintViolationError:
        """The error for a commit that breaks a rule."""
        return ConstraintViolationError(
            f"the commit of version {self.version} was refused: {rule}",
            table=self.table,
            version=self.version,
        )

    def path_key(self, file: AddFile | RemoveFile | AddCdcFile) -> str:
        """The same text for all spellings of a file's path.

        Raises:
            ConstraintViolationError: the path is no well-formed URI.
        """
        try:
            return canonical_key(file.path, table_root=self.table)
        except CorruptLogError as error:
            raise self.violation(error.message) from error
