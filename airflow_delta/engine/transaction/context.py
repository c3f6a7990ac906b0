"""`CommitContext`: the table as a commit will leave it. The stages check the staged actions against it."""

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
    """The table as it will be after one attempt to commit.

    Attributes:
        table: its location.
        version: the version that the commit makes.
        timestamp_ms: the time of the commit, in epoch ms; its in-commit timestamp if the table has them.
        protocol: the protocol after the commit: the one that it sets, or else that of `base`.
        metadata: the metadata after the commit, likewise.
        base: the version before the commit; None for a new table.
        operation: the name of the operation in ``commitInfo``.
        enforced: the features whose rules about rows the writer of the data files has enforced.
        restored_version: the earlier version that the commit restores; None if it is no restore.
        cloned_version: the version of another table that the commit clones; None if it makes no clone.
    """

    table: str
    version: int
    timestamp_ms: int
    protocol: Protocol
    metadata: Metadata
    base: Snapshot | None = None
    operation: str = ""
    enforced: frozenset[str] = frozenset()
    restored_version: Snapshot | None = None
    cloned_version: Snapshot | None = None

    @property
    def files_source(self) -> Snapshot | None:
        """The version whose protocol and metadata the kept files were written under.

        This is `base` for most commits. After a restore the table has only files of the restored version,
        and after a clone only copies of the cloned version's files.
        """
        return self.restored_version or self.cloned_version or self.base

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
        """A key that is equal for all spellings of a file's path.

        Raises:
            ConstraintViolationError: the path is no well-formed URI.
        """
        try:
            return canonical_key(file.path, table_root=self.table)
        except CorruptLogError as error:
            raise self.violation(error.message) from error
