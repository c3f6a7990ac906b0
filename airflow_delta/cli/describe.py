"""``airflow-delta describe URI``: what a table is, at its newest version or another one."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_delta.engine.snapshot.snapshot import Snapshot

__all__ = ["add_parser", "describe", "run"]


def add_parser(verbs: Any) -> None:
    """Add this verb to the command's parser."""
    parser = verbs.add_parser("describe", help="version, size, schema, protocol and properties")
    parser.add_argument("uri", metavar="URI", help="the table's path or URI")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--version", type=int, help="describe this version, not the newest")
    which.add_argument(
        "--timestamp", help="describe the newest version at this time, as ISO-8601 with offset"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Print the description.

    Raises:
        DeltaError: the table or the version can't be read.
    """
    facts = describe(options.uri, version=options.version, timestamp=options.timestamp)
    if options.json:
        print(json.dumps(facts, indent=2))
        return
    width = max(map(len, facts))
    for name, value in facts.items():
        lines = _feature_lines(value) if name == "table_features" else _lines(value)
        print(f"{name.replace('_', ' '):<{width}}  {lines[0]}")
        for line in lines[1:]:
            print(f"{'':<{width}}  {line}")


def describe(
    uri: str, *, version: int | None = None, timestamp: str | None = None
) -> dict[str, Any]:
    """The facts about one version of a table, as JSON values.

    ``timestamp`` is None where the commit's file is gone and a checkpoint stands for it.
    ``table_features`` has every feature that the engine or the table knows: whether the table
    supports and uses it (``supported``, ``active``), and whether the engine can read and append to
    a table that does (``can_read``, ``can_write``, ``note``).

    Raises:
        DeltaError: the table or the version can't be read.
    """
    from airflow_delta.engine import DeltaTable

    snapshot = DeltaTable(uri).snapshot(version=version, timestamp=timestamp)
    metadata, protocol = snapshot.metadata, snapshot.protocol
    return {
        "table_uri": uri,
        "version": snapshot.version,
        "timestamp": _timestamp(snapshot),
        "id": metadata.id,
        "name": metadata.name,
        "description": metadata.description,
        "num_files": snapshot.num_files,
        "size_in_bytes": snapshot.size_in_bytes,
        "num_rows": snapshot.num_rows,
        "partition_columns": list(metadata.partition_columns),
        "reader_version": protocol.min_reader_version,
        "writer_version": protocol.min_writer_version,
        "table_features": [asdict(status) for status in snapshot.features],
        "properties": dict(metadata.configuration),
        "schema": json.loads(metadata.schema_string or "{}").get("fields", []),
    }


def _timestamp(snapshot: Snapshot) -> str | None:
    from airflow_delta.engine.errors import VersionNotFoundError

    try:
        return snapshot.timestamp.isoformat(timespec="milliseconds")
    except VersionNotFoundError:
        return None


def _feature_lines(features: list[dict[str, Any]]) -> list[str]:
    """The features that the table supports; what can't be done with one is explained."""
    lines = []
    for feature in features:
        if not feature["supported"]:
            continue
        words = [
            "active" if feature["active"] else "inactive",
            "can read" if feature["can_read"] else "can't read",
            "can write" if feature["can_write"] else "can't write",
        ]
        able = feature["can_read"] and feature["can_write"]
        lines.append(
            f"{feature['name']}: {', '.join(words)}" + ("" if able else f" ({feature['note']})")
        )
    return lines or ["-"]


def _lines(value: Any) -> list[str]:
    """A value for people: one line for each entry of a collection, ``-`` for nothing."""
    if isinstance(value, dict):
        lines = [f"{name} = {entry}" for name, entry in value.items()]
    elif isinstance(value, list):
        lines = [_entry(entry) for entry in value]
    else:
        lines = [] if value is None else [str(value)]
    return lines or ["-"]


def _entry(entry: Any) -> str:
    if not isinstance(entry, dict):
        return str(entry)
    kind = entry["type"] if isinstance(entry["type"], str) else json.dumps(entry["type"])
    return f"{entry['name']}: {kind}" + ("" if entry.get("nullable", True) else " not null")
