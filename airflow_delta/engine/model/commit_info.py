"""The action ``commitInfo``, the provenance of a commit. It is no part of a table's state.

PROTOCOL.md, "Commit Provenance Information".
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

from airflow_delta.engine.errors import CorruptLogError
from airflow_delta.engine.model import json_fields
from airflow_delta.engine.model.json_record import JsonField, fields, read_fields, write_fields
from airflow_delta.engine.model.plain import plain, time_or_none
from airflow_delta.engine.model.times import utc_datetime

__all__ = ["CommitInfo", "task_run_of"]

_NAMES, _NUMBERS = ("dag_id", "run_id", "task_id"), ("map_index", "try_number")

_LONGEST_NAME = 1_000
"""More characters than any name in Airflow has."""

_MOST = (1 << 31) - 1

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


def task_run_of(value: Any) -> dict[str, Any] | None:
    """The run of an Airflow task that a value describes; None if it describes none.

    Any program can write it. So it describes none if a text has more than 1,000 characters or can't be
    encoded, or a number has more than 32 bits: Airflow couldn't store them.

    Args:
        value: an object with ``dag_id``, ``run_id``, ``task_id``, ``map_index`` and ``try_number``. The
            last two may be missing, and other fields are left out.
    """
    if not isinstance(value, Mapping):
        return None
    found = {name: value.get(name) for name in (*_NAMES, *_NUMBERS)}
    names = all(_is_name(found[name]) for name in _NAMES)
    numbers = all(found[name] is None or _is_number(found[name]) for name in _NUMBERS)
    return found if names and numbers else None


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= _LONGEST_NAME and json_fields.is_text(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _MOST


@dataclass(frozen=True, slots=True)
class CommitInfo:
    """The provenance of a commit ("Commit Provenance Information").

    Writers may store anything here, so reading never fails. A field of an unexpected type is None, and
    `raw` contains everything as it was written.

    Attributes:
        version: the version of the commit, which isn't part of the action.
        timestamp_ms: the time of the commit by the writer's clock, in epoch ms. In a history it is the time
            that readers use; see `DeltaTable.history`.
        operation: the name of the operation, such as ``WRITE`` or ``MERGE``.
        operation_parameters: its parameters by name; values of any JSON type.
        operation_metrics: its metrics by name; values of any JSON type.
        in_commit_timestamp_ms: the in-commit timestamp, in epoch ms.
        engine_info: the program that wrote the commit.
        txn_id: a unique id of the transaction.
        read_version: the version that the transaction read.
        isolation_level: the isolation level of the transaction.
        is_blind_append: whether the transaction added files without reading any.
        user_metadata: a text of the user.
        airflow: the run of an Airflow task that made the commit, as its writer wrote it; see `task_run`.
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
    airflow: Mapping[str, Any] | None = None
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
        airflow=_tolerant_map("airflow"),
    )

    @property
    def timestamp(self) -> datetime | None:
        """The time of the commit, in UTC; see `timestamp_ms`. None if the number is no valid time."""
        return utc_datetime(self.timestamp_ms)

    @property
    def in_commit_timestamp(self) -> datetime | None:
        """The in-commit timestamp, in UTC; see `timestamp`."""
        return utc_datetime(self.in_commit_timestamp_ms)

    @property
    def task_run(self) -> dict[str, Any] | None:
        """The run of an Airflow task that made the commit; None if the commit doesn't say.

        It has ``dag_id``, ``run_id``, ``task_id``, ``map_index`` (None unless the task is mapped) and
        ``try_number``. Our own tasks write it to ``airflow``. Other programs have it in `user_metadata`, as
        `airflow_delta.task_runs.commit_user_metadata` makes it.
        """
        if (own := task_run_of(self.airflow)) is not None:
            return own
        text = self.user_metadata
        if text is None or not text.startswith("{"):
            return None
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            return None
        return task_run_of(found.get("airflow")) if isinstance(found, dict) else None

    @classmethod
    def from_json(cls, obj: Any, *, version: int) -> CommitInfo:
        """Read the ``commitInfo`` of a version. Any JSON value is accepted; see the class."""
        raw: Mapping[str, Any] = obj if isinstance(obj, Mapping) else {}
        return cls(version=version, raw=raw, **read_fields(cls.log_fields, raw, "commitInfo"))

    def to_json(self) -> dict[str, Any]:
        """The action's content: `raw`, overlaid with the fields that have a value."""
        return {**self.raw, **write_fields(self.log_fields, self)}

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain JSON values, without `raw`. Times are ISO-8601 texts in UTC."""
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
            "task_run": self.task_run,
        }
