"""`SqlCommitStore` as a client of a database: how it is shared, created, lost and found again.

What it does as a commit store is in ``tests/contracts/test_commit_stores.py``.
"""

from __future__ import annotations

import os
import pickle
import re
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from sqlalchemy import make_url

from airflow_delta.engine.commit.sql.database import SqlDatabase
from airflow_delta.engine.commit.sql.store import SqlCommitStore
from airflow_delta.engine.errors import (
    CommitOwnerError,
    CommitOwnerUnavailableError,
    CommitStoreMissingError,
    InvalidArgumentError,
)
from airflow_delta.engine.log.files import UnbackfilledCommit, unbackfilled_commit_path
from tests.postgres_server import PASSWORD, new_database, postgres_cluster

ROOT = Path(__file__).resolve().parents[4]


def commit(version: int) -> UnbackfilledCommit:
    uuid = str(uuid4())
    return UnbackfilledCommit(version, uuid, unbackfilled_commit_path(version, uuid), 1, 2)


def active(commit_store: SqlCommitStore) -> str:
    table_id = str(uuid4())
    commit_store.propose(table_id, "s3://bucket/table", 0)
    commit_store.activate(table_id)
    return table_id


def versions(commit_store: SqlCommitStore, table_id: str) -> list[int]:
    entry = commit_store.find(table_id)
    assert entry is not None
    return [known.version for known in entry.commits]


URLS: dict[str, Callable[[Path], str]] = {
    "sqlite": lambda folder: f"sqlite:///{folder}/commits.db",
    "postgresql": lambda folder: new_database(),
}


@pytest.fixture(params=URLS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Of an empty database."""
    return URLS[request.param](tmp_path)


def execute(url: str, *statements: str) -> list[tuple[object, ...]]:
    """Execute statements beside the commit store: the rows of the last one."""
    parsed = make_url(url)
    if parsed.get_backend_name() == "sqlite":
        connection = sqlite3.connect(str(parsed.database), isolation_level=None)
        rows = [connection.execute(statement).fetchall() for statement in statements]
        connection.close()
        return rows[-1]
    plain = parsed.set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(plain, autocommit=True) as postgres:
        cursors = [postgres.execute(statement.encode()) for statement in statements]
        return cursors[-1].fetchall() if cursors[-1].description else []


# Which databases.


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("mysql://user:hidden@host/database", "can't store its commits in 'mysql'"),
        ("sqlite://", "in memory is gone with its connection"),
        ("sqlite:///:memory:", "in memory is gone with its connection"),
        ("sqlite:///file:commits?mode=memory&uri=true", "in memory is gone with its connection"),
        ("no url, but hidden", "can't be parsed"),
        ("postgresql://user@host:hidden/database", "can't be parsed"),
    ],
)
def test_other_databases_are_refused(url: str, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message) as caught:
        SqlCommitStore(url)
    assert "hidden" not in str(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_a_driver_that_is_not_there_is_named() -> None:
    commit_store = SqlCommitStore("postgresql+nodriver://user:hidden@host/database")
    with pytest.raises(
        CommitOwnerUnavailableError, match=r"nodriver.*install airflow-delta\["
    ) as e:
        commit_store.find("t")
    assert "hidden" not in str(e.value)


@pytest.mark.parametrize("driver", ["postgresql+psycopg_async", "postgresql+asyncpg"])
def test_a_driver_for_asyncio_is_refused(driver: str) -> None:
    with pytest.raises(
        CommitOwnerUnavailableError, match=rf"{re.escape(driver)} is a driver for asyncio"
    ):
        SqlCommitStore(f"{driver}://user:hidden@host/database").find("t")


def test_a_location_that_is_no_text_is_refused(url: str) -> None:
    with pytest.raises(InvalidArgumentError, match="can only store Unicode"):
        SqlCommitStore(url).propose("t", "/data/\udcff", 0)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql+psycopg://user:hidden@host:1/database",
        "postgresql://user@host:1/database?password=hidden",
        "postgresql://host:1/database?sslpassword=hidden&connect_timeout=1",
    ],
)
def test_a_representation_hides_what_is_secret(url: str) -> None:
    for shown in (repr(SqlCommitStore(url)), repr(SqlDatabase(url)), SqlDatabase(url).name):
        assert "hidden" not in shown
        assert "host:1/database" in shown


@pytest.mark.parametrize("scheme", ["postgresql", "postgres"])
def test_without_a_driver_it_is_the_one_of_the_extra(scheme: str) -> None:
    assert SqlDatabase(f"{scheme}://user@host/database").name == (
        "postgresql+psycopg://user@host/database"
    )


def test_a_relative_file_stays_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    commit_store = SqlCommitStore("sqlite:///commits.db")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    active(commit_store)
    active(pickle.loads(pickle.dumps(commit_store)))
    assert (tmp_path / "commits.db").exists()
    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert len(commit_store.entries_at("s3://bucket/table")) == 2


@pytest.mark.parametrize("file", ["file:commits.db?uri=true", "file:./commits.db?mode=rw&uri=true"])
def test_a_relative_uri_of_a_file_is_refused(file: str) -> None:
    with pytest.raises(InvalidArgumentError, match="needs an absolute path"):
        SqlCommitStore(f"sqlite:///{file}")


def test_a_uri_of_a_file_is_that_file(tmp_path: Path) -> None:
    commit_store = SqlCommitStore(f"sqlite:///file:{tmp_path}/a%20b.db?uri=true")
    with pytest.raises(CommitStoreMissingError, match=r"a b\.db isn't there"):
        commit_store.find("t")
    table_id = active(commit_store)
    assert (tmp_path / "a b.db").exists()
    assert versions(commit_store, table_id) == []


# Who creates what.

LOOKS: dict[str, Callable[[SqlCommitStore], object]] = {
    "find": lambda commit_store: commit_store.find("t"),
    "entries_at": lambda commit_store: commit_store.entries_at("s3://bucket/table"),
    "forget": lambda commit_store: commit_store.forget("t", 0),
    "activate": lambda commit_store: commit_store.activate("t"),
    "ratify": lambda commit_store: commit_store.ratify("t", commit(1), releases=False),
    "observe": lambda commit_store: commit_store.observe("t", 1),
    "relocate": lambda commit_store: commit_store.relocate("t", "s3://bucket/other"),
    "accept": lambda commit_store: commit_store.accept("t", 1, instead_of=2),
}


@pytest.mark.parametrize("look", LOOKS)
def test_a_file_that_is_not_there_is_named_and_not_created(look: str, tmp_path: Path) -> None:
    commit_store = SqlCommitStore(f"sqlite:///{tmp_path}/commits.db")
    with pytest.raises(
        CommitStoreMissingError, match=rf"{re.escape(str(tmp_path))}/commits\.db isn't there"
    ):
        LOOKS[look](commit_store)
    assert list(tmp_path.iterdir()) == []
    # The same object works as soon as there is a table.
    active(commit_store)
    LOOKS[look](commit_store)


def test_a_database_without_the_tables_does_not_get_them_by_a_look(url: str) -> None:
    execute(url, "CREATE TABLE somebody_elses (a INTEGER)")
    commit_store = SqlCommitStore(url)
    for look in LOOKS.values():
        with pytest.raises(CommitStoreMissingError, match="has no tables of a commit owner"):
            look(commit_store)
    tables = {
        "sqlite": "SELECT name FROM sqlite_master",
        "postgresql": "SELECT tablename FROM pg_tables WHERE schemaname = 'public'",
    }[make_url(url).get_backend_name()]
    assert execute(url, tables) == [("somebody_elses",)]
    active(commit_store)
    assert commit_store.find("t") is None


def test_a_file_that_vanishes_is_missed_and_another_one_in_its_place_is_found(
    tmp_path: Path,
) -> None:
    commit_store, others = (
        SqlCommitStore(f"sqlite:///{tmp_path}/{name}.db") for name in ("commits", "backup")
    )
    table_id, restored = active(commit_store), active(others)
    others._database._engine().dispose()
    for file in tmp_path.glob("commits.db*"):
        file.unlink()
    with pytest.raises(CommitStoreMissingError, match=r"commits\.db isn't there"):
        commit_store.find(table_id)
    (tmp_path / "backup.db").rename(tmp_path / "commits.db")
    assert commit_store.find(table_id) is None
    assert versions(commit_store, restored) == []


# Sharing.


def test_a_pickled_commit_store_uses_the_same_database(url: str) -> None:
    commit_store = SqlCommitStore(url)
    table_id = active(commit_store)
    copy = pickle.loads(pickle.dumps(commit_store))
    assert copy.ratify(table_id, commit(1), releases=False)
    assert versions(commit_store, table_id) == versions(copy, table_id) == [1]


FORK = """
import os, sys
from tests.engine.commit.sql.test_store import SqlCommitStore, active, commit
commit_store = SqlCommitStore(sys.argv[1])
table_id = active(commit_store)
assert commit_store.ratify(table_id, commit(1), releases=False)
inherited = commit_store._database._engine()
child = os.fork()
if child == 0:
    assert commit_store._database._engine() is not inherited
    assert commit_store.ratify(table_id, commit(2), releases=False)
    child = os.fork()
    if child == 0:
        assert commit_store.ratify(table_id, commit(3), releases=False)
        sys.exit()
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert commit_store.find(table_id).latest_version == 3
"""


def test_a_process_that_is_forked_off_leaves_its_parents_connections_alone(url: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORK, url],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_threads_share_a_commit_store_from_its_first_use_on(url: str) -> None:
    commit_store, threads = SqlCommitStore(url), 8
    barrier = threading.Barrier(threads)

    def use(_: int) -> str:
        barrier.wait(timeout=60)
        return active(commit_store)

    with ThreadPoolExecutor(threads) as pool:
        assert len(set(pool.map(use, range(threads)))) == threads
    assert len(commit_store.entries_at("s3://bucket/table")) == threads


# The schema.

FIRST = """
import sys
from airflow_delta.engine.commit.sql.store import SqlCommitStore
commit_store = SqlCommitStore(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
commit_store.propose(sys.argv[2], "s3://bucket/table", 0)
"""


def test_processes_that_are_first_together_create_one_schema(url: str) -> None:
    running = [
        subprocess.Popen(
            [sys.executable, "-c", FIRST, url, f"table {number}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        for number in range(3)
    ]
    for process in running:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
    for process in running:
        assert process.stdin
        process.stdin.write("\n")
        process.stdin.flush()
    assert [process.communicate(timeout=60)[1] for process in running] == [""] * 3
    assert execute(url, "SELECT version FROM airflow_delta_managed_schema") == [(1,)]
    assert len(SqlCommitStore(url).entries_at("s3://bucket/table")) == 3


def test_a_newer_schema_is_refused(url: str) -> None:
    active(SqlCommitStore(url))
    execute(url, "INSERT INTO airflow_delta_managed_schema (version) VALUES (2)")
    with pytest.raises(CommitOwnerError, match=r"has version 2 of its tables .* upgrade") as caught:
        SqlCommitStore(url).find("t")
    assert not isinstance(caught.value, CommitOwnerUnavailableError)


def test_a_schema_that_could_not_be_created_is_created_next_time(url: str) -> None:
    # What is in the way has the name of one of our indexes.
    execute(url, "CREATE TABLE airflow_delta_managed_locations (a INTEGER)")
    commit_store = SqlCommitStore(url)
    with pytest.raises(CommitOwnerUnavailableError, match="airflow_delta_managed_locations"):
        active(commit_store)
    execute(url, "DROP TABLE airflow_delta_managed_locations")
    active(commit_store)
    assert execute(url, "SELECT version FROM airflow_delta_managed_schema") == [(1,)]


def test_administrators_see_when_commits_were_ratified(url: str) -> None:
    commit_store = SqlCommitStore(url)
    assert commit_store.ratify(active(commit_store), commit(1), releases=False)
    [row] = execute(
        url,
        "SELECT created_at <= ratified_at AND ratified_at <= CURRENT_TIMESTAMP"
        " FROM airflow_delta_managed_tables NATURAL JOIN airflow_delta_managed_commits",
    )
    assert row == (True,)


def test_there_is_a_row_for_each_commit_that_is_not_backfilled_and_no_other(url: str) -> None:
    commit_store = SqlCommitStore(url)
    table_id, other = active(commit_store), active(commit_store)
    for version in range(1, 6):
        assert commit_store.ratify(table_id, commit(version), releases=False)
    assert commit_store.ratify(other, commit(1), releases=False)
    commit_store.observe(table_id, 2)
    rows = f"SELECT version FROM airflow_delta_managed_commits WHERE table_id = '{table_id}'"
    assert sorted(execute(url, rows)) == [(3,), (4,), (5,)]
    commit_store.observe(table_id, 5)
    assert execute(url, rows) == []
    assert versions(commit_store, other) == [1]


def test_a_ratification_knows_by_itself_that_it_took_effect(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A commit that somebody else backfills at once isn't tracked any more when one looks.
    monkeypatch.setattr(SqlCommitStore, "_tracks", lambda *_: False)
    commit_store = SqlCommitStore(url)
    table_id = active(commit_store)
    assert commit_store.ratify(table_id, commit(1), releases=False)
    assert not commit_store.ratify(table_id, commit(1), releases=False)


def test_tables_that_contradict_each_other_are_an_error(url: str) -> None:
    commit_store = SqlCommitStore(url)
    table_id = active(commit_store)
    execute(
        url,
        "INSERT INTO airflow_delta_managed_commits (table_id, version, uuid, size, modified_ms)"
        f" VALUES ('{table_id}', 1, 'u', 1, 2)",
    )
    with pytest.raises(
        CommitOwnerError, match=r"tables of the commit owner in .* contradict each other"
    ) as caught:
        commit_store.ratify(table_id, commit(1), releases=False)
    assert not isinstance(caught.value, CommitOwnerUnavailableError)
    # Nothing of it took effect.
    entry = commit_store.find(table_id)
    assert entry is not None
    assert entry.latest_version == 0


# Databases that fail.


@pytest.mark.parametrize("file", ["{0}/commits.db", "file:{0}/commits.db?uri=true", "{0}/link.db"])
def test_a_new_file_of_sqlite_is_its_owners_alone(tmp_path: Path, file: str) -> None:
    """It shows who commits what, and anybody who can write to it decides what is committed."""
    (tmp_path / "link.db").symlink_to(tmp_path / "commits.db")
    commit_store = SqlCommitStore(f"sqlite:///{file.format(tmp_path)}")
    before = os.umask(0o000)
    try:
        table_id = active(commit_store)
        # As long as there is a connection, there are its other files.
        assert commit_store.ratify(table_id, commit(1), releases=False)
        modes = {
            made.name: stat.S_IMODE(made.stat().st_mode) for made in tmp_path.glob("commits.db*")
        }
    finally:
        os.umask(before)
    assert modes == dict.fromkeys(("commits.db", "commits.db-wal", "commits.db-shm"), 0o600)


def test_a_file_of_sqlite_that_is_there_keeps_its_permissions(tmp_path: Path) -> None:
    """Somebody may have given it to a group."""
    file = tmp_path / "commits.db"
    file.touch()
    file.chmod(0o660)
    table_id = active(SqlCommitStore(f"sqlite:///{file}"))
    assert versions(SqlCommitStore(f"sqlite:///{file}"), table_id) == []
    assert stat.S_IMODE(file.stat().st_mode) == 0o660


@pytest.mark.parametrize("mode", ["ro", "rw"])
def test_a_file_that_sqlite_is_not_to_create_isnt_created(tmp_path: Path, mode: str) -> None:
    commit_store = SqlCommitStore(f"sqlite:///file:{tmp_path}/commits.db?mode={mode}&uri=true")
    with pytest.raises(CommitOwnerUnavailableError, match=r"commits\.db.* failed: unable to open"):
        active(commit_store)
    assert [*tmp_path.iterdir()] == []


def test_a_file_that_can_not_be_opened_is_named(tmp_path: Path) -> None:
    commit_store = SqlCommitStore(f"sqlite:///{tmp_path}/no/folder/commits.db")
    with pytest.raises(CommitOwnerUnavailableError, match=r"commits\.db failed: unable to open"):
        active(commit_store)


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    file = tmp_path / "commits.db"
    file.write_bytes(b"no database" * 1000)
    commit_store = SqlCommitStore(f"sqlite:///{file}")
    uses: tuple[Callable[[], object], ...] = (
        lambda: commit_store.find("t"),
        lambda: commit_store.propose("t", "s3://bucket/table", 0),
    )
    for use in uses:
        problem = r"/commits\.db is a file, but not of SQLite.*restore it from a backup$"
        with pytest.raises(CommitOwnerUnavailableError, match=problem) as caught:
            use()
        assert not isinstance(caught.value, CommitStoreMissingError)
    assert file.read_bytes() == b"no database" * 1000


def test_sqlite_is_flushed_and_reads_and_writes_do_not_wait_for_each_other(tmp_path: Path) -> None:
    file = tmp_path / "commits.db"
    commit_store = SqlCommitStore(f"sqlite:///{file}?timeout=0")
    table_id = active(commit_store)
    with commit_store._database._engine().connect() as connection:
        settings = [
            connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "synchronous", "foreign_keys")
        ]
    assert settings == ["wal", 2, 1]

    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN")
    assert other.execute("SELECT * FROM airflow_delta_managed_commits").fetchall() == []
    assert commit_store.ratify(table_id, commit(1), releases=False)
    other.execute("COMMIT")

    other.execute("BEGIN IMMEDIATE")
    assert versions(commit_store, table_id) == [1]
    for write in (
        lambda: commit_store.ratify(table_id, commit(2), releases=False),
        lambda: commit_store.observe(table_id, 1),
        lambda: commit_store.propose("t", "s3://bucket/table", 0),
    ):
        with pytest.raises(CommitOwnerUnavailableError, match="database is locked"):
            write()
    other.execute("COMMIT")
    assert commit_store.ratify(table_id, commit(2), releases=False)
    other.close()


def test_a_server_that_dies_is_unavailable_and_its_password_stays_secret() -> None:
    with postgres_cluster() as cluster:
        url = cluster.new_database()
        commit_store = SqlCommitStore(url)
        table_id = active(commit_store)
        cluster.stop()
        for step in (
            lambda: commit_store.ratify(table_id, commit(1), releases=False),
            lambda: commit_store.find(table_id),
            lambda: commit_store.observe(table_id, 1),
            lambda: SqlCommitStore(url).find(table_id),
        ):
            with pytest.raises(
                CommitOwnerUnavailableError, match=r"database postgresql.*127\.0\.0\.1.* failed: "
            ) as caught:
                step()
            for secret in (PASSWORD, str(make_url(url).password), url.split(":")[2].split("@")[0]):
                assert secret not in repr(caught.value)
                assert secret not in repr(caught.value.__cause__)


def test_a_wrong_password_stays_secret_too() -> None:
    url = make_url(new_database()).set(password="wrong").render_as_string(hide_password=False)
    with pytest.raises(CommitOwnerUnavailableError, match="authentication failed") as caught:
        SqlCommitStore(url).find("t")
    assert "wrong" not in str(caught.value)


def test_a_drivers_message_is_reported_without_the_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def connect(*args: object, **options: object) -> None:
        raise psycopg.OperationalError("this makes no sense:\npassword='hid den' or 'other'")

    monkeypatch.setattr(psycopg, "connect", connect)
    commit_store = SqlCommitStore("postgresql://user:hid%20den@host/database?sslpassword=other")
    with pytest.raises(
        CommitOwnerUnavailableError,
        match=r"makes no sense: password='\*\*\*' or '\*\*\*'\. Make",
    ) as caught:
        commit_store.find("t")
    # Nor what would be printed with it.
    assert caught.value.__suppress_context__
    assert caught.value.__cause__ is None


DISCONNECT = (
    "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
    " WHERE datname = current_database() AND pid <> pg_backend_pid()"
)


def test_a_lost_connection_is_replaced() -> None:
    url = new_database()
    commit_store = SqlCommitStore(url)
    table_id = active(commit_store)
    assert commit_store.ratify(table_id, commit(1), releases=False)
    for step in (
        lambda: commit_store.find(table_id),
        lambda: commit_store.observe(table_id, 1),
        lambda: commit_store.propose("t", "s3://bucket/table", 0),
    ):
        assert execute(url, DISCONNECT) == [(True,)]
        step()
    entry = commit_store.find(table_id)
    assert entry is not None
    assert entry.backfilled_version == 1


def test_a_ratification_is_not_repeated_where_it_may_have_taken_effect() -> None:
    url = new_database()
    commit_store = SqlCommitStore(url)
    table_id, mine = active(commit_store), commit(1)
    assert execute(url, DISCONNECT) == [(True,)]
    with pytest.raises(CommitOwnerUnavailableError, match="terminating connection"):
        commit_store.ratify(table_id, mine, releases=False)
    assert commit_store.ratify(table_id, mine, releases=False)
    assert commit_store.ratify(table_id, mine, releases=False)
    assert versions(commit_store, table_id) == [1]


def test_a_stricter_isolation_by_default_does_not_make_a_race_fail() -> None:
    url, threads = new_database(), 4
    name = make_url(url).database
    execute(url, f"ALTER DATABASE {name} SET default_transaction_isolation = 'serializable'")
    commit_store = SqlCommitStore(url)
    table_id = active(commit_store)
    barrier = threading.Barrier(threads)

    def race(_: int) -> int:
        won = 0
        for version in range(1, 11):
            barrier.wait(timeout=60)
            won += commit_store.ratify(table_id, commit(version), releases=False)
        return won

    with ThreadPoolExecutor(threads) as pool:
        assert sum(pool.map(race, range(threads))) == 10
    assert versions(commit_store, table_id) == list(range(1, 11))


def test_tables_of_an_earlier_version_get_the_checksums_of_commits(url: str) -> None:
    """That is no new schema: workers of that version go on, and their commits have none."""
    table_id = active(SqlCommitStore(url))
    execute(url, "ALTER TABLE airflow_delta_managed_commits DROP COLUMN crc32")
    with ThreadPoolExecutor(3) as pool:
        assert (
            list(pool.map(lambda _: versions(SqlCommitStore(url), table_id), range(3))) == [[]] * 3
        )
    first, second = commit(1), replace(commit(2), crc32=2**32 - 1)
    commit_store = SqlCommitStore(url)
    assert commit_store.ratify(table_id, first, releases=False)
    assert commit_store.ratify(table_id, second, releases=False)
    entry = SqlCommitStore(url).find(table_id)
    assert entry is not None
    assert [each.crc32 for each in entry.commits] == [None, 2**32 - 1]
    assert execute(url, "SELECT version FROM airflow_delta_managed_schema") == [(1,)]
