"""Connect to the database of a commit owner: URLs, SQLAlchemy engines, and messages without secrets.

`parse_database_url` checks a URL, and `make_engine` makes the engine for it. The URL names the driver
(``postgresql+psycopg``), and its parameters go to the driver. This module sets what the URL doesn't: time
limits, and what durability needs. `render_public_url` and `mask_secrets` are for messages.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from sqlalchemy import URL, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError

from airflow_delta.engine.errors import CommitOwnerUnavailableError, InvalidArgumentError

__all__ = [
    "get_sqlite_path",
    "make_engine",
    "mask_secrets",
    "parse_database_url",
    "render_public_url",
]

_SQLITE_OPTIONS = {"timeout": 60}
"""The time that a writer waits for other writers, in seconds."""

_WAL_ATTEMPTS = 5
"""How many times switching a file to a write-ahead log is tried, while other processes do the same."""

_LIBPQ_OPTIONS = {
    # In seconds. A task must not wait long for a server that has vanished.
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    # Milliseconds.
    "tcp_user_timeout": 60_000,
}

# A pooler may use another server connection for each transaction, and a prepared statement exists on one
# connection only.
_PSYCOPG_OPTIONS = {**_LIBPQ_OPTIONS, "prepare_threshold": None}

_OPTIONS: dict[str, dict[str, Any]] = {
    "pysqlite": _SQLITE_OPTIONS,
    "psycopg": _PSYCOPG_OPTIONS,
    "psycopg2": _LIBPQ_OPTIONS,
}
"""The options of each driver; parameters of the URL override them."""


def parse_database_url(url: str, *, absolute: bool = False) -> URL:
    """Parse the URL of a database for a commit store, and make a relative path absolute.

    Args:
        url: as SQLAlchemy writes it.
        absolute: refuse a relative path.

    Raises:
        InvalidArgumentError: it isn't the URL of a PostgreSQL database or of an SQLite file.
    """
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        # The cause may quote the password, so it isn't shown.
        raise _make_parse_error() from None
    # The password was parsed up to its first @, so the rest of it is taken for a part of the host.
    if "@" in (parsed.host or ""):
        raise _make_parse_error()
    # The default driver depends on the version of SQLAlchemy; ours is the one that the extra installs.
    # Airflow, among others, uses the shorter scheme.
    if parsed.drivername in ("postgresql", "postgres"):
        return parsed.set(drivername="postgresql+psycopg")
    backend = parsed.get_backend_name()
    if backend == "sqlite":
        return _with_path(parsed, absolute=absolute)
    if backend != "postgresql":
        raise InvalidArgumentError(
            f"a commit owner can't store its commits in {backend!r}; expected the URL of a PostgreSQL "
            "database or an SQLite file"
        )
    return parsed


def _make_parse_error() -> InvalidArgumentError:
    return InvalidArgumentError(
        "the URL of the commit owner's database can't be parsed; expected one as SQLAlchemy writes it, "
        "such as postgresql+psycopg://user:password@host/database, where special characters of the "
        "password are percent-encoded (@ is %40)"
    )


def get_sqlite_path(url: URL) -> Path | None:
    """Return the path of the file that a URL of SQLite names; None for another kind of database."""
    if url.get_backend_name() != "sqlite":
        return None
    if not _has_uri(url):
        return Path(url.database or "")
    return Path(unquote(urlsplit(url.database or "").path))


def _has_uri(url: URL) -> bool:
    """Return whether the URL names the file by a URI of SQLite, ``file:…?uri=true``, not by a path."""
    return (url.database or "").startswith("file:") and url.query.get("uri") == "true"


def _with_path(url: URL, *, absolute: bool) -> URL:
    file = url.database or ""
    if not file or ":memory:" in file or url.query.get("mode") == "memory":
        raise InvalidArgumentError(
            "an SQLite database in memory is gone with its connection: a commit owner needs a file "
            "(sqlite:////absolute/path), or a MemoryCommitStore for tests"
        )
    path = get_sqlite_path(url)
    assert path is not None
    if path.is_absolute():
        return url
    if absolute or _has_uri(url):
        raise InvalidArgumentError(
            f"{file!r} names another file in each working directory: a commit owner needs an absolute path "
            "(sqlite:////absolute/path)"
        )
    # The file must stay the same if the working directory changes, and in a process that unpickles the
    # owner.
    return url.set(database=str(path.absolute()))


def render_public_url(url: URL) -> str:
    """Return a URL without its secrets, for messages."""
    query = {key: value for key, value in url.query.items() if not _is_secret(key)}
    if url.host is not None and "@" in (url.database or ""):
        # Host and database may be the end of a password that contains an @ and a slash.
        url = url.set(host="***", database="")
    return url.set(query=query).render_as_string(hide_password=True)


def mask_secrets(url: URL, text: str) -> str:
    """Replace the secrets of a URL in a text by stars."""
    for secret in _secrets(url):
        text = text.replace(secret, "***")
    return text


def _is_secret(parameter: str) -> bool:
    return "password" in parameter.lower()


def _secrets(url: URL) -> list[str]:
    values = [value for key, value in url.query.items() if _is_secret(key)]
    texts = [text for value in values for text in ([value] if isinstance(value, str) else value)]
    return [secret for secret in (url.password, *texts) if secret]


def make_engine(url: URL) -> Engine:
    """Make the SQLAlchemy engine for a database, with the options of its driver. It doesn't connect yet.

    Its connections are in autocommit, so transactions have to begin explicitly.

    Raises:
        CommitOwnerUnavailableError: the driver isn't installed, or is one for asyncio.
    """
    try:
        dialect = url.get_dialect()
        if dialect.is_async:
            raise CommitOwnerUnavailableError(
                f"{url.drivername} is a driver for asyncio; a commit owner needs a driver for threads, "
                "such as postgresql+psycopg"
            )
        options = {
            key: value
            for key, value in _OPTIONS.get(dialect.driver, {}).items()
            if key not in url.query
        }
        engine = create_engine(url, isolation_level="AUTOCOMMIT", connect_args=options)
    except (ImportError, NoSuchModuleError) as error:
        raise CommitOwnerUnavailableError(
            f"the driver for the commit owner's database {render_public_url(url)} isn't installed "
            f"({error}): install airflow-delta[postgres] for postgresql+psycopg, or the driver that the "
            "URL names"
        ) from error
    if url.get_backend_name() == "sqlite":
        event.listen(engine, "do_connect", lambda *_: _create_private(url))
        event.listen(engine, "connect", _set_up_sqlite)
    return engine


def _create_private(url: URL) -> None:
    """Create an SQLite file that only its owner can read and write, if SQLite would create one.

    SQLite gives its other files (``-wal``, ``-shm``, ``-journal``) the same permissions. An existing file
    keeps its permissions, which an administrator may have extended to another account.
    """
    file = get_sqlite_path(url)
    if file is None or url.query.get("mode", "rwc") != "rwc":
        return
    # If the file can't be created, SQLite reports it.
    with suppress(OSError):
        # SQLite follows links, even to a file that doesn't exist yet.
        descriptor = os.open(os.path.realpath(file), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        os.close(descriptor)


def _set_up_sqlite(connection: sqlite3.Connection, _record: object) -> None:
    _use_write_ahead_log(connection)
    connection.execute("PRAGMA synchronous = FULL").close()
    connection.execute("PRAGMA foreign_keys = ON").close()


def _use_write_ahead_log(connection: sqlite3.Connection) -> None:
    # The mode is stored in the file. If another process sets it at the same time, SQLite fails because the
    # file is locked, and doesn't wait. It does wait when a transaction begins.
    for _ in range(_WAL_ATTEMPTS - 1):
        try:
            connection.execute("PRAGMA journal_mode = WAL").close()
        except sqlite3.OperationalError:
            connection.execute("BEGIN IMMEDIATE").close()
            connection.execute("COMMIT").close()
        else:
            return
    connection.execute("PRAGMA journal_mode = WAL").close()
