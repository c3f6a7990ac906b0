"""Write ``commitInfo``, the provenance of a commit.

PROTOCOL.md, "Commit Provenance Information". The names and forms are those of Delta Spark,
which reads them for its history and its conflict checks:

* the values of ``operationParameters`` are strings: a text as it is, anything else as JSON, such as a
  list of columns;
* the values of ``operationMetrics`` are strings of numbers;
* with in-commit timestamps ``commitInfo`` must be the first action.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.engine.model.arguments import check_mapping
from airflow_delta.engine.transaction.isolation import IsolationLevel
from airflow_delta.engine.transaction.reads import Reads
from airflow_delta.engine.transaction.staged import Actions
from airflow_delta.engine.version import VERSION

__all__ = [
    "ENGINE_INFO",
    "Provenance",
    "check_operation",
    "is_blind_append",
    "metric_texts",
    "parameter_texts",
]

ENGINE_INFO = f"airflow-delta/{VERSION}"
"""The ``engineInfo`` of commits by this engine."""


@dataclass(frozen=True, slots=True)
class Provenance:
    """The facts of a commit that stay the same from one attempt to the next.

    Attributes:
        operation: the name of the operation.
        operation_parameters: its parameters; see `parameter_texts`.
        operation_metrics: its metrics; see `metric_texts`.
        user_metadata: a text of the user.
        txn_id: unique to the transaction.
        task_run: the run of an Airflow task that makes the commit, if one does.
        read_version: the version that the transaction read; None for a new table.
    """

    operation: str
    operation_parameters: Mapping[str, str]
    operation_metrics: Mapping[str, str]
    user_metadata: str | None
    txn_id: str
    read_version: int | None
    task_run: Mapping[str, Any] | None = None

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
            in_commit: whether to write that time as ``inCommitTimestamp`` too.
            isolation: the isolation level of the commit.
            blind: see `is_blind_append`.
            tags: facts that other writers need.
        """
        info: dict[str, Any] = {}
        if in_commit:
            info["inCommitTimestamp"] = timestamp_ms
        info["timestamp"] = timestamp_ms
        info["operation"] = self.operation
        info["operationParameters"] = dict(self.operation_parameters)
        if self.read_version is not None:
            info["readVersion"] = self.read_version
        info["isolationLevel"] = isolation.value
        info["isBlindAppend"] = blind
        info["operationMetrics"] = dict(self.operation_metrics)
        if self.user_metadata is not None:
            info["userMetadata"] = self.user_metadata
        if tags:
            info["tags"] = dict(tags)
        info["engineInfo"] = ENGINE_INFO
        info["txnId"] = self.txn_id
        if self.task_run is not None:
            info["airflow"] = dict(self.task_run)
        return info


def check_operation(operation: object, user_metadata: object, *, table: str) -> None:
    """Refuse an operation and user metadata that readers of the log couldn't read as texts.

    Raises:
        InvalidArgumentError: the operation isn't a text or is empty, or the user's metadata isn't a text.
    """
    if not isinstance(operation, str) or not operation:
        raise InvalidArgumentError(
            f"operation: expected a text such as 'WRITE', found {operation!r}", table=table
        )
    if not isinstance(user_metadata, str | None):
        raise InvalidArgumentError(
            f"user_metadata: expected a text or None, found the {type(user_metadata).__name__} "
            f"{user_metadata!r}; a structure can be given as JSON",
            table=table,
        )


def parameter_texts(parameters: Mapping[str, Any] | None, *, table: str) -> dict[str, str]:
    """The ``operationParameters``: a text as it is, anything else as JSON; none for None.

    Raises:
        InvalidArgumentError: this is no mapping, a name is no text, or a value can't be written as JSON.
    """
    if parameters is None:
        return {}
    expected = "a mapping of names to values, or None"
    check_mapping("operation_parameters", parameters, expected, table=table)
    return {name: _parameter_text(name, value, table) for name, value in parameters.items()}


def metric_texts(metrics: Mapping[str, int] | None, *, table: str) -> dict[str, str]:
    """The ``operationMetrics``: the texts of whole numbers; none for None.

    Raises:
        InvalidArgumentError: this is no mapping, a name is no text, or a value is no whole number.
    """
    if metrics is None:
        return {}
    expected = "a mapping of names to whole numbers, or None"
    check_mapping("operation_metrics", metrics, expected, table=table)
    return {name: _metric_text(name, value, table) for name, value in metrics.items()}


def _parameter_text(name: str, value: Any, table: str) -> str:
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgumentError(
            f"operation_parameters[{name!r}]: expected a text, or a value that JSON can hold, found "
            f"{type(value).__name__} {value!r} ({error})",
            table=table,
        ) from error


def _metric_text(name: str, value: Any, table: str) -> str:
    try:
        if not isinstance(value, bool):
            return str(operator.index(value))
    except TypeError:
        pass
    raise InvalidArgumentError(
        f"operation_metrics[{name!r}]: expected a whole number, found {value!r}", table=table
    )


def is_blind_append(actions: Actions, reads: Reads) -> bool:
    """Whether a commit only adds files, and its transaction read none.

    Reading an application's transaction identifier doesn't count: a stream reads its own only in order
    not to append twice.
    """
    reads_files = reads.whole_table or reads.predicates or reads.paths
    return not (actions.removes or actions.tombstones or actions.cdc or reads_files)
