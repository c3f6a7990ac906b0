"""Directories of Parquet files, and what a conversion has written into their logs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["actions_of", "adds_of", "fingerprint", "write_parquet"]


def write_parquet(file: Path, columns: Any, **options: Any) -> Path:
    """Write one file, and its directories."""
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(columns if isinstance(columns, pa.Table) else pa.table(columns), file, **options)
    return file


def actions_of(table: Path) -> list[dict[str, Any]]:
    """The actions of version 0, as JSON."""
    text = (table / "_delta_log" / f"{0:020}.json").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def adds_of(table: Path) -> dict[str, dict[str, Any]]:
    """The adds of version 0 by path, with their statistics parsed."""
    adds = [action["add"] for action in actions_of(table) if "add" in action]
    return {add["path"]: {**add, "stats": json.loads(add.get("stats", "null"))} for add in adds}


def fingerprint(folder: Path) -> dict[str, tuple[bytes, int]]:
    """The content and the time of every file outside of the log."""
    return {
        str(file.relative_to(folder)): (file.read_bytes(), file.stat().st_mtime_ns)
        for file in folder.rglob("*")
        if file.is_file() and "_delta_log" not in file.parts
    }
