"""`SqlCommitOwner`: the commit owner of this package, whose commit store is a SQL database.

A table that names the owner ``sql`` finds it by the entry point `from_environment`. The environment
variable ``AIRFLOW_DELTA_COMMIT_OWNER_URL`` holds the URL of the database. The table's configuration doesn't
hold it, because everybody may read the configuration and the URL has a password.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache

from airflow_delta.engine.commit.sql.engine import parse_database_url
from airflow_delta.engine.commit.sql.store import SqlCommitStore
from airflow_delta.engine.commit.store.owner import StoreBackedOwner
from airflow_delta.engine.errors import CommitOwnerUnavailableError, InvalidArgumentError

__all__ = ["URL_VARIABLE", "SqlCommitOwner", "from_environment"]

URL_VARIABLE = "AIRFLOW_DELTA_COMMIT_OWNER_URL"
"""The environment variable with the URL of the database."""


class SqlCommitOwner(StoreBackedOwner):
    """A commit owner with a `SqlCommitStore`.

    It can be pickled; the pickle holds the URL with its password.

    Args:
        url: the database, as SQLAlchemy writes it: ``postgresql+psycopg://user:password@host/database``
            or ``sqlite:////absolute/path``. A relative path becomes absolute, from the working directory.

    Raises:
        InvalidArgumentError: it isn't the URL of a PostgreSQL database or of an SQLite file.
    """

    def __init__(self, url: str) -> None:
        super().__init__(SqlCommitStore(url))


def from_environment(_conf: Mapping[str, str]) -> SqlCommitOwner:
    """Make the owner with the database that the environment names; the entry point of the owner ``sql``.

    Args:
        _conf: the ``commitOwnerConf`` of a table, which doesn't decide which database is used.

    Raises:
        CommitOwnerUnavailableError: the environment variable isn't set, or isn't the URL of a PostgreSQL
            database or of an SQLite file. An SQLite file must have an absolute path: a relative path would
            be another file in each working directory.
    """
    url = os.environ.get(URL_VARIABLE)
    if not url:
        raise CommitOwnerUnavailableError(
            f"the commit owner 'sql' doesn't know its database: set the environment variable "
            f"{URL_VARIABLE} to its URL (postgresql+psycopg://user:password@host/database), use an "
            "Airflow connection, or give the table an owner as commit_owners",
            owner="sql",
        )
    return _owner(url)


@cache
def _owner(url: str) -> SqlCommitOwner:
    # One for all tables of a process, so that they share connections.
    try:
        parse_database_url(url, absolute=True)
        return SqlCommitOwner(url)
    except InvalidArgumentError as error:
        # The set-up of the process is wrong, not the caller's arguments. The cause isn't shown, because it
        # may quote the variable.
        raise CommitOwnerUnavailableError(
            f"the environment variable {URL_VARIABLE} doesn't name a database for the commit owner 'sql': "
            f"{error.message}",
            owner="sql",
        ) from None
