"""The connection of the commit owner: which database it stands for, and which tables get to know of it."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import make_url

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.commit.sql.owner import URL_VARIABLE, SqlCommitOwner
from airflow_delta.engine.errors import CommitOwnerUnavailableError, DeltaWarning
from airflow_delta.hooks.commit_owner import CommitOwnerHook
from airflow_delta.hooks.delta import DeltaHook
from airflow_delta.hooks.failures import TableFailure
from airflow_delta.version_compat import AirflowNotFoundException
from tests.airflow.managed_tables import commit, hand_over, sqlite_connection, use_owner

SECRET = 's3:cr/3t@"%+ of the owner'
HOST = {"host": "db.example.com", "schema": "owner"}
LOGIN = {"login": "delta", "password": SECRET}


def define(monkeypatch: pytest.MonkeyPatch, name: str, **connection: Any) -> None:
    monkeypatch.setenv(f"AIRFLOW_CONN_{name.upper()}", json.dumps(connection))


def url(name: str | None = None) -> str | None:
    """The URL as tasks and as triggers get it, which must be the same."""
    hook = CommitOwnerHook(name)
    found = hook.url()
    assert asyncio.run(hook.url_async()) == found
    return found


@pytest.mark.parametrize("kind", ["delta_commit_owner", "postgres"])
def test_a_connection_to_postgresql(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    extra = {"sslmode": "verify-full", "connect_timeout": 5, "sslrootcert": "", "options": None}
    define(monkeypatch, "central", conn_type=kind, port=5433, extra=extra, **HOST, **LOGIN)
    found = make_url(str(url("central")))
    assert found.drivername == "postgresql+psycopg"
    assert (found.host, found.port, found.database) == ("db.example.com", 5433, "owner")
    assert (found.username, found.password) == ("delta", SECRET)
    assert dict(found.query) == {"sslmode": "verify-full", "connect_timeout": "5"}


def test_a_connection_of_airflows_own_as_a_uri(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(
        "AIRFLOW_CONN_CENTRAL",
        "postgresql://delta:p%40ss@db/owner?sslmode=require&cursor=dictcursor",
    )
    assert url("central") == "postgresql+psycopg://delta:p%40ss@db/owner?sslmode=require"


@pytest.mark.parametrize(
    "connection",
    [
        {"conn_type": "delta_commit_owner", "extra": {"path": "/data/own er.db"}},
        {"conn_type": "sqlite", "host": "/data/own er.db"},
        "sqlite:////data/own%20er.db",
        "sqlite://%2Fdata%2Fown%20er.db",
    ],
    ids=str,
)
def test_a_connection_to_sqlite(monkeypatch: pytest.MonkeyPatch, connection: Any) -> None:
    text = connection if isinstance(connection, str) else json.dumps(connection)
    monkeypatch.setenv("AIRFLOW_CONN_CENTRAL", text)
    found = make_url(str(url("central")))
    assert (found.drivername, found.database) == ("sqlite", "/data/own er.db")
    assert not found.query


@pytest.mark.parametrize(
    ("connection", "message"),
    [
        (
            {"conn_type": "mysql", **HOST},
            "of type 'mysql': expected one of delta_commit_owner, postgr",
        ),
        ({"conn_type": "delta_commit_owner"}, "names neither a host nor a file"),
        (
            {"conn_type": "delta_commit_owner", "extra": {"path": "/o.db"}, **HOST},
            "names both a host and a file",
        ),
        ({"conn_type": "delta_commit_owner", "host": "db"}, "no database, in the field schema"),
        ({"conn_type": "postgres", "schema": "owner"}, "names no host"),
        ({"conn_type": "postgres", "extra": {"iam": True}, **HOST}, "has iam, which"),
        ({"conn_type": "sqlite"}, "names '' as the file of SQLite: expected an absolute path"),
        ({"conn_type": "sqlite", "host": "owner.db"}, "names 'owner.db' as the file"),
        ({"conn_type": "sqlite", "host": ":memory:"}, "names ':memory:' as the file"),
        (
            {"conn_type": "postgres", "extra": {"keepalives": True}, **HOST},
            "the extras keepalives,",
        ),
    ],
    ids=str,
)
def test_what_is_no_database_of_an_owner_is_refused(
    monkeypatch: pytest.MonkeyPatch, connection: dict[str, Any], message: str
) -> None:
    define(monkeypatch, "central", **connection)
    with pytest.raises(TableFailure, match=f"connection 'central' of the commit owner .*{message}"):
        CommitOwnerHook("central").url()
    with pytest.raises(TableFailure, match=message):
        asyncio.run(CommitOwnerHook("central").url_async())


def test_secrets_are_masked_in_each_of_their_forms(monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.sdk.log import redact

    extra = {"sslpassword": "k3y-of-the-key"}
    define(monkeypatch, "central", conn_type="postgres", extra=extra, **HOST, **LOGIN)
    found = str(url("central"))
    shown = str(redact(f"{found} {SECRET} k3y-of-the-key"))
    assert "k3y-of-the-key" not in shown
    assert "cr%2F3t" not in shown
    assert SECRET not in shown
    assert "db.example.com" in shown


def test_a_named_connection_must_exist(sales: Path) -> None:
    message = r"'central' \(commit_owner_conn_id\) isn't defined"
    with pytest.raises(AirflowNotFoundException, match=message):
        url("central")
    hook = DeltaHook(None, "central")
    with pytest.raises(AirflowNotFoundException, match=message):
        hook.table(str(sales))
    with pytest.raises(AirflowNotFoundException, match=message):
        asyncio.run(hook.table_async(str(sales)))


def test_the_default_connection_is_used_where_it_exists(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert url() is None
    assert url("") is None, "as a template renders nothing"
    use_owner(monkeypatch, tmp_path / "owner.db")
    assert url() == f"sqlite:///{tmp_path}/owner.db"


def test_no_database_is_touched_for_a_table_of_the_file_system(
    monkeypatch: pytest.MonkeyPatch, sales: Path, tmp_path: Path
) -> None:
    use_owner(monkeypatch, tmp_path / "missing" / "owner.db")
    hook = DeltaHook()
    assert hook.pin(str(sales))["version"] == 3
    assert hook.latest_version(asyncio.run(hook.table_async(str(sales)))) == 3
    assert list(tmp_path.iterdir()) == []


def test_tables_get_the_owner_of_the_connection(
    monkeypatch: pytest.MonkeyPatch, sales_copy: Path, tmp_path: Path
) -> None:
    """Of the default one, of a named one, and where there is none, of the environment."""
    owner = hand_over(sales_copy, tmp_path / "owner.db")
    commit(sales_copy, owner)
    with pytest.warns(DeltaWarning, match="may be stale"):
        assert DeltaHook().pin(str(sales_copy))["version"] == 4
    monkeypatch.setenv(URL_VARIABLE, f"sqlite:///{tmp_path}/owner.db")
    assert DeltaHook().pin(str(sales_copy))["version"] == 5
    monkeypatch.delenv(URL_VARIABLE)
    monkeypatch.setenv("AIRFLOW_CONN_CENTRAL", sqlite_connection(tmp_path / "owner.db"))
    assert DeltaHook(None, "central").pin(str(sales_copy))["version"] == 5
    use_owner(monkeypatch, tmp_path / "owner.db")
    assert DeltaHook().pin(str(sales_copy))["version"] == 5
    table = asyncio.run(DeltaHook().table_async(str(sales_copy)))
    assert table.latest_version() == 5


def test_a_connection_comes_before_the_environment(
    monkeypatch: pytest.MonkeyPatch, sales_copy: Path, tmp_path: Path
) -> None:
    owner = hand_over(sales_copy, tmp_path / "owner.db")
    commit(sales_copy, owner)
    monkeypatch.setenv(URL_VARIABLE, f"sqlite:///{tmp_path}/another.db")
    use_owner(monkeypatch, tmp_path / "owner.db")
    assert DeltaHook().pin(str(sales_copy))["version"] == 5


def test_the_owner_of_a_database_is_made_once(
    monkeypatch: pytest.MonkeyPatch, sales: Path, tmp_path: Path
) -> None:
    """Each has a pool of connections, and a sensor opens its table at every look."""
    made: list[str] = []
    begin = SqlCommitOwner.__init__

    def counted(owner: SqlCommitOwner, url: str) -> None:
        made.append(url)
        begin(owner, url)

    monkeypatch.setattr(SqlCommitOwner, "__init__", counted)
    use_owner(monkeypatch, tmp_path / "owner.db")
    for _ in range(3):
        DeltaHook().table(str(sales))
    assert len(made) == 1


def test_the_button_of_the_form_tells_whether_the_database_can_be_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "owner.db"
    monkeypatch.setenv("AIRFLOW_CONN_CENTRAL", sqlite_connection(file))
    assert CommitOwnerHook("central").test_connection() == (
        True,
        f"connected to sqlite:///{file}, whose tables are those of the commit owner",
    )
    with sqlite3.connect(file) as database:
        names = {name for (name,) in database.execute("select name from sqlite_master")}
    database.close()
    assert "airflow_delta_managed_tables" in names


@pytest.mark.parametrize("name", ["central", None])
def test_the_button_tells_what_is_wrong(monkeypatch: pytest.MonkeyPatch, name: str | None) -> None:
    fine, message = CommitOwnerHook(name).test_connection()
    assert not fine
    assert f"{name or 'delta_commit_owner_default'!r} (commit_owner_conn_id) isn't" in message


def test_the_button_tells_of_a_database_that_is_away_without_its_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Nobody listens at port 1 of this machine.
    here = {"host": "127.0.0.1", "port": 1, "schema": "owner"}
    define(monkeypatch, "central", conn_type="postgres", **here, **LOGIN)
    fine, message = CommitOwnerHook("central").test_connection()
    assert not fine
    assert message.startswith("CommitOwnerUnavailableError: ")
    assert "127.0.0.1" in message
    assert SECRET not in message
    assert "cr%2F3t" not in message


def test_an_owner_that_cannot_be_asked_is_a_typed_error(
    monkeypatch: pytest.MonkeyPatch, sales_copy: Path, tmp_path: Path
) -> None:
    hand_over(sales_copy, tmp_path / "owner.db")
    table = DeltaHook().table(str(sales_copy))
    with pytest.raises(CommitOwnerUnavailableError, match=URL_VARIABLE):
        table.commit_status()


# Opens a table as a trigger does, and prints what its event loop's thread imported and opened.
WATCHED_OPENING = """
import asyncio, sys, threading
from airflow_delta.hooks.delta import DeltaHook

loop, seen, running = threading.get_ident(), [], False

def watch(event, arguments):
    if running and threading.get_ident() == loop:
        if event in {"import", "open", "os.listdir", "os.scandir", "sqlite3.connect"}:
            seen.append(f"{event} {arguments[0]}")

sys.addaudithook(watch)

async def run():
    global running
    running = True
    table = await DeltaHook().table_async(sys.argv[1])
    found = await asyncio.to_thread(table.commit_status)
    running = False
    return found.ratified_version

assert asyncio.run(run()) == 4
print(*seen, sep="\\n")
"""


def test_opening_a_managed_table_does_not_block_the_event_loop(
    monkeypatch: pytest.MonkeyPatch, sales_copy: Path, tmp_path: Path
) -> None:
    hand_over(sales_copy, tmp_path / "owner.db")
    use_owner(monkeypatch, tmp_path / "owner.db")
    command = [sys.executable, "-c", WATCHED_OPENING, str(sales_copy)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    heavy = ("airflow_delta.engine", "sqlite3", "pyarrow", "numpy", str(tmp_path))
    assert not [line for line in done.stdout.splitlines() if any(name in line for name in heavy)]


def test_tables_keep_no_secret_of_the_connection(
    monkeypatch: pytest.MonkeyPatch, sales_copy: Path
) -> None:
    define(monkeypatch, "central", conn_type="postgres", **HOST, **LOGIN)
    table = DeltaHook(None, "central").table(str(sales_copy))
    assert isinstance(table, DeltaTable)
    assert SECRET not in f"{table!r} {vars(table)!r}"
