"""`CommitStore`: what a commit owner must remember, and where it is decided which commit is a version.

`StoreBackedOwner` works on any commit store: `SqlCommitStore` in a database, or `MemoryCommitStore` for
tests. A commit store has an entry for each table, found by the ``tableId`` in the table's configuration. It
also tracks the ratified commits that aren't known to be backfilled.

Each method is one atomic step. Its effect is durable when it returns. It may be repeated, and called from
any thread and process. All methods raise

* `CommitOwnerUnavailableError` if the commit store can't be reached. Only for `CommitStore.ratify` does it
  matter that the step may have taken effect nevertheless.
* `CommitStoreMissingError` if the commit store doesn't exist. Only `CommitStore.propose` creates it,
  because any other client may have a wrong URL. An implementation that always exists never raises it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from airflow_delta.engine.commit.owner import Standing
from airflow_delta.engine.log.files import UnbackfilledCommit

__all__ = ["CommitStore", "TableEntry"]


@dataclass(frozen=True, slots=True)
class TableEntry:
    """The entry of a table in a commit store, at one moment.

    Attributes:
        table_id: the table's id.
        location: the table's location (`ManagedTable.location`).
        standing: whether the owner has the table.
        owned_from: the version of the commit that handed it over, or will.
        latest_version: the newest ratified version. Before the first ratification it is ``owned_from`` in
            an active entry, and the version before in a proposed one.
        backfilled_version: the newest version that is known to be backfilled, with all before it.
        commits: the ratified commits above that version, ascending without a gap.
    """

    table_id: str
    location: str
    standing: Standing
    owned_from: int
    latest_version: int
    backfilled_version: int
    commits: tuple[UnbackfilledCommit, ...]


class CommitStore(Protocol):
    """Stores what a commit owner knows of its tables. The module says what all methods have in common."""

    def find(self, table_id: str) -> TableEntry | None:
        """Return a table's entry with its tracked commits, all of one moment; None if there is none."""

    def entries_at(self, location: str) -> list[TableEntry]:
        """Return the entries of a location, without their commits, in any order."""

    def propose(self, table_id: str, location: str, version: int) -> None:
        """Enter a table as proposed, to be owned from a version on.

        Creates the commit store if it doesn't exist. An entry that is proposed for this version or an
        earlier one gets the new version and location. An entry that is proposed for a later version stays,
        because this request may be late. An active or released entry stays, too.
        """

    def forget(self, table_id: str, version: int) -> None:
        """Delete an entry that is proposed for a version; any other entry stays."""

    def activate(self, table_id: str) -> None:
        """Make a proposed entry active, with ``owned_from`` as its latest and backfilled version.

        It has no effect on an active or released entry, or if there is none.
        """

    def ratify(self, table_id: str, commit: UnbackfilledCommit, *, releases: bool) -> bool:
        """Make a commit the next version of its table.

        It takes effect if the entry is active and the commit's version follows on its latest one. For a
        commit that releases the table, all versions before it must be backfilled as well. Then the commit
        is tracked and its version is the latest; if it releases the table, the entry becomes released.

        Returns:
            Whether the version is this very commit, by its UUID: ratified now or by an earlier call. A
            commit that isn't tracked any more isn't recognised.
        """

    def observe(self, table_id: str, version: int) -> None:
        """Record that the log has all commits up to a version, and stop tracking them.

        The latest version is raised to this one if it is below: the file ``<version>.json`` proves the
        commit, even if the commit store was restored from a backup and doesn't know it. No version is
        lowered. A proposed entry stays.
        """

    def relocate(self, table_id: str, location: str) -> None:
        """Record a table's new location."""

    def accept(self, table_id: str, version: int, *, instead_of: int) -> bool:
        """Give up the ratified commits that the log lacks.

        It takes effect if the entry isn't proposed, and its latest version is ``instead_of``; so no commit
        is given up that was ratified in between. Then the entry is active, the version is its latest and
        its backfilled one, and no commit is tracked.

        Args:
            table_id: the table's id.
            version: the newest version that the log has.
            instead_of: the latest version that the caller knows of.

        Returns:
            Whether the entry is now so, by this call or an earlier one.
        """
