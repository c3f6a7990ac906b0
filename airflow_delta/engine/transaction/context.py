"""What staged actions are checked against: the table as the commit will leave it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from airflow_delta.engine.errors import ConstraintViolationError, CorruptLogError
from airflow_delta.engine.model.actions import DomainMetadata, Metadata, Protocol
from airflow_delta.engine.model.file_actions import AddFile, RemoveFile
from airflow_delta.engine.model.paths import canonical_key
from airflow_delta.engine.snapshot.snapshot import Snapshot

__all__ = ["CommitContext"]


@dataclass(frozen=True, slots=True)
class CommitContext:
    """The table that a commit will give.

    Attributes:
        table: its location.
        version: the version that the commit makes.
        protocol: its protocol: the commit's own for a new table.
        metadata: its metadata: the commit's own for a new table.
        base: the version before; None for a new table.
    """

    table: str
    version: int
    protocol: Protocol
    metadata: Metadata
    base: Snapshot | None = None

    @property
    def domains(self) -> Mapping[str, DomainMetadata]:
        """The metadata domains before the commit."""
        return self.base.domains if self.base else {}

    def violation(self, rule: str) -> ConstraintViolationError:
        """The error for a commit that breaks a rule."""
        return ConstraintViolationError(
            f"the commit of version {self.version} was refused: {rule}",
            table=self.table,
            version=self.version,
        )

    def path_key(self, file: AddFile | RemoveFile) -> str:
        """The same text for all spellings of a file's path.

        Raises:
            ConstraintViolationError: the path is no well-formed URI.
        """
        try:
            return canonical_key(file.path, table_root=self.table)
        except CorruptLogError as error:
            raise self.violation(error.message) from error
