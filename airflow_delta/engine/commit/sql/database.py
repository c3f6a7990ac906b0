"""`SqlDatabase`: the database of a `SqlLedger`, and how its steps are executed in SQLite and PostgreSQL.

A step of a ledger is mostly one statement, and then it runs in autocommit: no transaction, and so no lock,
is ever open while the other side of the network is waited for, and a client that freezes or vanishes
holds up nobody. A step that changes two tables is one statement on PostgreSQL, where a statement may change
several; on SQLite, which has no other side, it is a transaction.

=============  ========================================================================================
PostgreSQL     The row of the table is locked by the UPDATE itself, as READ COMMITTED does it: it waits for
               another one of the same row and then looks again whether its conditions hold. What is
               answered is durable as long as ``synchronous_commit`` isn't turned off. Nothing is kept in a
               session, so that a pooler may stand between that hands them out by transaction.
SQLite         A file on a local disk, with a write-ahead log: reading waits for nobody. Writers wait for
               each other. Each commit is flushed to the disk (``synchronous = FULL``).
=============  ========================================================================================

Connections are pooled, one pool per process: a process that was forked off makes its own. Where a pooled
connection turns out to be broken, as after a restart of the server, the step is repeated on a new one,
unless it matters whether it was executed before.

The tables, and a file of SQLite, come with the first row. Whoever only looks creates nothing, because the
name of the database may have been mistyped.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from sqlalchemy import (
    ColumnElement,
    Connection,
    Delete,
    Engine,
    Executable,
    Insert,
    Row,
    Select,
    Table,
    Update,
    literal,
    select,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import (
    DBAPIError,
    IntegrityError,
    SQLAlchemyError,
)

from airflow_delta.engine.commit.sql.engine import (
    database_url,
    new_engine,
    public_name,
    sqlite_file,
    without_secrets,
)
from airflow_delta.engine.commit.sql.schema import (
    TABLES,
    establish,
    is_established,
    keeps_checksums,
    transaction,
)
from airflow_delta.engine.errors import (
    CommitOwnerError,
    CommitOwnerUnavailableError,
    InvalidArgumentError,
    NoBooksError,
)

__all__ = ["SqlDatabase"]

_T = TypeVar("_T")

_ATTEMPTS = 5
"""How often a step is tried at most where it can be told that to repeat it is right."""

_WRONG_PLACE = (
    "make sure that it is the one that tables were handed over to; if that was lost, restore it from a "
    "backup. A new one is begun when a table is handed over"
)

_NO_DATABASE = "file is not a database"
"""What SQLite says of a file; Python 3.10 doesn't tell its number for that, 26."""

_SERIALIZATION_FAILURE = "40001"
"""The SQLSTATE."""


class SqlDatabase:
    """A database whose tables are those of `sql_schema`.

    It may be shared by threads, inherited by a process that is forked off, and pickled, which writes the
    URL with its password.

    Args:
        url: which database, as SQLAlchemy writes it: ``postgresql+psycopg://user:password@host/database``
            or ``sqlite:////absolute/path``. Parameters behind ``?`` go to the driver.

    Raises:
        InvalidArgumentError: it isn't the URL of a PostgreSQL database or of an SQLite file.
    """

    def __init__(self, url: str) -> None:
        self._url = database_url(url)
        # By process: a child must neither use nor close the connections that it has inherited, so that
        # it keeps those of its parents and leaves them alone.
        self._engines: dict[int, Engine] = {}
        self._checksums = True

    @property
    def name(self) -> str:
        """The URL without anything secret; for messages."""
        return public_name(self._url)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    def __reduce__(self) -> tuple[type[SqlDatabase], tuple[str]]:
        return type(self), (self._url.render_as_string(hide_password=False),)

    def establish(self) -> None:
        """Create the tables, and a file of SQLite, where they aren't there.

        Raises:
            CommitOwnerUnavailableError: the database can't be reached.
        """
        self._run(lambda _connection: None, establishes=True)

    @property
    def keeps_checksums(self) -> bool:
        """Whether ratified commits can have a checksum, as far as has been seen.

        Raises:
            CommitOwnerUnavailableError: the database can't be reached.
        """
        if os.getpid() not in self._engines:
            self._run(lambda _connection: None)
        return self._checksums

    def rows(self, query: Select[Any]) -> Sequence[Row[Any]]:
        """What a query finds, of one moment.

        Raises:
            CommitOwnerUnavailableError: the database can't be reached.
        """
        return self._run(lambda connection: connection.execute(query).all())

    def change(self, statement: Executable) -> None:
        """Execute a statement that may well be executed twice.

        Raises:
            CommitOwnerUnavailableError: the database can't be reached.
        """
        self._run(lambda connection: connection.execute(statement))

    def insert_or_update(
        self, table: Table, row: Mapping[str, Any], *, where: ColumnElement[bool]
    ) -> None:
        """Insert a row, or make it of the one that has its key, if a condition holds for that.

        Tables that aren't there are created, as by `establish`.

        Raises:
            CommitOwnerUnavailableError: the database can't be reached.
        """
        insert = postgresql.insert if self._is_postgresql else sqlite.insert
        statement = (
            insert(table)
            .values(row)
            .on_conflict_do_update(index_elements=list(table.primary_key), set_=row, where=where)
        )
        self._run(lambda connection: connection.execute(statement), establishes=True)

    def change_both(
        self,
        update: Update,
        then: Callable[[Select[tuple[str]]], Insert | Delete],
        *,
        table_id: str,
        repeat: bool,
    ) -> bool:
        """Update the row of a table and then do something more; or neither, where there is no such row.

        Args:
            update: the update of the row in `TABLES`.
            then: makes the second statement out of a query for the ``table_id`` of the updated row, on
                which that statement must rest.
            table_id: which table.
            repeat: whether this may be executed twice.

        Returns:
            Whether there was such a row.

        Raises:
            CommitOwnerUnavailableError: the database can't be reached.
        """

        def _one_statement(connection: Connection) -> bool:
            updated = update.returning(TABLES.c.table_id).cte("updated")
            found = select(updated.c.table_id)
            # It is executed whether or not anything is selected from it.
            more = then(found).cte("more")
            return bool(connection.execute(found.add_cte(more)).all())

        def _one_transaction(connection: Connection) -> bool:
            with transaction(connection):
                found = connection.execute(update).rowcount > 0
                if found:
                    connection.execute(then(select(literal(table_id))))
            return found

        return self._run(_one_statement if self._is_postgresql else _one_transaction, repeat=repeat)

    @property
    def _is_postgresql(self) -> bool:
        return self._url.get_backend_name() == "postgresql"

    def _run(
        self, step: Callable[[Connection], _T], *, repeat: bool = True, establishes: bool = False
    ) -> _T:
        attempt = 0
        while True:
            attempt += 1
            try:
                with self._engine(establishes=establishes).connect() as connection:
                    return step(connection)
            except UnicodeError as error:
                # A path may have bytes that are no text; a database has only text.
                raise InvalidArgumentError(
                    f"the commit owner's database {self.name} can't keep what isn't Unicode: {error}"
                ) from error
            except IntegrityError as error:
                raise CommitOwnerError(
                    f"the commit owner's books in {self.name} contradict themselves, which they only do "
                    f"if they were changed by hand or restored in parts: {self._reason(error)}"
                ) from error
            except SQLAlchemyError as error:
                if attempt < _ATTEMPTS and _may_be_repeated(error, known_harmless=repeat):
                    continue
                self._check_is_database(error)
                public = str(error) == without_secrets(self._url, str(error))
                raise CommitOwnerUnavailableError(
                    f"the commit owner's database {self.name} failed: {self._reason(error)}. See that it "
                    "is up and can be reached with that URL, then try again"
                ) from (error if public else None)

    def _engine(self, *, establishes: bool = False) -> Engine:
        """The connections of this process, to a database that has the tables."""
        if not establishes:
            self._check_file()
        engine = self._engines.get(os.getpid())
        if engine is not None:
            return engine
        engine = new_engine(self._url)
        try:
            with engine.connect() as connection:
                if not establishes:
                    self._check_tables(connection)
                establish(connection)
                self._checksums = keeps_checksums(connection)
        except BaseException:
            engine.dispose()
            raise
        # Of the threads that come here at once the first one's is kept.
        kept = self._engines.setdefault(os.getpid(), engine)
        if kept is not engine:
            engine.dispose()
        return kept

    def _check_file(self) -> None:
        """Make sure that a file of SQLite is there, which else would be created."""
        file = sqlite_file(self._url)
        if file is None or file.exists():
            return
        # What comes in its place, from a backup say, is another file.
        if (engine := self._engines.pop(os.getpid(), None)) is not None:
            engine.dispose()
        raise NoBooksError(f"the commit owner's database {file} isn't there: {_WRONG_PLACE}")

    def _check_is_database(self, error: SQLAlchemyError) -> None:
        """Make sure that the failure isn't that of a file of another kind, which no repetition mends."""
        if isinstance(error, DBAPIError) and _NO_DATABASE in str(error.orig):
            file = sqlite_file(self._url)
            raise CommitOwnerUnavailableError(
                f"the commit owner's database {file} is a file, but none of SQLite, and was left alone: "
                "name the file that tables were handed over to; if this was it, restore it from a backup"
            ) from error

    def _check_tables(self, connection: Connection) -> None:
        """Make sure that the tables are there, which else would be created."""
        if not is_established(connection):
            raise NoBooksError(
                f"the database {self.name} has no tables of a commit owner: {_WRONG_PLACE}"
            )

    def _reason(self, error: SQLAlchemyError) -> str:
        """What the driver says, in one line, without what is secret."""
        cause = error.orig if isinstance(error, DBAPIError) and error.orig else error
        text = " ".join(str(cause).split()) or type(cause).__name__
        return without_secrets(self._url, text)


def _may_be_repeated(error: SQLAlchemyError, *, known_harmless: bool) -> bool:
    if not isinstance(error, DBAPIError):
        return False
    # Nothing was executed, because others were faster: a server whose default is stricter than READ
    # COMMITTED says so instead of looking again.
    if getattr(error.orig, "sqlstate", None) == _SERIALIZATION_FAILURE:
        return True
    return known_harmless and error.connection_invalidated
