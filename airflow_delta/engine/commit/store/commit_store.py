"""`Ledger`: what a commit owner must remember, and the one place where versions are decided.

The protocol of commits is the same wherever an owner keeps its books (`ledger_owner`). What differs is how
they are kept: in a database (`sql_ledger`), or in the memory of a process, for tests (`memory_ledger`).
A ledger has an entry per table, found by the ``tableId`` in the table's configuration, and with it the
commits that are ratified and not known to be backfilled.

Each method is one atomic step that is durable when it returns, safe to repeat, and safe to call from any
thread and process. All raise `CommitOwnerUnavailableError` where the books can't be reached: of
`Ledger.ratify` that may mean that it took effect all the same, of the others it doesn't matter.

Books are begun by `Ledger.propose` alone. Where there are none yet, all other methods raise `NoBooksError`
(or do nothing, where books can't be missing): whoever only looks may have been told the wrong place, and
must not leave anything there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from airflow_delta.engine.commit.owner import Standing
from airflow_delta.engine.log.files import UnbackfilledCommit

__all__ = ["Entry", "Ledger"]


@dataclass(frozen=True, slots=True)
class Entry:
    """What a ledger knows of a table, at one moment.

    Attributes:
        table_id: which table.
        location: where it is (`ManagedTable.location`).
        standing: how the owner stands to it.
        owned_from: the version of the commit that handed it over, or is to.
        latest_version: the newest ratified version; of an entry that has ratified none, ``owned_from`` once
            it is active, and the version before it while it is proposed.
        backfilled_version: all versions up to this one are known to be backfilled.
        commits: the ratified commits above that, ascending without a gap.
    """

    table_id: str
    location: str
    standing: Standing
    owned_from: int
    latest_version: int
    backfilled_version: int
    commits: tuple[UnbackfilledCommit, ...]


class Ledger(Protocol):
    """The books of a commit owner. See the module for what all methods share."""

    def find(self, table_id: str) -> Entry | None:
        """The entry of a table with its tracked commits, all of one moment; None where there is none."""

    def entries_at(self, location: str) -> list[Entry]:
        """The entries of a location, without their commits, in any order."""

    def propose(self, table_id: str, location: str, version: int) -> None:
        """Enter a table as proposed, to be owned from a version on.

        Books that aren't there are begun. An entry that is proposed for that version or an earlier one gets
        the new version and location. One that is proposed for a later one stays as it is, as a request may
        come late; and so does one that is active or released.
        """

    def forget(self, table_id: str, version: int) -> None:
        """Take out an entry that is proposed for a version; any other one stays."""

    def activate(self, table_id: str) -> None:
        """Let a proposed entry be active, with ``owned_from`` as its latest and backfilled version.

        One that is active or released stays as it is, and so does one that isn't there.
        """

    def ratify(self, table_id: str, commit: UnbackfilledCommit, *, releases: bool) -> bool:
        """Make a commit the next version of its table.

        It takes effect if the entry is active, the commit's version is the one after its latest, and,
        where the commit releases the table, all versions before it are backfilled. Then the commit is
        tracked, its version is the latest, and the entry is released if asked for.

        Returns:
            Whether the version is this very commit, by its uuid: ratified now or, in a repetition, before.
            A commit that isn't tracked any more is not recognised.
        """

    def observe(self, table_id: str, version: int) -> None:
        """Note that the log holds all commits up to a version.

        They are tracked no longer. The latest version is raised to it where it is below: that
        ``<version>.json`` is there proves the commit, whatever the books say, which may have been restored
        from a backup. Nothing is lowered by it. A proposed entry stays as it is.
        """

    def relocate(self, table_id: str, location: str) -> None:
        """Note that a table has moved."""

    def accept(self, table_id: str, version: int, *, instead_of: int) -> bool:
        """Take what the log has for all that there is: commits that were ratified are given up.

        It takes effect if the entry isn't proposed, and its latest version is the one that it is to be
        instead of, so that nothing is given up that was ratified meanwhile. Then the entry is active, the
        version is its latest and its backfilled one, and nothing is tracked.

        Args:
            table_id: which table.
            version: the newest version that the log has.
            instead_of: the latest version that the caller knows of.

        Returns:
            Whether the entry is so: made so now or, in a repetition, before.
        """
