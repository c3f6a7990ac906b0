"""``airflow-delta describe URI``: describe a version of a table."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from airflow_delta.cli.options import at_most_one, json_option, subcommand, version_options
from airflow_delta.cli.output import print_json, print_line
from airflow_delta.cli.target import Target, table_options
from airflow_delta.cli.wording import in_cli_words
from airflow_delta.engine.model.sizes import size_text

if TYPE_CHECKING:
    from airflow_delta.engine import DeltaTable
    from airflow_delta.engine.snapshot.snapshot import Snapshot

__all__ = ["describe"]

_DUE = {True: "due", False: "not due", None: "unknown"}


@subcommand("describe", help="Show version, size, schema, protocol and properties.", is_long=True)
@table_options()
@version_options("Describe")
@json_option
def describe(target: Target, *, version: int | None, timestamp: str | None, as_json: bool) -> None:
    """Print the description.

    Raises:
        DeltaError: the table or the version can't be read.
    """
    at_most_one(version=version, timestamp=timestamp)
    facts = _facts(target.open(), target.uri, version, timestamp)
    if as_json:
        print_json(facts)
        return
    width = max(map(len, facts))
    for name, value in facts.items():
        if name == "table_features":
            lines = _feature_lines(value)
        elif name == "maintenance":
            lines = _maintenance_lines(value)
        else:
            lines = _lines(name, value)
        print_line(f"{name.replace('_', ' '):<{width}}  {lines[0]}")
        for line in lines[1:]:
            print_line(f"{'':<{width}}  {line}")


def _facts(
    table: DeltaTable, uri: str, version: int | None, timestamp: str | None
) -> dict[str, Any]:
    """The facts about a version of a table, as JSON values.

    ``timestamp`` is None if a cleanup has deleted the commit. ``table_features`` has all features
    of the engine or the table: whether the table supports and uses the feature (``supported``,
    ``active``), and whether the engine can read and append to such a table (``can_read``,
    ``can_write``, ``note``). ``maintenance`` has the last checkpoint and vacuum, and what is due,
    from `MaintenanceStatus.to_dict`; it is None if a version or timestamp is given.
    """
    snapshot = table.snapshot(version=version, timestamp=timestamp)
    is_newest = version is None and timestamp is None
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
        "table_features": [status.to_dict() for status in snapshot.features],
        "properties": dict(metadata.configuration),
        "maintenance": table.maintenance_status().to_dict() if is_newest else None,
        "schema": json.loads(metadata.schema_string or "{}").get("fields", []),
    }


def _timestamp(snapshot: Snapshot) -> str | None:
    from airflow_delta.engine.errors import VersionNotFoundError
    from airflow_delta.engine.model.times import utc_text

    try:
        return utc_text(snapshot.timestamp_ms)
    except VersionNotFoundError:
        return None


def _feature_lines(features: list[dict[str, Any]]) -> list[str]:
    """Lines about the features that the table supports, with a note if the engine lacks support."""
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


def _maintenance_lines(status: dict[str, Any] | None) -> list[str]:
    """Lines about the last checkpoint and vacuum, and what is due; they begin with the subcommands."""
    if status is None:
        return ["-"]
    checkpoint, cleanup, vacuum = (status[name] for name in ("checkpoint", "cleanup", "vacuum"))
    last = (
        "none yet" if checkpoint["version"] is None else f"last at version {checkpoint['version']}"
    )
    interval = "" if checkpoint["interval"] is None else f" of {checkpoint['interval']:,}"
    since = f"{checkpoint['commits_since']:,}{interval}"
    files = "" if cleanup["files"] is None else f", {cleanup['files']:,} files of the log could go"
    done = (
        "no vacuum has left a note"
        if vacuum["vacuumed_version"] is None
        else f"done up to version {vacuum['vacuumed_version']}, noted at {vacuum['noted_at']}"
    )
    return [
        f"checkpoint: {_DUE[checkpoint['due']]}, {last}, commits since: {since}",
        f"cleanup: {_DUE[cleanup['due']]}{files}{_because(cleanup['reason'])}",
        f"vacuum: {_DUE[vacuum['due']]}, {done}{_because(vacuum['reason'])}",
    ]


def _because(reason: str | None) -> str:
    return "" if reason is None else f" ({in_cli_words(reason)})"


def _lines(name: str, value: Any) -> list[str]:
    """Format a value as lines: one per entry of a collection, ``-`` for nothing."""
    if isinstance(value, dict):
        lines = [f"{name} = {entry}" for name, entry in value.items()]
    elif isinstance(value, list):
        lines = [_entry(entry) for entry in value]
    else:
        text = size_text(value) if name == "size_in_bytes" else str(value)
        lines = [] if value is None else [text]
    return lines or ["-"]


def _entry(entry: Any) -> str:
    if not isinstance(entry, dict):
        return str(entry)
    kind = entry["type"] if isinstance(entry["type"], str) else json.dumps(entry["type"])
    return f"{entry['name']}: {kind}" + ("" if entry.get("nullable", True) else " not null")
