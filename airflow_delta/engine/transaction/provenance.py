"""``commitInfo``: what a commit says of itself.

PROTOCOL.md, "Commit Provenance Information"; edge cases E11 and E12. The names and forms are those of
Delta Spark, whose history and conflict checks read them:

* the values of ``operationParameters`` are strings: a text as it is, anything else as JSON, a list of
  columns for example;
* the values of ``operationMetrics`` are strings of numbers;
* in-commit timestamps want ``commitInfo`` to be the first action.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow_delta.engine.transaction.isolation import IsolationLevel
from airflow_delta.engine.transaction.staged import Actions, Reads
from airflow_delta.engine.version import VERSION

__all__ = ["ENGINE_INFO", "Provenance", "is_blind_append"]

ENGINE_INFO = f"airflow-delta/{VERSION}"
"""How commits of this engine call their writer."""


@dataclass(frozen=True, slots=True)
class Provenance:
    """The facts of a commit that stay the same from one attempt to the next.

    Attributes:
        operation: what the commit calls itself.
        operation_parameters: its parameters, of any JSON type.
        operation_metrics: its metrics.
        user_metadata: a text of the user's.
        txn_id: unique to the transaction.
        read_version: the version that the transaction read, None for a new table.
    """

    operation: str
    operation_parameters: Mapping[str, Any]
    operation_metrics: Mapping[str, int]
    user_metadata: str | None
    txn_id: str
    read_version: int | None

    def commit_info(
        self,
        *,
        timestamp_ms: int,
        in_commit: bool,
        isolation: IsolationLevel,
        blind: bool,
        tags: Mapping[str, str],
    ) -> dict[str, Any]:
        """The ``commitInfo`` of one attempt.

        Args:
            timestamp_ms: the time of the commit.
            in_commit: whether that time is to be written as ``inCommitTimestamp`` too.
            isolation: the level that the commit runs at.
            blind: see `is_blind_append`.
            tags: what other writers need to know of the commit.
        """
        info: dict[str, Any] = {}
        if in_commit:
            info["inCommitTimestamp"] = timestamp_ms
        info["timestamp"] = timestamp_ms
        info["operation"] = self.operation
        info["operationParameters"] = {
            name: value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
            for name, value in self.operation_parameters.items()
        }
        if self.read_version is not None:
            info["readVersion"] = self.read_version
        info["isolationLevel"] = isolation.value
        info["isBlindAppend"] = blind
        info["operationMetrics"] = {
            name: str(value) for name, value in self.operation_metrics.items()
        }
        if self.user_metadata is not None:
            info["userMetadata"] = self.user_metadata
        if tags:
            info["tags"] = dict(tags)
        info["engineInfo"] = ENGINE_INFO
        info["txnId"] = self.txn_id
        return info


def is_blind_append(actions: Actions, reads: Reads) -> bool:
    """Whether a commit does nothing to files but add some, and its transaction read none (E12).

    A look at an application's transaction is none at files: that of a stream, which appends without
    reading, is there to keep it from appending twice.
    """
    reads_files = reads.whole_table or reads.predicates or reads.paths
    return not (actions.removes or actions.cdc or reads_files)
