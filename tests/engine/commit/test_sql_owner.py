"""How a table that names the owner ``sql`` finds it."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from airflow_delta.engine.commit.owner import ManagedTable, Standing
from airflow_delta.engine.commit.registry import CommitOwners
from airflow_delta.engine.commit.sql_owner import URL_VARIABLE, SqlCommitOwner, from_environment
from airflow_delta.engine.errors import CommitOwnerUnavailableError, InvalidArgumentError
from airflow_delta.engine.storage.location import open_storage


@pytest.fixture
def table(tmp_path: Path) -> ManagedTable:
    return ManagedTable(open_storage(str(tmp_path / "table")), "sql", {"tableId": "t"})


def test_an_entry_point_finds_the_owner_whose_database_the_environment_names(
    table: ManagedTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(URL_VARIABLE, f"sqlite:///{tmp_path}/books.db")
    owner = CommitOwners().find(table)
    assert isinstance(owner, SqlCommitOwner)
    # One for all tables, so that they share connections.
    assert CommitOwners().find(table) is owner
    owner.propose(table, 3)
    assert (tmp_path / "books.db").exists()
    copy = pickle.loads(pickle.dumps(owner))
    assert copy.status(table).standing is Standing.PROPOSED

    monkeypatch.setenv(URL_VARIABLE, f"sqlite:///{tmp_path}/others.db")
    assert CommitOwners().find(table) is not owner


@pytest.mark.parametrize("value", [None, ""])
def test_without_the_variable_the_owner_says_so(
    table: ManagedTable, monkeypatch: pytest.MonkeyPatch, value: str | None
) -> None:
    if value is None:
        monkeypatch.delenv(URL_VARIABLE, raising=False)
    else:
        monkeypatch.setenv(URL_VARIABLE, value)
    with pytest.raises(CommitOwnerUnavailableError, match=URL_VARIABLE) as caught:
        CommitOwners().find(table)
    assert caught.value.owner == "sql"


def test_the_variable_must_name_a_database(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(URL_VARIABLE, "oracle://user:hidden@host")
    with pytest.raises(InvalidArgumentError, match="'oracle'"):
        from_environment({})


def test_nobody_loads_sqlalchemy_who_has_no_sql_ledger() -> None:
    code = (
        "import sys, airflow_delta.engine.table, airflow_delta.engine.commit.registry,"
        " airflow_delta.engine.commit.ledger_owner, airflow_delta.engine.commit.memory_ledger;"
        " assert not {'sqlalchemy', 'psycopg', 'sqlite3'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
