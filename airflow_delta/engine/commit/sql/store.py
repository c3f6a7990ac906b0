"""`SqlCommitStore`: a commit store in a database, which any number of processes share.

    SqlCommitStore("postgresql+psycopg://user:password@host/database")
    SqlCommitStore("sqlite:////var/lib/airflow/commits.db")

One UPDATE of the table's row ratifies a commit. It takes effect if the version follows on the latest one,
so of any number of clients one succeeds. The row of the commit is inserted in the same statement or
transaction. There are no leases: a client that dies leaves nothing that others wait for.

`CommitStore.observe` deletes the rows of commits that are in the log. The rows of tables stay.
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
from airflow_delta.engine.commit.store.commit_store import TableEntry
from airflow_delta.engine.log.files import UnbackfilledCommit, unbackfilled_commit_path

__all__ = ["SqlCommitStore"]

_OLD_COLUMNS = (COMMITS.c.version, COMMITS.c.uuid, COMMITS.c.size, COMMITS.c.modified_ms)
_COMMIT_COLUMNS = (*_OLD_COLUMNS, COMMITS.c.crc32)

# A row that was inserted while others were deleted may be left below the backfilled version. It doesn't
# count.
_TRACKED = and_(
    COMMITS.c.table_id == TABLES.c.table_id, COMMITS.c.version > TABLES.c.backfilled_version
)


class SqlCommitStore:
    """A `CommitStore` in PostgreSQL or SQLite; see `SqlDatabase` for how it may be shared.

    The first `propose` creates the tables, and a file of SQLite. All methods also raise `CommitOwnerError`
    if the tables are of a newer version than this one knows.

    Args:
        url: the database, as SQLAlchemy writes it.

    Raises:
        InvalidArgumentError: it isn't the URL of a PostgreSQL database or of an SQLite file.
    """

    def __init__(self, url: str) -> None:
        self._database = SqlDatabase(url)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._database.name!r})"

    def find(self, table_id: str) -> TableEntry | None:
        """Return a table's entry; see `CommitStore.find`."""
        # One statement, so that entry and commits are of one moment.
        rows = self._database.fetch(
            select(TABLES, *self._commit_columns)
            .join_from(TABLES, COMMITS, _TRACKED, isouter=True)
            .where(TABLES.c.table_id == table_id)
            .order_by(COMMITS.c.version)
        )
        if not rows:
            return None
        commits = (_commit(row) for row in rows if row.version is not None)
        return _entry(rows[0], tuple(commits))

    def entries_at(self, location: str) -> list[TableEntry]:
        """Return the entries of a location; see `CommitStore.entries_at`."""
        rows = self._database.fetch(select(TABLES).where(TABLES.c.location == location))
        return [_entry(row, ()) for row in rows]

    def propose(self, table_id: str, location: str, version: int) -> None:
        """Enter a table as proposed; see `CommitStore.propose`."""
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
            where=and_(*_is_proposed(table_id), TABLES.c.owned_from <= version),
        )

    def forget(self, table_id: str, version: int) -> None:
        """Delete a proposed entry; see `CommitStore.forget`."""
        self._database.execute(
            delete(TABLES).where(*_is_proposed(table_id), TABLES.c.owned_from == version)
        )

    def activate(self, table_id: str) -> None:
        """Make a proposed entry active; see `CommitStore.activate`."""
        self._database.execute(
            update(TABLES)
            .where(*_is_proposed(table_id))
            .values(
                standing=Standing.ACTIVE.value,
                latest_version=TABLES.c.owned_from,
                backfilled_version=TABLES.c.owned_from,
            )
        )

    def ratify(self, table_id: str, commit: UnbackfilledCommit, *, releases: bool) -> bool:
        """Make a commit the next version of its table; see `CommitStore.ratify`."""
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

        # It must not be repeated here: if it took effect, and the commit was backfilled since, a repetition
        # would report that another commit is the version. The caller finds out which one it is.
        ratified = self._database.execute_both(
            _update_latest(table_id, commit.version, releases=releases),
            _track,
            table_id=table_id,
            repeat=False,
        )
        return ratified or self._tracks(table_id, commit)

    def observe(self, table_id: str, version: int) -> None:
        """Record that the log has all commits up to a version; see `CommitStore.observe`."""

        def _prune(found: Select[tuple[str]]) -> Delete:
            return delete(COMMITS).where(
                COMMITS.c.table_id == found.scalar_subquery(), COMMITS.c.version <= version
            )

        latest = TABLES.c.latest_version
        self._database.execute_both(
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
        """Record a table's new location; see `CommitStore.relocate`."""
        self._database.execute(
            update(TABLES).where(TABLES.c.table_id == table_id).values(location=location)
        )

    def accept(self, table_id: str, version: int, *, instead_of: int) -> bool:
        """Give up the ratified commits that the log lacks; see `CommitStore.accept`."""

        def _untrack_all(found: Select[tuple[str]]) -> Delete:
            # Also rows that were left below the backfilled version, because that may be lowered now.
            return delete(COMMITS).where(COMMITS.c.table_id == found.scalar_subquery())

        self._database.execute_both(
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
            _untrack_all,
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
        return _COMMIT_COLUMNS if self._database.has_checksums else _OLD_COLUMNS

    def _tracks(self, table_id: str, commit: UnbackfilledCommit) -> bool:
        rows = self._database.fetch(
            select(COMMITS.c.version)
            .join_from(TABLES, COMMITS, _TRACKED)
            .where(
                TABLES.c.table_id == table_id,
                COMMITS.c.version == commit.version,
                COMMITS.c.uuid == commit.uuid,
            )
        )
        return bool(rows)


def _is_proposed(table_id: str) -> tuple[ColumnElement[bool], ...]:
    return TABLES.c.table_id == table_id, TABLES.c.standing == Standing.PROPOSED.value


def _update_latest(table_id: str, version: int, *, releases: bool) -> Update:
    # Concurrent updates wait for each other, and then check the condition again: PostgreSQL does so in READ
    # COMMITTED, and SQLite has one writer at a time. So one of them finds the version before.
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


def _entry(row: Row[Any], commits: tuple[UnbackfilledCommit, ...]) -> TableEntry:
    return TableEntry(
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
        # Null for commits that an older version of this package ratified.
        crc32=getattr(row, "crc32", None),
    )
