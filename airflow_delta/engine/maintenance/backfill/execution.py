"""Backfill a managed table: as a plan, then in fact; and say how far it is backfilled.

managed-commits.md, "Commit Backfills". It is the commit owner who backfills. What the log has is told by
the log: an owner may have copied commits and not noted it yet. So the log's directory is opened first,
which tells the owner as well, then the owner is asked, and then the log is looked at once more, for what
was backfilled meanwhile.

A table that its owner has released is still its owner's to those who look at the log, as long as the commit
that says otherwise isn't there. To backfill it completes the conversion.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from airflow_delta.engine.commit.owner import Standing
from airflow_delta.engine.commit.registry import CommitOwners, OwnedTable
from airflow_delta.engine.errors import (
    CorruptLogError,
    InvalidArgumentError,
    VersionNotFoundError,
)
from airflow_delta.engine.log.files import UnbackfilledCommit, commit_path
from airflow_delta.engine.log.newest import find_latest_version
from airflow_delta.engine.log.segment import check_version
from airflow_delta.engine.snapshot.opening import open_newest
from airflow_delta.engine.storage.base import Storage

__all__ = [
    "BackfillPlan",
    "BackfillResult",
    "CommitStatus",
    "backfill_first",
    "commit_status",
    "execute_backfill",
    "plan_backfill",
]


@dataclass(frozen=True, slots=True)
class CommitStatus:
    """How far the commits of a table have come.

    Attributes:
        table: the table's location.
        owner: the name of its commit owner; None where the file system manages it.
        standing: how the owner stands to the table; None without one.
        ratified_version: the newest version.
        backfilled_version: the newest version that the log has, for everybody to see.
    """

    table: str
    owner: str | None
    standing: Standing | None
    ratified_version: int
    backfilled_version: int

    @property
    def lag(self) -> int:
        """How many versions aren't backfilled."""
        return self.ratified_version - self.backfilled_version

    def to_dict(self) -> dict[str, Any]:
        """The status as plain JSON values.

        Returns:
            ``owner`` and ``standing``, both None where the file system manages the table;
            ``accepts_commits``; ``ratified_version``, ``backfilled_version`` and ``lag``.
        """
        return {
            "owner": self.owner,
            "standing": None if self.standing is None else self.standing.value,
            "accepts_commits": self.standing in (None, Standing.ACTIVE),
            "ratified_version": self.ratified_version,
            "backfilled_version": self.backfilled_version,
            "lag": self.lag,
        }


@dataclass(frozen=True, slots=True)
class BackfillPlan:
    """What a backfill will do.

    Attributes:
        table: the table's location.
        owner: the name of the commit owner.
        version: the last version to be backfilled.
        ratified_version: the newest version that the owner has ratified.
        backfilled_version: the newest version that the log has.
        commits: what is to be copied, ascending.
        owned: the table and its owner.
    """

    table: str
    owner: str
    version: int
    ratified_version: int
    backfilled_version: int
    commits: tuple[UnbackfilledCommit, ...]
    owned: OwnedTable = field(repr=False, compare=False)

    @property
    def needed(self) -> bool:
        """Whether the log lacks anything up to the version."""
        return self.backfilled_version < self.version

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain JSON values.

        Returns:
            ``version`` (the last one to be backfilled), ``ratified_version``, ``backfilled_version`` and
            ``owner``.
        """
        return {
            "version": self.version,
            "ratified_version": self.ratified_version,
            "backfilled_version": self.backfilled_version,
            "owner": self.owner,
        }


@dataclass(frozen=True, slots=True)
class BackfillResult:
    """What was done.

    Attributes:
        plan: what was planned.
        backfilled_version: the newest version that is backfilled now.
        num_backfilled: how many versions have come to the log since the plan was made; others may have
            backfilled some of them.
    """

    plan: BackfillPlan
    backfilled_version: int
    num_backfilled: int

    @property
    def owner(self) -> str:
        """The name of the commit owner."""
        return self.plan.owner

    @property
    def ratified_version(self) -> int:
        """The newest version that the owner had ratified when the plan was made."""
        return self.plan.ratified_version

    @property
    def lag(self) -> int:
        """How many of the versions that were ratified then aren't backfilled."""
        return max(0, self.ratified_version - self.backfilled_version)

    def to_dict(self) -> dict[str, Any]:
        """What was done as plain JSON values.

        Returns:
            ``version`` and ``backfilled_version`` (the newest that is backfilled), ``ratified_version``,
            ``lag`` (ratified versions that aren't backfilled) and ``num_backfilled`` (by this call).
        """
        return {
            "version": self.backfilled_version,
            "ratified_version": self.ratified_version,
            "backfilled_version": self.backfilled_version,
            "lag": self.lag,
            "num_backfilled": self.num_backfilled,
        }


def commit_status(storage: Storage, owners: CommitOwners) -> CommitStatus:
    """How far the commits of a table have come.

    Args:
        storage: where the table is.
        owners: the commit owners that there are.

    Raises:
        TableNotFoundError: there is no table.
        CommitOwnerUnavailableError: its owner isn't known here, or can't be reached.
        CommitOwnerError: its owner doesn't have it.
        DeltaError: see `open_newest`.
    """
    logged, owned = _opened(storage, owners)
    if owned is None:
        return CommitStatus(storage.root, None, None, logged, logged)
    told = owned.owner.status(owned.table)
    logged = find_latest_version(storage, logged)
    ratified = max(told.latest_version, logged)
    return CommitStatus(storage.root, owned.table.owner, told.standing, ratified, logged)


def plan_backfill(
    storage: Storage, owners: CommitOwners, version: int | None = None
) -> BackfillPlan:
    """Plan a backfill.

    Args:
        storage: where the table is.
        owners: the commit owners that there are.
        version: the last version to be backfilled; None for all that are ratified.

    Raises:
        InvalidArgumentError: the file system manages the table; or the version is none.
        VersionNotFoundError: the owner hasn't ratified the version.
        CommitOwnerUnavailableError: the owner isn't known here, or can't be reached.
        CommitOwnerError: the owner doesn't have the table.
        DeltaError: see `open_newest`.
    """
    check_version(version, table=storage.root)
    plan = _planned(storage, owners, version)
    if plan is None:
        raise InvalidArgumentError(
            "there is nothing to backfill: the table has no commit owner, and all its commits are in the "
            "log",
            table=storage.root,
        )
    return plan


def execute_backfill(storage: Storage, plan: BackfillPlan) -> BackfillResult:
    """Do what a plan says. The owner notes as well what others have backfilled.

    Raises:
        CommitOwnerUnavailableError: the owner can't be reached.
        CommitOwnerError: the owner doesn't have the table any more.
        CorruptLogError: the log has another commit in the place of a ratified one, a ratified one is
            gone, or the log doesn't have what the owner says it has. Facts: version, path.
        StorageError: the store failed. What is backfilled by then stays, and a repetition goes on.
    """
    owned = plan.owned
    done = owned.owner.backfill_to_version(owned.table, plan.version)
    # Owners are anybody's; what they say is looked up.
    newest = find_latest_version(storage, max(done, plan.backfilled_version), confirm=True)
    if newest < done:
        raise CorruptLogError(
            f"the owner {plan.owner!r} says that the versions up to {done} are backfilled, but the newest "
            f"one in the log is {newest}: files were lost, or the table's directory was restored to an "
            "older state; put the newer files back from a backup",
            table=storage.root,
            version=done,
            path=commit_path(done),
            found=newest,
        )
    return BackfillResult(plan, newest, newest - plan.backfilled_version)


def backfill_first(storage: Storage, owners: CommitOwners, version: int | None = None) -> None:
    """Have what is about to get a checkpoint or a compaction backfilled before, if it isn't.

    Args:
        storage: where the table is, whoever manages it.
        owners: the commit owners that there are.
        version: the version; None for the newest.

    Raises:
        DeltaError: see `plan_backfill` and `execute_backfill`.
    """
    check_version(version, table=storage.root)
    plan = _planned(storage, owners, version)
    if plan is not None and plan.needed:
        execute_backfill(storage, plan)


def _opened(storage: Storage, owners: CommitOwners) -> tuple[int, OwnedTable | None]:
    """The newest version that the log has, and the owner of the table by it."""
    newest = open_newest(storage, verified=True)
    return newest.version, owners.find_owned_table(storage, newest.protocol, newest.metadata)


def _planned(storage: Storage, owners: CommitOwners, version: int | None) -> BackfillPlan | None:
    """The plan; None where the file system manages the table."""
    logged, owned = _opened(storage, owners)
    if owned is None:
        return None
    told = owned.owner.get_commits(owned.table, logged + 1)
    newest = find_latest_version(storage, logged)
    if newest > max(logged, told.latest_table_version):
        # The owner's books lag behind the log; or it has given the table back meanwhile, and what came
        # after that is none of its business.
        newest, now_owned = _opened(storage, owners)
        if now_owned is None or now_owned.table != owned.table:
            return _planned(storage, owners, version)
    logged = newest
    ratified = max(told.latest_table_version, logged)
    wanted = ratified if version is None else version
    if wanted > ratified:
        raise VersionNotFoundError(
            f"version {wanted} can't be backfilled: the newest that the commit owner "
            f"{owned.table.owner!r} has ratified is {ratified}",
            table=storage.root,
            version=wanted,
            earliest=None,
            latest=ratified,
        )
    commits = tuple(commit for commit in told.commits if logged < commit.version <= wanted)
    return BackfillPlan(storage.root, owned.table.owner, wanted, ratified, logged, commits, owned)
