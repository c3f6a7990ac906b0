"""``commitInfo``: what a commit says of itself.

PROTOCOL.md, "Commit Provenance Information"; edge cases E11: ``operationParameters`` are texts of
JSON, metrics are strings, and in-commit timestamps want ``commitInfo`` to be the first action.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow_delta.engine.transaction.staged import Reads, StagedActions
from airflow_delta.engine.version import VERSION

__all__ = ["ENGINE_INFO", "Provenance", "is_blind_append", "isolation_level"]

ENGINE_INFO = f"airflow-delta/{VERSION}"
"""How commits of this engine call their writer."""


@dataclass(frozen=True, slots=True)
class Provenance:
    """The facts of a commit that stay the same from one attempt to the next."""

    operation: str
    operation_parameters: Mapping[str, Any]
    operation_metrics: Mapping[str, int]
    user_metadata: str | None
    txn_id: str

    def commit_info(
        self,
        staged: StagedActions,
        reads: Reads,
        *,
        timestamp_ms: int,
        in_commit: bool,
        read_version: int | None,
    ) -> dict[str, Any]:
        """The ``commitInfo`` of one attempt.

        Args:
            staged: what is committed.
            reads: what was read.
            timestamp_ms: the time of the commit.
            in_commit: whether that time is to be written as ``inCommitTimestamp`` too.
            read_version: the version that the transaction read, None for a new table.
        """
        info: dict[str, Any] = {}
        if in_commit:
            info["inCommitTimestamp"] = timestamp_ms
        info["timestamp"] = timestamp_ms
        info["operation"] = self.operation
        info["operationParameters"] = {
            name: value if isinstance(value, str) else json.dumps(value)
            for name, value in self.operation_parameters.items()
        }
        if read_version is not None:
            info["readVersion"] = read_version
        info["isolationLevel"] = isolation_level(staged)
        info["isBlindAppend"] = is_blind_append(staged, reads)
        info["operationMetrics"] = {
            name: str(value) for name, value in self.operation_metrics.items()
        }
        if self.user_metadata is not None:
            info["userMetadata"] = self.user_metadata
        info["engineInfo"] = ENGINE_INFO
        info["txnId"] = self.txn_id
        return info


def isolation_level(staged: StagedActions) -> str:
    """Commits that change neither rows nor anything but files need no more than a snapshot (E7)."""
    only_files = not (staged.protocol or staged.metadata or staged.transactions or staged.domains)
    return "SnapshotIsolation" if only_files and not staged.changes_data else "Serializable"


def is_blind_append(staged: StagedActions, reads: Reads) -> bool:
    """Whether the commit only adds files and its transaction read nothing (E12)."""
    return bool(staged.adds) and not (
        staged.removes or staged.metadata or reads.whole_table or reads.app_ids
    )
