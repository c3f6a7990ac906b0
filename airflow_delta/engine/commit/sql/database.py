"""`SqlDatabase`: executes the steps of a `SqlCommitStore` in SQLite or PostgreSQL.

A step is one statement in autocommit. So no transaction, and no lock, is open while a client waits for the
network, and a client that freezes holds up nobody. Only on SQLite, which has no network, a step that
changes two tables is a transaction (`SqlDatabase.execute_both`).

Connections are pooled, with one pool for each process. If a pooled connection turns out to be broken, for
example because the server was restarted, the step is repeated on a new one, unless it must not run twice.
The first entry creates the tables, and a file of SQLite.
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
    get_sqlite_path,
    make_engine,
    mask_secrets,
    parse_database_url,
    render_public_url,
)
from airflow_delta.engine.commit.sql.schema import (
    TABLES,
    create_tables,
    ensure_checksums,
    has_tables,
    transaction,
)
from airflow_delta.engine.errors import (
    CommitOwnerError,
    CommitOwnerUnavailableError,
    CommitStoreMissingError,
    InvalidArgumentError,
)

__all__ = ["SqlDatabase"]

_T = TypeVar("_T")

_ATTEMPTS = 5
"""The most times that a step is tried, if it may be repeated."""

_MISSING_REMEDY = (
    "make sure that it is the one that tables were handed over to; if that was lost, restore it from a "
    "backup. The next hand-over of a table creates a new one"
)

_NOT_A_DATABASE = "file is not a database"
"""SQLite's message. Python 3.10 doesn't expose its error code, 26."""

_SERIALIZATION_FAILURE = "40001"
"""The SQLSTATE of PostgreSQL."""


class SqlDatabase:
    """A database with the tables of `schema`.

    Threads may share it, and forked processes may inherit it. It can be pickled; the pickle holds the URL
    with its password.

    Args:
        url: the database, as SQLAlchemy writes it: ``postgresql+psycopg://user:password@host/database``
            or ``sqlite:////absolute/path``. Parameters behind ``?`` go to the driver.

    Raises:
        InvalidArgumentError: it isn't the URL of a PostgreSQL database or of an SQLite file.
    """

    def __init__(self, url: str) -> None:
        self._url = parse_database_url(url)
        # By process id. A forked process must neither use nor close the connections of its parent. So it
        # keeps the parent's engine, unused, and makes one of its own.
        self._engines: dict[int, Engine] = {}
        self._checksums = True

    @property
    def name(self) -> str:
        """The URL without its secrets, for messages."""
        return render_public_url(self._url)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    def __reduce__(self) -> tuple[type[SqlDatabase], tuple[str]]:
        return type(self), (self._url.render_as_string(hide_password=False),)

    def create_tables(self) -> None:
        """Create the tables, and a file of SQLite, if they don't exist.

        Raises:
            CommitOwnerUnavailableError: the database can't be reached.
        """
        self._run(lambda _connection: None, creates=True)

    @property
    def has_checksums(self) -> bool:
        """Whether ratified commits can have a checksum, as of the first connection.

        Raises:
            CommitOwnerUnavailableError: the database can't be reached.
        """
        if os.getpid() not in self._engines:
            self._run(lambda _connection: None)
        return self._checksums

    def fetch(self, query: Select[Any]) -> Sequence[Row[Any]]:
        """Execute a query, and return its rows, all of one moment.

        Raises:
            CommitOwnerUnavailableError: the database can't be reached.
        """
        return self._run(lambda connection: connection.execute(query).all())

    def execute(self, statement: Executable) -> None:
        """Execute a statement that may run twice.

        Raises:
            CommitOwnerUnavailableError: the database can't be reached.
        """
        self._run(lambda connection: connection.execute(statement))

    def insert_or_update(
        self, table: Table, row: Mapping[str, Any], *, where: ColumnElement[bool]
    ) -> None:
        """Insert a row. If there is a row with its key, update that one if it meets a condition.

        Missing tables are created, as by `create_tables`.

        Raises:
            CommitOwnerUnavailableError: the database can't be reached.
        """
        insert = postgresql.insert if self._is_postgresql else sqlite.insert
        statement = (
            insert(table)
            .values(row)
            .on_conflict_do_update(index_elements=list(table.primary_key), set_=row, where=where)
        )
        self._run(lambda connection: connection.execute(statement), creates=True)

    def execute_both(
        self,
        update: Update,
        then: Callable[[Select[tuple[str]]], Insert | Delete],
        *,
        table_id: str,
        repeat: bool,
    ) -> bool:
        """Update the row of a table, and execute a second statement if there is such a row.

        Args:
            update: the update of the row in `TABLES`.
            then: makes the second statement from a query for the ``table_id`` of the updated row. The
                statement must depend on that query.
            table_id: the table's id.
            repeat: whether this may run twice.

        Returns:
            Whether there is such a row.

        Raises:
            CommitOwnerUnavailableError: the database can't be reached.
        """

        def _one_statement(connection: Connection) -> bool:
            updated = update.returning(TABLES.c.table_id).cte("updated")
            found = select(updated.c.table_id)
            # PostgreSQL executes it even if nothing is selected from it.
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
        self, step: Callable[[Connection], _T], *, repeat: bool = True, creates: bool = False
    ) -> _T:
        attempt = 0
        while True:
            attempt += 1
            try:
                with self._engine(creates=creates).connect() as connection:
                    return step(connection)
            except UnicodeError as error:
                # A path may have bytes that aren't Unicode.
                raise InvalidArgumentError(
                    f"the commit owner's database {self.name} can only store Unicode: {error}"
                ) from error
            except IntegrityError as error:
                raise CommitOwnerError(
                    f"the tables of the commit owner in {self.name} contradict each other, because they "
                    f"were changed by hand or restored in parts: {self._describe(error)}"
                ) from error
            except SQLAlchemyError as error:
                if attempt < _ATTEMPTS and _may_repeat(error, known_harmless=repeat):
                    continue
                self._check_is_database(error)
                public = str(error) == mask_secrets(self._url, str(error))
                raise CommitOwnerUnavailableError(
                    f"the commit owner's database {self.name} failed: {self._describe(error)}. Make sure "
                    "that it is running and can be reached with that URL, then try again"
                ) from (error if public else None)

    def _engine(self, *, creates: bool = False) -> Engine:
        """Return this process's engine for a database that has the tables."""
        if not creates:  # the URL may be wrong
            self._check_file()
        engine = self._engines.get(os.getpid())
        if engine is not None:
            return engine
        engine = make_engine(self._url)
        try:
            with engine.connect() as connection:
                if not creates:
                    self._check_tables(connection)
                create_tables(connection)
                self._checksums = ensure_checksums(connection)
        except BaseException:
            engine.dispose()
            raise
        # If several threads come here at once, the first one's engine is kept.
        kept = self._engines.setdefault(os.getpid(), engine)
        if kept is not engine:
            engine.dispose()
        return kept

    def _check_file(self) -> None:
        """Make sure that the file of SQLite exists; otherwise connecting would create it."""
        file = get_sqlite_path(self._url)
        if file is None or file.exists():
            return
        # The old connections would miss a file that is restored from a backup.
        if (engine := self._engines.pop(os.getpid(), None)) is not None:
            engine.dispose()
        raise CommitStoreMissingError(
            f"the commit owner's database {file} isn't there: {_MISSING_REMEDY}"
        )

    def _check_is_database(self, error: SQLAlchemyError) -> None:
        """Raise an error of its own if the file isn't an SQLite database: no repetition helps then."""
        if isinstance(error, DBAPIError) and _NOT_A_DATABASE in str(error.orig):
            file = get_sqlite_path(self._url)
            raise CommitOwnerUnavailableError(
                f"the commit owner's database {file} is a file, but not of SQLite, and was left alone: "
                "name the file that tables were handed over to; if this was it, restore it from a backup"
            ) from error

    def _check_tables(self, connection: Connection) -> None:
        """Make sure that the tables exist; otherwise connecting would create them."""
        if not has_tables(connection):
            raise CommitStoreMissingError(
                f"the database {self.name} has no tables of a commit owner: {_MISSING_REMEDY}"
            )

    def _describe(self, error: SQLAlchemyError) -> str:
        """Return the driver's message as one line, without secrets."""
        cause = error.orig if isinstance(error, DBAPIError) and error.orig else error
        text = " ".join(str(cause).split()) or type(cause).__name__
        return mask_secrets(self._url, text)


def _may_repeat(error: SQLAlchemyError, *, known_harmless: bool) -> bool:
    if not isinstance(error, DBAPIError):
        return False
    # Nothing was executed, because another client was faster: a server whose default isolation is stricter
    # than READ COMMITTED fails instead of checking the condition again.
    if getattr(error.orig, "sqlstate", None) == _SERIALIZATION_FAILURE:
        return True
    return known_harmless and error.connection_invalidated
