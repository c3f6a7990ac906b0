"""`SqlLedger`: the books of a commit owner in a database, which any number of processes share.

    SqlLedger("postgresql+psycopg://user:password@host/database")
    SqlLedger("sqlite:////var/lib/airflow/commits.db")

A version is decided by one UPDATE of the table's row, which takes effect if the version is the one after
its latest: of any number of them for one version the database lets one find the row as it has to be. The
row of the commit comes with it, in the same statement or transaction (`sql_database`), so that after a
crash there are both or neither. There are no leases: whoever dies has left nothing that others wait for.

Rows of commits go when the log is known to hold them (`Ledger.observe`), so that there are few; rows of
tables stay.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    ColumnElement,
    Delete,
    Insert,
    Row,
    Select,
    Update,
    and_,
    case,
    delete,
    insert,
    literal,
    select,
    update,
)

from airflow_delta.engine.commit.owner import Standing
from airflow_delta.engine.commit.sql.database import SqlDatabase
from airflow_delta.engine.commit.sql.schema import COMMITS, TABLES
from airflow_delta.engine.commit.store.commit_store import Entry
from airflow_delta.engine.log.files import UnbackfilledCommit, unbackfilled_commit_path

__all__ = ["SqlLedger"]

_OLD_COLUMNS = (COMMITS.c.version, COMMITS.c.uuid, COMMITS.c.size, COMMITS.c.modified_ms)
_COMMIT_COLUMNS = (*_OLD_COLUMNS, COMMITS.c.crc32)

# A row that was inserted while others were deleted may be left over below the backfilled version: where
# it counts, and where it doesn't, is the same everywhere.
_TRACKED = and_(
    COMMITS.c.table_id == TABLES.c.table_id, COMMITS.c.version > TABLES.c.backfilled_version
)


class SqlLedger:
    """A `Ledger` in PostgreSQL or SQLite; see `SqlDatabase` for how it may be shared.

    The tables, and a file of SQLite, are created by the first `propose`. All methods may raise
    `CommitOwnerError` besides: the tables are of a newer version than this one knows.

    Args:
        url: the database, as SQLAlchemy writes it.

    Raises:
        InvalidArgumentError: it isn't the URL of a PostgreSQL database or of an SQLite file.
    """

    def __init__(self, url: str) -> None:
        self._database = SqlDatabase(url)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._database.name!r})"

    def find(self, table_id: str) -> Entry | None:
        """The entry of a table; see `Ledger.find`."""
        # One statement, which sees one moment.
        rows = self._database.rows(
            select(TABLES, *self._commit_columns)
            .join_from(TABLES, COMMITS, _TRACKED, isouter=True)
            .where(TABLES.c.table_id == table_id)
            .order_by(COMMITS.c.version)
        )
        if not rows:
            return None
        commits = (_commit(row) for row in rows if row.version is not None)
        return _entry(rows[0], tuple(commits))

    def entries_at(self, location: str) -> list[Entry]:
        """The entries of a location; see `Ledger.entries_at`."""
        rows = self._database.rows(select(TABLES).where(TABLES.c.location == location))
        return [_entry(row, ()) for row in rows]

    def propose(self, table_id: str, location: str, version: int) -> None:
        """Enter a table as proposed; see `Ledger.propose`."""
        self._database.insert_or_update(
            TABLES,
            {
                "table_id": table_id,
                "location": location,
                "standing": Standing.PROPOSED.value,
                "owned_from": version,
                "latest_version": version - 1,
                "backfilled_version": version - 1,
            },
            where=and_(*_proposed(table_id), TABLES.c.owned_from <= version),
        )

    def forget(self, table_id: str, version: int) -> None:
        """Take a proposed entry out; see `Ledger.forget`."""
        self._database.change(
            delete(TABLES).where(*_proposed(table_id), TABLES.c.owned_from == version)
        )

    def activate(self, table_id: str) -> None:
        """Let a proposed entry be active; see `Ledger.activate`."""
        self._database.change(
            update(TABLES)
            .where(*_proposed(table_id))
            .values(
                standing=Standing.ACTIVE.value,
                latest_version=TABLES.c.owned_from,
                backfilled_version=TABLES.c.owned_from,
            )
        )

    def ratify(self, table_id: str, commit: UnbackfilledCommit, *, releases: bool) -> bool:
        """Make a commit the next version of its table; see `Ledger.ratify`."""
        columns = self._commit_columns

        def _track(found: Select[tuple[str]]) -> Insert:
            values = (getattr(commit, column.name) for column in columns)
            row = found.add_columns(
                *(
                    literal(value, column.type)
                    for value, column in zip(values, columns, strict=True)
                )
            )
            return insert(COMMITS).from_select([COMMITS.c.table_id, *columns], row)

        # Not to be repeated blindly: if it took effect and the log has the commit by now, a repetition
        # would say that somebody else has the version. The caller can find that out.
        ratified = self._database.change_both(
            _make_latest(table_id, commit.version, releases=releases),
            _track,
            table_id=table_id,
            repeat=False,
        )
        return ratified or self._tracks(table_id, commit)

    def observe(self, table_id: str, version: int) -> None:
        """Note that the log holds all commits up to a version; see `Ledger.observe`."""

        def _prune(found: Select[tuple[str]]) -> Delete:
            return delete(COMMITS).where(
                COMMITS.c.table_id == found.scalar_subquery(), COMMITS.c.version <= version
            )

        latest = TABLES.c.latest_version
        self._database.change_both(
            update(TABLES)
            .where(
                TABLES.c.table_id == table_id,
                TABLES.c.standing != Standing.PROPOSED.value,
                TABLES.c.backfilled_version < version,
            )
            .values(
                backfilled_version=version,
                latest_version=case((latest < version, version), else_=latest),
            ),
            _prune,
            table_id=table_id,
            repeat=True,
        )

    def relocate(self, table_id: str, location: str) -> None:
        """Note that a table has moved; see `Ledger.relocate`."""
        self._database.change(
            update(TABLES).where(TABLES.c.table_id == table_id).values(location=location)
        )

    def accept(self, table_id: str, version: int, *, instead_of: int) -> bool:
        """Give up what the log doesn't have; see `Ledger.accept`."""

        def give_up(found: Select[tuple[str]]) -> Delete:
            # Also what is left over below the backfilled version, which may be lower now.
            return delete(COMMITS).where(COMMITS.c.table_id == found.scalar_subquery())

        self._database.change_both(
            update(TABLES)
            .where(
                TABLES.c.table_id == table_id,
                TABLES.c.standing != Standing.PROPOSED.value,
                TABLES.c.latest_version == instead_of,
            )
            .values(
                standing=Standing.ACTIVE.value,
                latest_version=version,
                backfilled_version=version,
            ),
            give_up,
            table_id=table_id,
            repeat=True,
        )
        entry = self.find(table_id)
        return (
            entry is not None
            and entry.standing is Standing.ACTIVE
            and entry.latest_version == entry.backfilled_version == version
        )

    @property
    def _commit_columns(self) -> tuple[ColumnElement[Any], ...]:
        return _COMMIT_COLUMNS if self._database.keeps_checksums else _OLD_COLUMNS

    def _tracks(self, table_id: str, commit: UnbackfilledCommit) -> bool:
        rows = self._database.rows(
            select(COMMITS.c.version)
            .join_from(TABLES, COMMITS, _TRACKED)
            .where(
                TABLES.c.table_id == table_id,
                COMMITS.c.version == commit.version,
                COMMITS.c.uuid == commit.uuid,
            )
        )
        return bool(rows)


def _proposed(table_id: str) -> tuple[ColumnElement[bool], ...]:
    return TABLES.c.table_id == table_id, TABLES.c.standing == Standing.PROPOSED.value


def _make_latest(table_id: str, version: int, *, releases: bool) -> Update:
    statement = (
        update(TABLES)
        .where(
            TABLES.c.table_id == table_id,
            TABLES.c.standing == Standing.ACTIVE.value,
            TABLES.c.latest_version == version - 1,
        )
        .values(latest_version=version)
    )
    if not releases:
        return statement
    return statement.where(TABLES.c.backfilled_version == version - 1).values(
        standing=Standing.RELEASED.value
    )


def _entry(row: Row[Any], commits: tuple[UnbackfilledCommit, ...]) -> Entry:
    return Entry(
        table_id=row.table_id,
        location=row.location,
        standing=Standing(row.standing),
        owned_from=row.owned_from,
        latest_version=row.latest_version,
        backfilled_version=row.backfilled_version,
        commits=commits,
    )


def _commit(row: Row[Any]) -> UnbackfilledCommit:
    return UnbackfilledCommit(
        version=row.version,
        uuid=row.uuid,
        path=unbackfilled_commit_path(row.version, row.uuid),
        size=row.size,
        modified_ms=row.modified_ms,
        # Null for what an older version has ratified.
        crc32=getattr(row, "crc32", None),
    )
