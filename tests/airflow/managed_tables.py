"""Managed tables for the tests of Airflow's side: their commit store is a file of SQLite."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.commit.sql.owner import SqlCommitOwner

__all__ = ["commit", "hand_over", "in_log", "sqlite_connection", "use_owner"]


def sqlite_connection(file: Path) -> str:
    """A connection of Airflow's to the commit store in a file."""
    return json.dumps({"conn_type": "delta_commit_owner", "extra": {"path": str(file)}})


def use_owner(monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    """Let the commit store in a file be that of all tasks."""
    monkeypatch.setenv("AIRFLOW_CONN_DELTA_COMMIT_OWNER_DEFAULT", sqlite_connection(file))


def hand_over(table: Path, file: Path, *, backfill: str = "on-request") -> SqlCommitOwner:
    """Hand a table over to the owner whose commit store is in a file, by one commit."""
    owner = SqlCommitOwner(f"sqlite:///{file}")
    result = DeltaTable(table, commit_owners={"sql": owner}).convert_to_managed(
        "sql", {"backfill": backfill}
    )
    assert result.converted
    return owner


def commit(table: Path, owner: SqlCommitOwner, times: int = 1) -> int:
    """Make commits to a managed table; the version of the last one."""
    opened = DeltaTable(table, commit_owners={"sql": owner})
    for number in range(times):
        opened.alter.set_properties({"number": f"{opened.latest_version()}.{number}"})
    return opened.latest_version()


def in_log(table: Path) -> int:
    """The newest version that everybody sees."""
    return max(int(file.stem) for file in (table / "_delta_log").glob("*[0-9].json"))
