"""`SqlCommitOwner`: the commit owner that comes with this package, with its books in a database.

A table that names the owner ``sql`` finds it without being told where: the environment variable
``AIRFLOW_DELTA_COMMIT_OWNER_URL`` says which database it is (`from_environment`). The table doesn't,
because everybody may read its configuration, and the URL has a password.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache

from airflow_delta.engine.commit.sql.engine import database_url
from airflow_delta.engine.commit.sql.store import SqlLedger
from airflow_delta.engine.commit.store.owner import LedgerOwner
from airflow_delta.engine.errors import CommitOwnerUnavailableError, InvalidArgumentError

__all__ = ["URL_VARIABLE", "SqlCommitOwner", "from_environment"]

URL_VARIABLE = "AIRFLOW_DELTA_COMMIT_OWNER_URL"
"""The environment variable with the URL of the database."""


class SqlCommitOwner(LedgerOwner):
    """A commit owner over a `SqlLedger`; it can be pickled, which writes the URL with its password.

    Args:
        url: the database, as SQLAlchemy writes it: ``postgresql+psycopg://user:password@host/database``
            or ``sqlite:////absolute/path``. A relative path is of the working directory at this moment.

    Raises:
        InvalidArgumentError: it isn't the URL of a PostgreSQL database or of an SQLite file.
    """

    def __init__(self, url: str) -> None:
        super().__init__(SqlLedger(url))


def from_environment(_conf: Mapping[str, str]) -> SqlCommitOwner:
    """The owner whose database the environment names; the entry point of the owner ``sql``.

    Args:
        _conf: the ``commitOwnerConf`` of a table, which has no say in where the books are.

    Raises:
        CommitOwnerUnavailableError: the environment names none.
            Or what it names isn't the URL of a PostgreSQL database, or of an SQLite file by its absolute
            path: a relative one would be another file in each working directory.
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
        database_url(url, absolute=True)
        return SqlCommitOwner(url)
    except InvalidArgumentError as error:
        # Of a process that is set up wrongly, which is no fault of whoever reads a table in it. Nor is the
        # cause shown, which may quote what the variable holds.
        raise CommitOwnerUnavailableError(
            f"the environment variable {URL_VARIABLE} doesn't name a database for the commit owner 'sql': "
            f"{error.message}",
            owner="sql",
        ) from None
