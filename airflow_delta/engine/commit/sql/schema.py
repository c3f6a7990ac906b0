"""The tables of `SqlCommitStore`, and how they are created and upgraded.

====================================  =================================================================
``airflow_delta_managed_tables``      a row per table: its entry
``airflow_delta_managed_commits``     a row per ratified commit that isn't known to be backfilled
``airflow_delta_managed_schema``      a row per version of the schema, with the time of its creation
====================================  =================================================================

`create_tables` creates the tables with the first entry. If several processes do so at once, one creates
them and the others wait. A new version of the schema is a new step in `_STEPS`. An older version of this
module refuses a newer schema, because it doesn't know its rules. A column that older versions needn't know
is added without a step (`ensure_checksums`). Times are for administrators; nothing depends on them.
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
    "create_tables",
    "ensure_checksums",
    "has_tables",
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
"""The columns are the fields of `TableEntry`."""

COMMITS = Table(
    "airflow_delta_managed_commits",
    _METADATA,
    Column("table_id", ForeignKey(TABLES.c.table_id, ondelete="CASCADE"), primary_key=True),
    # By default SQLAlchemy makes an integer in a primary key count up.
    Column("version", BigInteger, primary_key=True, autoincrement=False),
    Column("uuid", Text, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("modified_ms", BigInteger, nullable=False),
    Column("crc32", BigInteger),
    Column("ratified_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
)
"""The columns are the fields of `UnbackfilledCommit`; its path follows from version and UUID. Tables of an
earlier version of this module get the column ``crc32`` later (`ensure_checksums`)."""

Index("airflow_delta_managed_locations", TABLES.c.location)

SCHEMA = Table(
    "airflow_delta_managed_schema",
    _METADATA,
    Column("version", BigInteger, primary_key=True, autoincrement=False),
    Column("created_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
)
"""The newest row has the version of the schema."""

# Any number that is the same in all processes, and that no other program uses.
_ADVISORY_LOCK = 0x6166_5F64_656C_7461

_BEGIN = {
    # Takes the lock for writing at once, and waits for it. SQLite can't wait for a lock that is taken
    # later.
    "sqlite": "BEGIN IMMEDIATE",
    "postgresql": "BEGIN ISOLATION LEVEL READ COMMITTED",
}


@contextmanager
def transaction(connection: Connection) -> Iterator[None]:
    """Execute the block's statements in one transaction of a connection that is in autocommit."""
    try:
        connection.exec_driver_sql(_BEGIN[connection.dialect.name])
        yield
        connection.exec_driver_sql("COMMIT")
    except BaseException:
        # Closing the connection rolls back in any state; ROLLBACK may fail again.
        connection.invalidate()
        raise


def has_tables(connection: Connection) -> bool:
    """Whether a database has the tables, in any version.

    Raises:
        SQLAlchemyError: the database failed.
    """
    return inspect(connection).has_table(SCHEMA.name)


def create_tables(connection: Connection) -> None:
    """Create the tables in a database, or upgrade them to the version that this module knows.

    Raises:
        CommitOwnerError: the schema is of a newer version.
        SQLAlchemyError: the database failed.
    """
    if _load_version(connection) == len(_STEPS):
        return
    with transaction(connection):
        if connection.dialect.name == "postgresql":
            connection.execute(select(func.pg_advisory_xact_lock(_ADVISORY_LOCK)))
        # Another process may have been faster.
        found = _load_version(connection)
        for version, step in enumerate(_STEPS[found:], found + 1):
            step(connection)
            connection.execute(insert(SCHEMA).values(version=version))


def ensure_checksums(connection: Connection) -> bool:
    """Whether ratified commits can have a checksum; adds the column if it is missing and may be added.

    Raises:
        SQLAlchemyError: the database failed.
    """
    if _has_checksums(connection):
        return True
    kind = COMMITS.c.crc32.type.compile(connection.dialect)
    try:
        connection.exec_driver_sql(f"ALTER TABLE {COMMITS.name} ADD COLUMN crc32 {kind}")
    except DBAPIError:
        # Another process was faster, or the database user may not alter tables.
        return _has_checksums(connection)
    return True


def _has_checksums(connection: Connection) -> bool:
    columns = inspect(connection).get_columns(COMMITS.name)
    return any(column["name"] == COMMITS.c.crc32.name for column in columns)


def _load_version(connection: Connection) -> int:
    if not has_tables(connection):
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
"""The n-th step upgrades the schema from version n - 1 to version n; version 0 is an empty database."""
