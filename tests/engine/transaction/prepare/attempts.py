"""Attempts to commit, without a transaction around them: actions in, what would be written out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from airflow_delta.engine import AddFile, DeltaTable, RemoveFile
from airflow_delta.engine.model.actions import Metadata, Protocol
from airflow_delta.engine.model.dv_descriptor import DeletionVectorDescriptor
from airflow_delta.engine.transaction.context import CommitContext
from airflow_delta.engine.transaction.prepare import Prepared, commit_text, prepare
from airflow_delta.engine.transaction.staged import Actions
from tests.log_builder import commit_path, metadata, write_commit

NOW = 1_700_000_000_000
VECTOR = DeletionVectorDescriptor(
    "i", "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L", None, 40, 6
)
_READERS = {"deletionVectors", "columnMapping", "v2Checkpoint", "timestampNtz", "typeWidening"}


def protocol(*features: str) -> dict[str, Any]:
    """A ``protocol`` action with lists."""
    return {
        "protocol": {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": [name for name in features if name in _READERS],
            "writerFeatures": list(features),
        }
    }


def schema(**types: Any) -> dict[str, Any]:
    """A schema of nullable columns."""
    fields = [
        {"name": name, "type": type_, "nullable": True, "metadata": {}}
        for name, type_ in types.items()
    ]
    return {"type": "struct", "fields": fields}


def mapped(columns: Mapping[str, Any]) -> dict[str, Any]:
    """A schema with the column mapping that it needs: ids from 1, physical names ``c1``, …"""
    for number, field in enumerate(columns["fields"], start=1):
        field["metadata"] = {
            **field["metadata"],
            "delta.columnMapping.id": number,
            "delta.columnMapping.physicalName": f"c{number}",
        }
    return dict(columns)


def table(root: Path, features: Iterable[str], *actions: Mapping[str, Any], **options: Any) -> Path:
    """Write version 0 of a table; options go to `metadata`."""
    write_commit(root, 0, protocol(*features), metadata(**options), *actions, modified_ms=NOW)
    return root


def file(path: str = "f.parquet", **fields: Any) -> AddFile:
    """A file to be added."""
    values = {"partition_values": {}, "size": 1, "modification_time": 1, "data_change": True}
    return AddFile(path, **{**values, **fields})


def tombstone(path: str, **fields: Any) -> RemoveFile:
    """A file to be removed."""
    return RemoveFile(path, **{"data_change": True, "deletion_timestamp": NOW, **fields})


def counted(records: int) -> str:
    """Statistics with nothing but the number of records."""
    return json.dumps({"numRecords": records})


def attempt(
    root: Path,
    *,
    operation: str = "WRITE",
    enforced: Iterable[str] = (),
    timestamp_ms: int = NOW + 1000,
    **actions: Any,
) -> Prepared:
    """Prepare a commit on the newest version.

    Args:
        root: the table.
        operation: what the commit calls itself.
        enforced: the features that the writer declares.
        timestamp_ms: when.
        actions: the fields of `Actions`.
    """
    base = DeltaTable(str(root)).snapshot()
    staged = Actions(**actions)
    context = CommitContext(
        base.table,
        base.version + 1,
        timestamp_ms,
        staged.protocol or base.protocol,
        staged.metadata or base.metadata,
        base,
        operation,
        frozenset(enforced),
    )
    return prepare(staged, context)


def first_attempt(
    root: Path, new_protocol: Protocol, new_metadata: Metadata, **actions: Any
) -> Prepared:
    """Prepare the commit that creates a table."""
    context = CommitContext(str(root), 0, NOW, new_protocol, new_metadata)
    return prepare(Actions(protocol=new_protocol, metadata=new_metadata, **actions), context)


def write(root: Path, prepared: Prepared) -> dict[str, list[dict[str, Any]]]:
    """Write what was prepared, and return its actions by kind."""
    context = prepared.context
    info = {"operation": "X", "timestamp": context.timestamp_ms}
    if context.properties.in_commit_timestamps_enabled:
        info = {"inCommitTimestamp": context.timestamp_ms, **info}
    text = commit_text(prepared.actions, info, timestamp_ms=context.timestamp_ms)
    path = commit_path(root, context.version)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text)
    by_kind: dict[str, list[dict[str, Any]]] = {}
    for line in text.decode().split("\n")[:-1]:
        ((kind, value),) = json.loads(line).items()
        by_kind.setdefault(kind, []).append(value)
    return by_kind


def with_properties(root: Path, **changes: str | None) -> Metadata:
    """The table's metadata with other properties; ``delta_x`` is ``delta.x``, None unsets one."""
    current = DeltaTable(str(root)).snapshot().metadata
    named = {name.replace("_", ".", 1): value for name, value in changes.items()}
    changed = {**current.configuration, **named}
    kept = {name: value for name, value in changed.items() if value is not None}
    return replace(current, configuration=kept)
