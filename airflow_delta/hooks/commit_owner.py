"""From an Airflow connection to the commit owner of managed tables.

The SQL owner keeps its books in a database. Which one is no business of the table's: everybody who may
read the table may read ``delta.managedCommit.commitOwnerConf``. It comes from here:

* ``commit_owner_conn_id`` names a connection: that one, and it is an error if it doesn't exist;
* otherwise the connection ``delta_commit_owner_default``, where it exists;
* otherwise no owner is given to the tables, and the engine asks its environment variable,
  ``AIRFLOW_DELTA_COMMIT_OWNER_URL``.

A connection may be of three types:

======================  ============================================================================
type                    what it says
======================  ============================================================================
``delta_commit_owner``  ``host``, ``port``, ``login``, ``password`` and ``schema`` (the database) of
                        PostgreSQL; or, with the extra ``path`` and no host, a file of SQLite
``postgres``            the same of PostgreSQL, as Airflow's own provider has it
``sqlite``              a file of SQLite, in ``host``
======================  ============================================================================

Further extras are parameters of the database's driver, such as ``sslmode``. No database is connected to
before a table turns out to be managed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import PurePath
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow_delta.version_compat import (
    AirflowException,
    AirflowNotFoundException,
    BaseHook,
    Connection,
    amask_secret,
    get_async_connection,
    get_async_extra_dejson,
    mask_secret,
)

if TYPE_CHECKING:
    from sqlalchemy import URL

    from airflow_delta.engine.commit.owner import CommitOwner

__all__ = ["CommitOwnerHook", "commit_owners", "owner_url"]

_NAME = "sql"
"""What tables call the owner, in ``delta.managedCommit.commitOwner``."""

_DEFAULT = "delta_commit_owner_default"
_POSTGRESQL = "postgresql+psycopg"
_PATH = "path"

# Extras of Airflow's type `postgres` that ask for another way to log in, and those that are for
# Airflow's own hook and no parameters of the driver.
_OTHER_LOGINS = ("iam", "redshift", "azure_conn_id")
_FOR_AIRFLOW = frozenset(
    {
        *("aws_conn_id", "cluster-identifier", "cursor", "enable_log_db_messages"),
        *("sqlalchemy_query", "sqlalchemy_scheme", "workgroup-name", *_OTHER_LOGINS),
    }
)
_SECRET_PARAMETERS = ("password", "sslpassword")


class CommitOwnerHook(BaseHook):
    """Find the database in which the SQL commit owner keeps its books.

    :param commit_owner_conn_id: the connection of the database. None: ``delta_commit_owner_default``
        where that exists.
    """

    conn_name_attr = "commit_owner_conn_id"
    default_conn_name = _DEFAULT
    conn_type = "delta_commit_owner"
    hook_name = "Delta Lake commit owner (SQL)"

    def __init__(self, commit_owner_conn_id: str | None = None) -> None:
        super().__init__()
        self.commit_owner_conn_id = commit_owner_conn_id or None

    def url(self) -> str | None:
        """The database as a URL of SQLAlchemy, which is masked in all logs where it has a secret.

        None where there is no connection.

        :raises AirflowNotFoundException: ``commit_owner_conn_id`` doesn't exist.
        :raises AirflowException: the connection names no database that the owner can use.
        """
        try:
            connection = self.get_connection(self.commit_owner_conn_id or _DEFAULT)
        except AirflowNotFoundException:
            self._check_not_named()
            return None
        url = owner_url(connection, connection.extra_dejson)
        for secret in _secrets(url):
            mask_secret(secret)
        return url.render_as_string(hide_password=False)

    async def url_async(self) -> str | None:
        """As `url`, for triggers: never blocks the event loop."""
        try:
            connection = await get_async_connection(self.commit_owner_conn_id or _DEFAULT)
        except AirflowNotFoundException:
            self._check_not_named()
            return None
        extra = await get_async_extra_dejson(connection)
        url = await asyncio.to_thread(owner_url, connection, extra)
        for secret in _secrets(url):
            await amask_secret(secret)
        return url.render_as_string(hide_password=False)

    def test_connection(self) -> tuple[bool, str]:
        """Whether the database can be used: the button of Airflow's connection form.

        An empty database gets the owner's tables by it.
        """
        from airflow_delta.engine.commit.sql.database import SqlDatabase

        try:
            # Named even if it is the default one, so that it is an error if it isn't defined.
            url = CommitOwnerHook(self.commit_owner_conn_id or _DEFAULT).url()
            database = SqlDatabase(str(url))
            database.establish()
        except Exception as error:  # noqa: BLE001 - whatever it is, the form shall show it
            return False, f"{type(error).__name__}: {error}"
        return True, f"connected to {database.name}, whose tables are those of the commit owner"

    def _check_not_named(self) -> None:
        """The default connection may be missing; one that is named must exist."""
        if self.commit_owner_conn_id is not None:
            raise AirflowNotFoundException(
                f"the connection {self.commit_owner_conn_id!r} (commit_owner_conn_id) isn't defined; "
                f"define it, or leave commit_owner_conn_id out to use {_DEFAULT!r}, or what the "
                "environment says"
            )


def commit_owners(url: str | None) -> dict[str, CommitOwner]:
    """The commit owners that a database stands for, by the names that tables know them by.

    Nothing is connected to.

    :param url: the database, as a URL of SQLAlchemy; None: no owner.
    """
    if url is None:
        return {}
    return {_NAME: _sql_owner(url)}


# One per database and process, which keeps its connections for all looks at all tables.
@lru_cache(maxsize=8)
def _sql_owner(url: str) -> CommitOwner:
    from airflow_delta.engine.commit.sql.owner import SqlCommitOwner

    return SqlCommitOwner(url)


def owner_url(connection: Connection, extra: Mapping[str, Any]) -> URL:
    """The database that a connection stands for.

    :param connection: an Airflow connection.
    :param extra: its extras, already parsed.
    :raises AirflowException: the connection is of another type, names no database, or asks for
        something that can't be translated.
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
    asked = [name for name in _OTHER_LOGINS if extra.get(name)]
    if asked:
        raise _unusable(
            connection,
            f"asks for {', '.join(asked)}, which the commit owner can't do; give it a login of its own",
        )
    parameters = {name: value for name, value in extra.items() if name not in _FOR_AIRFLOW}
    return _postgresql_url(connection, parameters)


def _sqlite(connection: Connection, extra: Mapping[str, Any]) -> URL:
    # As a URI, sqlite:////data/owner.db, Airflow takes the path for the schema.
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

    # Below the working directory every process would have books of its own, and so in memory.
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


def _unusable(connection: Connection, what: str) -> AirflowException:
    return AirflowException(f"connection {connection.conn_id!r} of the commit owner {what}")


def _secrets(url: URL) -> set[str]:
    """What no log may show, in each of the forms in which it may come up there."""
    parameters = (url.query.get(name) for name in _SECRET_PARAMETERS)
    return {
        form
        for secret in (url.password, *parameters)
        if secret
        # In this order: as it is, as URLs have it, as SQLAlchemy writes its URLs.
        for form in (str(secret), quote(str(secret), safe=""), quote(str(secret), safe=" +"))
    }


_TRANSLATIONS: Mapping[str, Callable[[Connection, Mapping[str, Any]], URL]] = {
    "delta_commit_owner": _own,
    "postgres": _postgres,
    "sqlite": _sqlite,
}
