"""The tables of `SqlLedger`, and how they come to be.

====================================  =================================================================
``airflow_delta_managed_tables``      a row per table: how the owner stands to it, and up to which version
``airflow_delta_managed_commits``     a row per ratified commit that isn't known to be backfilled
``airflow_delta_managed_schema``      a row per version of these tables, with the time when it was made
====================================  =================================================================

Nobody has to create them: whoever enters the first table does (`establish`), and where several
processes are first together one of them does while the others wait. A later version of this module may
add a step to `_STEPS`, which brings an older schema up to date; an older version of this module refuses a
newer schema, of which it can't know the rules. A column that older versions needn't know is no step: it is
added where it is missing, they go on without it, and so does this version where it may not add it.

The times are for an administrator's eyes; nothing is decided by them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Connection,
    DateTime,
    ForeignKey,
    Index,
    MetaData,
    Table,
    Text,
    func,
    insert,
    inspect,
    select,
)
from sqlalchemy.exc import DBAPIError

from airflow_delta.engine.errors import CommitOwnerError

__all__ = [
    "COMMITS",
    "SCHEMA",
    "TABLES",
    "establish",
    "is_established",
    "keeps_checksums",
    "transaction",
]

_METADATA = MetaData()

TABLES = Table(
    "airflow_delta_managed_tables",
    _METADATA,
    Column("table_id", Text, primary_key=True),
    Column("location", Text, nullable=False),
    Column("standing", Text, nullable=False),
    Column("owned_from", BigInteger, nullable=False),
    Column("latest_version", BigInteger, nullable=False),
    Column("backfilled_version", BigInteger, nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    CheckConstraint(
        "standing IN ('proposed', 'active', 'released')", name="airflow_delta_managed_standing"
    ),
    CheckConstraint("backfilled_version <= latest_version", name="airflow_delta_managed_versions"),
)
"""The columns are the fields of `Entry`."""

COMMITS = Table(
    "airflow_delta_managed_commits",
    _METADATA,
    Column("table_id", ForeignKey(TABLES.c.table_id, ondelete="CASCADE"), primary_key=True),
    # Else SQLAlchemy takes a number in a primary key for one that the database counts up.
    Column("version", BigInteger, primary_key=True, autoincrement=False),
    Column("uuid", Text, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("modified_ms", BigInteger, nullable=False),
    Column("crc32", BigInteger),
    Column("ratified_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
)
"""The columns are the fields of `UnbackfilledCommit`; its path follows from version and UUID. Tables that
an earlier version of this module has made get ``crc32`` later (`keeps_checksums`)."""

Index("airflow_delta_managed_locations", TABLES.c.location)

SCHEMA = Table(
    "airflow_delta_managed_schema",
    _METADATA,
    Column("version", BigInteger, primary_key=True, autoincrement=False),
    Column("created_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
)
"""The newest row says which version of the schema there is."""

# Any number will do, if it is the same in all processes and nobody else's.
_ADVISORY_LOCK = 0x6166_5F64_656C_7461

_BEGIN = {
    # Takes the lock for writing at once: one that is taken later can't be waited for.
    "sqlite": "BEGIN IMMEDIATE",
    "postgresql": "BEGIN ISOLATION LEVEL READ COMMITTED",
}


@contextmanager
def transaction(connection: Connection) -> Iterator[None]:
    """Make one transaction of what is executed on a connection, which is otherwise in autocommit."""
    try:
        connection.exec_driver_sql(_BEGIN[connection.dialect.name])
        yield
        connection.exec_driver_sql("COMMIT")
    except BaseException:
        # To close the connection rolls back, whatever state it is in; to ask it to may fail again.
        connection.invalidate()
        raise


def is_established(connection: Connection) -> bool:
    """Whether a database has the tables, of whichever version.

    Raises:
        SQLAlchemyError: the database failed.
    """
    return inspect(connection).has_table(SCHEMA.name)


def establish(connection: Connection) -> None:
    """Bring the schema of a database to the version that this module knows.

    Raises:
        CommitOwnerError: the schema is of a newer version.
        SQLAlchemyError: the database failed.
    """
    if _version(connection) == len(_STEPS):
        return
    with transaction(connection):
        if connection.dialect.name == "postgresql":
            connection.execute(select(func.pg_advisory_xact_lock(_ADVISORY_LOCK)))
        # Another process may have been faster.
        found = _version(connection)
        for version, step in enumerate(_STEPS[found:], found + 1):
            step(connection)
            connection.execute(insert(SCHEMA).values(version=version))


def keeps_checksums(connection: Connection) -> bool:
    """Whether ratified commits can have a checksum; tables without the column get it, if they may.

    Raises:
        SQLAlchemyError: the database failed.
    """
    if _has_checksums(connection):
        return True
    kind = COMMITS.c.crc32.type.compile(connection.dialect)
    try:
        connection.exec_driver_sql(f"ALTER TABLE {COMMITS.name} ADD COLUMN crc32 {kind}")
    except DBAPIError:
        # Another process was faster, or this one may only read and write rows.
        return _has_checksums(connection)
    return True


def _has_checksums(connection: Connection) -> bool:
    columns = inspect(connection).get_columns(COMMITS.name)
    return any(column["name"] == COMMITS.c.crc32.name for column in columns)


def _version(connection: Connection) -> int:
    if not is_established(connection):
        return 0
    found: int = connection.execute(select(func.max(SCHEMA.c.version))).scalar_one()
    if found > len(_STEPS):
        raise CommitOwnerError(
            f"the commit owner's database has version {found} of its tables ({SCHEMA.name}), and this "
            f"version of airflow-delta knows only up to {len(_STEPS)}: upgrade it"
        )
    return found


def _create(connection: Connection) -> None:
    _METADATA.create_all(connection)


_STEPS: tuple[Callable[[Connection], None], ...] = (_create,)
"""What makes version n of the schema of version n - 1, from an empty database on."""
