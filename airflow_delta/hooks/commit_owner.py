"""Create the commit owner of managed tables from an Airflow connection.

The SQL commit owner stores its data in a database. The table must not contain the database's URL,
because everybody who may read the table may read ``delta.managedCommit.commitOwnerConf``. So it
comes from

* the connection ``commit_owner_conn_id``, which must exist; or, if that isn't given,
* the connection ``delta_commit_owner_default``, if it exists (see
  `airflow_delta.hooks.connection_lookup`); otherwise
* the environment variable ``AIRFLOW_DELTA_COMMIT_OWNER_URL``, which the engine reads.

A connection may have three types:

======================  ============================================================================
type                    fields
======================  ============================================================================
``delta_commit_owner``  ``host``, ``port``, ``login``, ``password`` and ``schema`` (the database) of
                        PostgreSQL; or, with the extra ``path`` and no host, a file of SQLite
``postgres``            the same of PostgreSQL, as Airflow's own provider has it
``sqlite``              a file of SQLite, in ``host``
======================  ============================================================================

Other extras are parameters of the database's driver, such as ``sslmode``. The hook connects to the
database only for a managed table.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import PurePath
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow_delta.hooks.connection_lookup import find_connection, find_connection_async
from airflow_delta.hooks.failures import TableFailure
from airflow_delta.version_compat import (
    AirflowNotFoundException,
    BaseHook,
    Connection,
    amask_secret,
    get_async_extra_dejson,
    mask_secret,
)

if TYPE_CHECKING:
    from sqlalchemy import URL

    from airflow_delta.engine.commit.owner import CommitOwner

__all__ = ["CommitOwnerHook", "commit_owners", "owner_url"]

_NAME = "sql"
"""The owner's name in the table property ``delta.managedCommit.commitOwner``."""

_DEFAULT = "delta_commit_owner_default"
_POSTGRESQL = "postgresql+psycopg"
_PATH = "path"

# Extras of Airflow's type `postgres` for other authentication methods, and extras for Airflow's own
# hook, which aren't parameters of the driver.
_OTHER_LOGINS = ("iam", "redshift", "azure_conn_id")
_FOR_AIRFLOW = frozenset(
    {
        *("aws_conn_id", "cluster-identifier", "cursor", "enable_log_db_messages"),
        *("sqlalchemy_query", "sqlalchemy_scheme", "workgroup-name", *_OTHER_LOGINS),
    }
)
_URL_VARIABLE = "AIRFLOW_DELTA_COMMIT_OWNER_URL"
"""``URL_VARIABLE`` of `airflow_delta.engine.commit.sql.owner`, which isn't imported with this module."""
_WITHOUT_OWNER = "until it is opened again a managed table has no commit owner: %s"
_SECRET_PARAMETERS = ("password", "sslpassword")


class CommitOwnerHook(BaseHook):
    """Find the database of the SQL commit owner.

    :param commit_owner_conn_id: the connection of the database. None: ``delta_commit_owner_default``
        if it exists.
    """

    conn_name_attr = "commit_owner_conn_id"
    default_conn_name = _DEFAULT
    conn_type = "delta_commit_owner"
    hook_name = "Delta Lake commit owner (SQL)"

    def __init__(self, commit_owner_conn_id: str | None = None) -> None:
        super().__init__()
        self.commit_owner_conn_id = commit_owner_conn_id or None
        self.is_unknown = False
        """Whether `url` has found no connection because a secrets backend of Airflow has failed."""

    def url(self) -> str | None:
        """The database as a SQLAlchemy URL, with secrets masked in all logs; None without a connection.

        :raises AirflowNotFoundException: ``commit_owner_conn_id`` doesn't exist.
        :raises TableFailure: the connection isn't that of a suitable database.
        :raises StorageError: a secrets backend of Airflow fails, so it isn't known which database is meant.
        """
        try:
            connection = find_connection(self.commit_owner_conn_id or _DEFAULT)
        except Exception as error:
            if self._is_needed():
                raise
            self._go_on_without(error)
            return None
        self.is_unknown = False
        if connection is None:
            self._check_not_named()
            return None
        url = owner_url(connection, connection.extra_dejson)
        for secret in _secrets(url):
            mask_secret(secret)
        return url.render_as_string(hide_password=False)

    async def url_async(self) -> str | None:
        """Like `url`, for triggers: it doesn't block the event loop."""
        try:
            connection = await find_connection_async(self.commit_owner_conn_id or _DEFAULT)
        except Exception as error:
            if self._is_needed():
                raise
            self._go_on_without(error)
            return None
        self.is_unknown = False
        if connection is None:
            self._check_not_named()
            return None
        extra = await get_async_extra_dejson(connection)
        url = await asyncio.to_thread(owner_url, connection, extra)
        for secret in _secrets(url):
            await amask_secret(secret)
        return url.render_as_string(hide_password=False)

    def test_connection(self) -> tuple[bool, str]:
        """Test the database, for the button of Airflow's connection form.

        In an empty database this creates the owner's tables.
        """
        from airflow_delta.engine.commit.sql.database import SqlDatabase

        try:
            # The default connection is named explicitly, so that it must exist.
            url = CommitOwnerHook(self.commit_owner_conn_id or _DEFAULT).url()
            database = SqlDatabase(str(url))
            database.create_tables()
        except Exception as error:  # noqa: BLE001 - the form must show any error
            return False, f"{type(error).__name__}: {error}"
        return True, f"connected to {database.name}, whose tables are those of the commit owner"

    def _is_needed(self) -> bool:
        """Whether a table must not be opened while it isn't known whether the connection exists.

        Without it the engine would take the database of the environment. If that names none, managed
        tables have an owner that can't be reached: the engine warns that what it reads may be stale, and
        refuses to write. All others aren't affected.
        """
        return self.commit_owner_conn_id is not None or _URL_VARIABLE in os.environ

    def _go_on_without(self, error: Exception) -> None:
        self.is_unknown = True
        self.log.info(_WITHOUT_OWNER, error)

    def _check_not_named(self) -> None:
        """Raise an error if a connection was named; only the default connection may be missing."""
        if self.commit_owner_conn_id is not None:
            raise AirflowNotFoundException(
                f"the connection {self.commit_owner_conn_id!r} (commit_owner_conn_id) isn't defined; "
                f"define it, or leave commit_owner_conn_id out to use {_DEFAULT!r} or the environment "
                "variable"
            )


def commit_owners(url: str | None) -> dict[str, CommitOwner]:
    """Create the commit owners of a database, by their names in table properties, without connecting.

    :param url: the database, as a SQLAlchemy URL; None: no owner.
    """
    if url is None:
        return {}
    return {_NAME: _sql_owner(url)}


# One owner per database and process, so that all uses share its connections.
@lru_cache(maxsize=8)
def _sql_owner(url: str) -> CommitOwner:
    from airflow_delta.engine.commit.sql.owner import SqlCommitOwner

    return SqlCommitOwner(url)


def owner_url(connection: Connection, extra: Mapping[str, Any]) -> URL:
    """Convert a connection to the URL of its database.

    :param connection: an Airflow connection.
    :param extra: its extras, already parsed.
    :raises TableFailure: the connection has another type, names no database, or has a field that
        isn't supported.
    """
    translate = _TRANSLATIONS.get(connection.conn_type or "")
    if translate is None:
        raise _unusable(
            connection,
            f"is of type {connection.conn_type!r}: expected one of {', '.join(_TRANSLATIONS)}",
        )
    return translate(connection, extra)


def _own(connection: Connection, extra: Mapping[str, Any]) -> URL:
    path = extra.get(_PATH)
    if bool(path) == bool(connection.host):
        raise _unusable(
            connection,
            f"names {'both a host and a file' if path else 'neither a host nor a file'}: expected the "
            f"host of PostgreSQL, or the extra {_PATH!r} with a file of SQLite",
        )
    parameters = {name: value for name, value in extra.items() if name != _PATH}
    if path:
        return _sqlite_url(connection, str(path), parameters)
    return _postgresql_url(connection, parameters)


def _postgres(connection: Connection, extra: Mapping[str, Any]) -> URL:
    unsupported = [name for name in _OTHER_LOGINS if extra.get(name)]
    if unsupported:
        raise _unusable(
            connection,
            f"has {', '.join(unsupported)}, which the commit owner doesn't support; use a connection with "
            "login and password",
        )
    parameters = {name: value for name, value in extra.items() if name not in _FOR_AIRFLOW}
    return _postgresql_url(connection, parameters)


def _sqlite(connection: Connection, extra: Mapping[str, Any]) -> URL:
    # For the URI sqlite:////data/owner.db Airflow puts the path into the schema.
    return _sqlite_url(connection, connection.host or connection.schema or "", extra)


def _postgresql_url(connection: Connection, parameters: Mapping[str, Any]) -> URL:
    from sqlalchemy import URL

    if not connection.host or not connection.schema:
        missing = "host" if not connection.host else "database, in the field schema"
        raise _unusable(connection, f"names no {missing}")
    return URL.create(
        _POSTGRESQL,
        username=connection.login or None,
        password=connection.password or None,
        host=connection.host,
        port=connection.port,
        database=connection.schema,
        query=_query(connection, parameters),
    )


def _sqlite_url(connection: Connection, path: str, parameters: Mapping[str, Any]) -> URL:
    from sqlalchemy import URL

    # A relative path, or a database in memory, would be another database in each process.
    if not PurePath(path).is_absolute():
        raise _unusable(
            connection, f"names {path!r} as the file of SQLite: expected an absolute path"
        )
    return URL.create("sqlite", database=path, query=_query(connection, parameters))


def _query(connection: Connection, parameters: Mapping[str, Any]) -> dict[str, str]:
    """The parameters of the driver that are given; the fields of a form are empty where they aren't."""
    given = {name: value for name, value in parameters.items() if value not in (None, "")}
    wrong = sorted(
        name
        for name, value in given.items()
        if isinstance(value, bool) or not isinstance(value, str | int)
    )
    if wrong:
        raise _unusable(
            connection,
            f"has the extras {', '.join(wrong)}, which are neither text nor whole numbers, as the "
            'parameters of the driver are, for example {"sslmode": "require"}',
        )
    return {name: str(value) for name, value in given.items()}


def _unusable(connection: Connection, what: str) -> TableFailure:
    return TableFailure(f"connection {connection.conn_id!r} of the commit owner {what}")


def _secrets(url: URL) -> set[str]:
    """The secrets of a URL, in each form in which a log may contain them."""
    parameters = (url.query.get(name) for name in _SECRET_PARAMETERS)
    return {
        form
        for secret in (url.password, *parameters)
        if secret
        # In this order: plain, encoded as in URLs, encoded as SQLAlchemy does.
        for form in (str(secret), quote(str(secret), safe=""), quote(str(secret), safe=" +"))
    }


_TRANSLATIONS: Mapping[str, Callable[[Connection, Mapping[str, Any]], URL]] = {
    "delta_commit_owner": _own,
    "postgres": _postgres,
    "sqlite": _sqlite,
}
