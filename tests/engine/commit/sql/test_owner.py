"""How a table that names the owner ``sql`` finds it."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from airflow_delta.engine.commit.owner import ManagedTable, Standing
from airflow_delta.engine.commit.registry import CommitOwners
from airflow_delta.engine.commit.sql.owner import URL_VARIABLE, SqlCommitOwner
from airflow_delta.engine.errors import CommitOwnerUnavailableError, CommitStoreMissingError
from airflow_delta.engine.storage.location import open_storage


@pytest.fixture
def table(tmp_path: Path) -> ManagedTable:
    return ManagedTable(open_storage(str(tmp_path / "table")), "sql", {"tableId": "t"})


def test_an_entry_point_finds_the_owner_whose_database_the_environment_names(
    table: ManagedTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(URL_VARIABLE, f"sqlite:///{tmp_path}/commits.db")
    owner = CommitOwners().find(table)
    assert isinstance(owner, SqlCommitOwner)
    # One for all tables, so that they share connections.
    assert CommitOwners().find(table) is owner
    owner.propose(table, 3)
    assert (tmp_path / "commits.db").exists()
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


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("oracle://user:hidden@host", "'oracle'"),
        ("hidden", "can't be parsed"),
        ("postgresql://user@host:hidden/database", "can't be parsed"),
        ("sqlite://", "in memory"),
        ("sqlite:///owner.db", "'owner.db' names another file in each working directory"),
        ("sqlite:///../data/owner.db", "absolute path"),
        ("sqlite:///file:owner.db?uri=true", "absolute path"),
    ],
)
def test_a_variable_that_names_no_database_is_named(
    table: ManagedTable, monkeypatch: pytest.MonkeyPatch, value: str, reason: str
) -> None:
    """As of an owner that can't be reached, so that the table can still be read."""
    monkeypatch.setenv(URL_VARIABLE, value)
    with pytest.raises(CommitOwnerUnavailableError, match=reason) as caught:
        CommitOwners().find(table)
    error = caught.value
    assert URL_VARIABLE in str(error)
    assert (error.table, error.owner) == (table.uri, "sql")
    shown: BaseException | None = error
    while shown is not None:
        assert "hidden" not in str(shown)
        shown = shown.__cause__ or (None if shown.__suppress_context__ else shown.__context__)


def test_an_entry_point_that_fails_is_reported_with_the_table(
    table: ManagedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(URL_VARIABLE, raising=False)
    with pytest.raises(CommitOwnerUnavailableError) as caught:
        CommitOwners().find(table)
    assert caught.value.table == table.uri


def test_an_owner_given_a_relative_path_keeps_the_file(
    table: ManagedTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    owner = SqlCommitOwner("sqlite:///owner.db")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    with pytest.raises(CommitStoreMissingError, match=f"{tmp_path}/owner.db isn't there"):
        owner.status(table)
    owner.propose(table, 0)
    assert owner.status(table).standing is Standing.PROPOSED
    assert [path.name for path in (tmp_path / "elsewhere").iterdir()] == []
    assert (tmp_path / "owner.db").exists()


def test_sqlalchemy_is_loaded_for_a_sql_commit_store_only() -> None:
    code = (
        "import sys, airflow_delta.engine.table, airflow_delta.engine.commit.registry,"
        " airflow_delta.engine.commit.store.owner, airflow_delta.engine.commit.store.memory;"
        " assert not {'sqlalchemy', 'psycopg', 'sqlite3'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
