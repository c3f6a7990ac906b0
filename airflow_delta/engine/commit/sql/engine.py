"""From the URL of a database to connections, for SQLite and PostgreSQL; and the URL without its secrets.

A URL names the driver as well (``postgresql+psycopg``), and what it says behind ``?`` goes to the driver.
What the driver isn't told there is set here: how long to wait, and what durability needs.
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

__all__ = ["database_url", "new_engine", "public_name", "sqlite_file", "without_secrets"]

_SQLITE_OPTIONS = {"timeout": 60}
"""For so many seconds a writer waits for others."""

_SWITCHES = 5
"""How often a file is asked to write ahead, while others do the same."""

_LIBPQ_OPTIONS = {
    # Seconds, each. A server that has vanished shall be missed before the user misses the task.
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    # Milliseconds.
    "tcp_user_timeout": 60_000,
}

# Where a pooler hands out another server connection per transaction, a statement that was prepared on
# one isn't there on the next.
_PSYCOPG_OPTIONS = {**_LIBPQ_OPTIONS, "prepare_threshold": None}

_OPTIONS: dict[str, dict[str, Any]] = {
    "pysqlite": _SQLITE_OPTIONS,
    "psycopg": _PSYCOPG_OPTIONS,
    "psycopg2": _LIBPQ_OPTIONS,
}
"""What the drivers are told, unless the URL tells them otherwise."""


def database_url(url: str, *, absolute: bool = False) -> URL:
    """Parse the URL of a database that a ledger can be in; a relative path becomes absolute by it.

    Args:
        url: as SQLAlchemy writes it.
        absolute: whether a relative path is refused.

    Raises:
        InvalidArgumentError: it isn't the URL of a PostgreSQL database or of an SQLite file.
    """
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        # Not the cause either: it may quote the password.
        raise _not_parsed() from None
    # What ends at the first @ is the password, and what it had behind that would pass for a host.
    if "@" in (parsed.host or ""):
        raise _not_parsed()
    # Which driver goes without saying depends on the version of SQLAlchemy; ours is the extra's. The
    # shorter name is Airflow's, among others.
    if parsed.drivername in ("postgresql", "postgres"):
        return parsed.set(drivername="postgresql+psycopg")
    backend = parsed.get_backend_name()
    if backend == "sqlite":
        return _with_path(parsed, absolute=absolute)
    if backend != "postgresql":
        raise InvalidArgumentError(
            f"a commit owner can't keep its books in {backend!r}; expected is the URL of a PostgreSQL "
            "database or an SQLite file"
        )
    return parsed


def _not_parsed() -> InvalidArgumentError:
    return InvalidArgumentError(
        "the URL of the commit owner's database can't be parsed; expected is one as SQLAlchemy writes it, "
        "such as postgresql+psycopg://user:password@host/database, where special characters of the "
        "password are percent-encoded (@ is %40)"
    )


def sqlite_file(url: URL) -> Path | None:
    """The file that a URL of SQLite names; None for one of another database."""
    if url.get_backend_name() != "sqlite":
        return None
    if not _has_uri(url):
        return Path(url.database or "")
    return Path(unquote(urlsplit(url.database or "").path))


def _has_uri(url: URL) -> bool:
    """Whether the database is named by a URI of SQLite, ``file:…?uri=true``, and not by a path."""
    return (url.database or "").startswith("file:") and url.query.get("uri") == "true"


def _with_path(url: URL, *, absolute: bool) -> URL:
    file = url.database or ""
    if not file or ":memory:" in file or url.query.get("mode") == "memory":
        raise InvalidArgumentError(
            "an SQLite database in memory is gone with its connection: a commit owner needs a file "
            "(sqlite:////absolute/path), or a MemoryLedger for tests"
        )
    path = sqlite_file(url)
    assert path is not None
    if path.is_absolute():
        return url
    if absolute or _has_uri(url):
        raise InvalidArgumentError(
            f"{file!r} names another file in each working directory: a commit owner needs an absolute path "
            "(sqlite:////absolute/path)"
        )
    # The same file, wherever the process or the one that unpickles this goes.
    return url.set(database=str(path.absolute()))


def public_name(url: URL) -> str:
    """A URL without anything secret; for messages."""
    query = {key: value for key, value in url.query.items() if not _is_secret(key)}
    if url.host is not None and "@" in (url.database or ""):
        # Perhaps host and database are the end of a password with an @ and a slash in it.
        url = url.set(host="***", database="")
    return url.set(query=query).render_as_string(hide_password=True)


def without_secrets(url: URL, text: str) -> str:
    """A text with stars for whatever is secret in a URL."""
    for secret in _secrets(url):
        text = text.replace(secret, "***")
    return text


def _is_secret(parameter: str) -> bool:
    return "password" in parameter.lower()


def _secrets(url: URL) -> list[str]:
    values = [value for key, value in url.query.items() if _is_secret(key)]
    texts = [text for value in values for text in ([value] if isinstance(value, str) else value)]
    return [secret for secret in (url.password, *texts) if secret]


def new_engine(url: URL) -> Engine:
    """An engine for a database, with all that differs between the drivers; nothing is connected yet.

    Its connections are in autocommit: a transaction has to be begun.

    Raises:
        CommitOwnerUnavailableError: the driver isn't installed, or is one for asyncio.
    """
    try:
        dialect = url.get_dialect()
        if dialect.is_async:
            raise CommitOwnerUnavailableError(
                f"{url.drivername} is a driver for asyncio; a commit owner is used from threads and "
                "needs another one, such as postgresql+psycopg"
            )
        options = {
            key: value
            for key, value in _OPTIONS.get(dialect.driver, {}).items()
            if key not in url.query
        }
        engine = create_engine(url, isolation_level="AUTOCOMMIT", connect_args=options)
    except (ImportError, NoSuchModuleError) as error:
        raise CommitOwnerUnavailableError(
            f"the driver for the commit owner's database {public_name(url)} isn't there ({error}): install "
            "airflow-delta[postgres] for postgresql+psycopg, or the driver that the URL names"
        ) from error
    if url.get_backend_name() == "sqlite":
        event.listen(engine, "do_connect", lambda *_: _create_private(url))
        event.listen(engine, "connect", _set_up_sqlite)
    return engine


def _create_private(url: URL) -> None:
    """Create a file of SQLite that its owner alone can read and write, where SQLite would create one.

    SQLite gives its other files (``-wal``, ``-shm``, ``-journal``) the permissions of that one. A file that
    is there keeps those that it has: somebody may have given them to another account.
    """
    file = sqlite_file(url)
    if file is None or url.query.get("mode", "rwc") != "rwc":
        return
    # Where it can't be created, SQLite says so.
    with suppress(OSError):
        # What a link leads to: SQLite follows it, even where that isn't there yet.
        descriptor = os.open(os.path.realpath(file), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        os.close(descriptor)


def _set_up_sqlite(connection: sqlite3.Connection, _record: object) -> None:
    _write_ahead(connection)
    connection.execute("PRAGMA synchronous = FULL").close()
    connection.execute("PRAGMA foreign_keys = ON").close()


def _write_ahead(connection: sqlite3.Connection) -> None:
    # The mode stays with the file. While somebody else gives it to a new one, SQLite answers that the
    # file is locked instead of waiting, as it does when a transaction begins.
    for _ in range(_SWITCHES - 1):
        try:
            connection.execute("PRAGMA journal_mode = WAL").close()
        except sqlite3.OperationalError:
            connection.execute("BEGIN IMMEDIATE").close()
            connection.execute("COMMIT").close()
        else:
            return
    connection.execute("PRAGMA journal_mode = WAL").close()
