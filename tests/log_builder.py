"""Write logs by hand: the actions as the test states them, one commit file at a time."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

SCHEMA = {
    "type": "struct",
    "fields": [
        {"name": "id", "type": "long", "nullable": True, "metadata": {}},
        {"name": "part", "type": "string", "nullable": True, "metadata": {}},
    ],
}

PROTOCOL = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}


def metadata(
    *,
    configuration: Mapping[str, str] | None = None,
    partition_columns: Iterable[str] = (),
    schema: Mapping[str, Any] = SCHEMA,
) -> dict[str, Any]:
    """A ``metaData`` action."""
    return {
        "metaData": {
            "id": "11111111-2222-3333-4444-555555555555",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps(schema),
            "partitionColumns": list(partition_columns),
            "configuration": dict(configuration or {}),
            "createdTime": 1,
        }
    }


def add(path: str, **fields: Any) -> dict[str, Any]:
    """An ``add`` action."""
    base = {
        "path": path,
        "partitionValues": {},
        "size": 1,
        "modificationTime": 1,
        "dataChange": True,
    }
    return {"add": {**base, **fields}}


def remove(path: str, **fields: Any) -> dict[str, Any]:
    """A ``remove`` action."""
    return {"remove": {"path": path, "deletionTimestamp": 1, "dataChange": True, **fields}}


def commit_path(root: Path, version: int) -> Path:
    """Where a commit's file is."""
    return root / "_delta_log" / f"{version:020}.json"


def write_commit(
    root: Path, version: int, *actions: Mapping[str, Any], modified_ms: int | None = None
) -> Path:
    """Write one commit file."""
    path = commit_path(root, version)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(action) + "\n" for action in actions), encoding="utf-8")
    if modified_ms is not None:
        os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))
    return path


def write_table(root: Path, *commits: Iterable[Mapping[str, Any]], **options: Any) -> Path:
    """Write a table: protocol and metadata in version 0, then the actions of each commit.

    ``options`` go to `metadata`. The files' times ascend by a second from one commit to the next.
    """
    for version, actions in enumerate(commits):
        first = [PROTOCOL, metadata(**options)] if version == 0 else []
        write_commit(root, version, *first, *actions, modified_ms=1_000_000 + version * 1000)
    return root


def touch_files(root: Path, *names: str) -> None:
    """Make empty files below a directory, with their parents."""
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
