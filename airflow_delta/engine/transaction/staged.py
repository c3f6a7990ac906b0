"""What a transaction is about to commit, and what it read to decide that."""

from __future__ import annotations

from dataclasses import dataclass, field

from airflow_delta.engine.model.actions import (
    AddFile,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    Txn,
)

__all__ = ["Reads", "StagedActions"]


@dataclass(slots=True)
class StagedActions:
    """The actions of a commit in the making, apart from its ``commitInfo``."""

    protocol: Protocol | None = None
    metadata: Metadata | None = None
    transactions: dict[str, Txn] = field(default_factory=dict)
    domains: dict[str, DomainMetadata] = field(default_factory=dict)
    adds: list[AddFile] = field(default_factory=list)
    removes: list[RemoveFile] = field(default_factory=list)

    @property
    def changes_data(self) -> bool:
        """Whether the table's rows may differ afterwards."""
        return any(add.data_change for add in self.adds) or any(
            remove.data_change for remove in self.removes
        )

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to commit."""
        return not (
            self.protocol
            or self.metadata
            or self.transactions
            or self.domains
            or self.adds
            or self.removes
        )


@dataclass(slots=True)
class Reads:
    """What a transaction looked at: a concurrent change of it is a conflict.

    Attributes:
        whole_table: all files, so that any new file matters.
        app_ids: applications whose last transaction was looked up.
    """

    whole_table: bool = False
    app_ids: set[str] = field(default_factory=set)
