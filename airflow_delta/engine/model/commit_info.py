"""Where a commit came from: the action ``commitInfo``.

Spec: PROTOCOL.md, "Commit Provenance Information". It is no part of a table's state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

from airflow_delta.engine.errors import CorruptLogError
from airflow_delta.engine.model import json_fields
from airflow_delta.engine.model.json_record import JsonField, fields, read_fields, write_fields
from airflow_delta.engine.model.plain import plain, time_or_none
from airflow_delta.engine.model.times import utc_datetime

__all__ = ["CommitInfo"]

T = TypeVar("T", str, int, bool)


def _tolerant(key: str, kind: type[T]) -> JsonField:
    def _read(obj: Mapping[str, Any], key: str, where: str) -> T | None:
        try:
            return json_fields.optional(obj, key, kind, where)
        except CorruptLogError:  # provenance is free-form; `raw` keeps what was written
            return None

    return JsonField(key, _read)


def _tolerant_map(key: str) -> JsonField:
    def _read(obj: Mapping[str, Any], key: str, where: str) -> Mapping[str, Any] | None:  # noqa: ARG001
        value = obj.get(key)
        return value if isinstance(value, Mapping) else None

    return JsonField(key, _read)


@dataclass(frozen=True, slots=True)
class CommitInfo:
    """Where a commit came from ("Commit Provenance Information").

    Writers may store anything here, so reading never fails: a field of an unexpected type is None,
    and `raw` has everything as it was written.

    Attributes:
        version: of the commit; not part of the action, but known to whoever read the commit.
        timestamp_ms: when it was made, epoch ms: the writer's clock. In a history the time that readers
            go by; see `DeltaTable.history`.
        operation: such as ``WRITE`` or ``MERGE``.
        operation_parameters: by name; values of any JSON type.
        operation_metrics: by name; values of any JSON type.
        in_commit_timestamp_ms: the commit's timestamp by the In-Commit Timestamps feature, epoch ms.
        engine_info: the program that wrote the commit.
        txn_id: unique to the transaction.
        read_version: the version the transaction had read.
        isolation_level: the isolation the transaction ran under.
        is_blind_append: whether the transaction added files without reading any.
        user_metadata: given by the user.
        raw: the action as it was read.
    """

    version: int
    timestamp_ms: int | None = None
    operation: str | None = None
    operation_parameters: Mapping[str, Any] | None = None
    operation_metrics: Mapping[str, Any] | None = None
    in_commit_timestamp_ms: int | None = None
    engine_info: str | None = None
    txn_id: str | None = None
    read_version: int | None = None
    isolation_level: str | None = None
    is_blind_append: bool | None = None
    user_metadata: str | None = None
    raw: Mapping[str, Any] = field(default_factory=dict)

    log_fields = fields(
        timestamp_ms=_tolerant("timestamp", int),
        operation=_tolerant("operation", str),
        operation_parameters=_tolerant_map("operationParameters"),
        operation_metrics=_tolerant_map("operationMetrics"),
        in_commit_timestamp_ms=_tolerant("inCommitTimestamp", int),
        engine_info=_tolerant("engineInfo", str),
        txn_id=_tolerant("txnId", str),
        read_version=_tolerant("readVersion", int),
        isolation_level=_tolerant("isolationLevel", str),
        is_blind_append=_tolerant("isBlindAppend", bool),
        user_metadata=_tolerant("userMetadata", str),
    )

    @property
    def timestamp(self) -> datetime | None:
        """When it was made, in UTC; see `timestamp_ms`. None also for a number that is no time."""
        return utc_datetime(self.timestamp_ms)

    @property
    def in_commit_timestamp(self) -> datetime | None:
        """The commit's timestamp by the In-Commit Timestamps feature, in UTC; see `timestamp`."""
        return utc_datetime(self.in_commit_timestamp_ms)

    @classmethod
    def from_json(cls, obj: Any, *, version: int) -> CommitInfo:
        """Read the ``commitInfo`` of a version. Any JSON value will do; see the class."""
        raw: Mapping[str, Any] = obj if isinstance(obj, Mapping) else {}
        return cls(version=version, raw=raw, **read_fields(cls.log_fields, raw, "commitInfo"))

    def to_json(self) -> dict[str, Any]:
        """The action's content: `raw`, overlaid with the fields that have a value."""
        return {**self.raw, **write_fields(self.log_fields, self)}

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain JSON values: `raw` is left out, and times are ISO-8601 texts in UTC."""
        return {
            "version": self.version,
            "timestamp": time_or_none(self.timestamp_ms),
            "operation": self.operation,
            "operation_parameters": plain(self.operation_parameters),
            "operation_metrics": plain(self.operation_metrics),
            "engine": self.engine_info,
            "in_commit_timestamp": time_or_none(self.in_commit_timestamp_ms),
            "txn_id": self.txn_id,
            "read_version": self.read_version,
            "isolation_level": self.isolation_level,
            "is_blind_append": self.is_blind_append,
            "user_metadata": self.user_metadata,
        }
