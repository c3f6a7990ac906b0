"""Backfill a managed table by a plan, and report how far it is backfilled.

RFC managed-commits, "Commit Backfills". The commit owner backfills; this module plans it and checks the
result. The log decides what is backfilled, since an owner may have copied commits without recording it.
So the log is opened first, which names the owner; then the owner is queried; then the log is read again,
for what was backfilled in the meantime.

If the owner has released the table but the commit that says so isn't backfilled yet, the log still names
the owner. A backfill completes that conversion.
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
    "ensure_backfilled",
    "execute_backfill",
    "plan_backfill",
    "read_commit_status",
]


@dataclass(frozen=True, slots=True)
class CommitStatus:
    """The newest ratified version of a table, and the newest backfilled one.

    Attributes:
        table: the table's location.
        owner: the name of its commit owner; None if the file system manages it.
        standing: the table's state at the owner; None without one.
        ratified_version: the newest version.
        backfilled_version: the newest version in the log, which everybody can see.
    """

    table: str
    owner: str | None
    standing: Standing | None
    ratified_version: int
    backfilled_version: int

    @property
    def lag(self) -> int:
        """The number of versions that aren't backfilled."""
        return self.ratified_version - self.backfilled_version

    def to_dict(self) -> dict[str, Any]:
        """The status as plain JSON values.

        Returns:
            ``owner`` and ``standing``, both None if the file system manages the table; ``accepts_commits``;
            ``ratified_version``, ``backfilled_version`` and ``lag``.
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
    """The plan of a backfill.

    Attributes:
        table: the table's location.
        owner: the name of the commit owner.
        version: the last version to backfill.
        ratified_version: the newest version that the owner has ratified.
        backfilled_version: the newest version in the log.
        commits: what is copied, ascending.
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
            ``version`` (the last one to backfill), ``ratified_version``, ``backfilled_version`` and
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
    """The result of a backfill.

    Attributes:
        plan: what was planned.
        backfilled_version: the newest version that is now backfilled.
        num_backfilled: how many versions have been backfilled since the plan was made, by this call or by
            others.
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
        """The number of the versions ratified then that aren't backfilled."""
        return max(0, self.ratified_version - self.backfilled_version)

    def to_dict(self) -> dict[str, Any]:
        """The report, as plain JSON values.

        Returns:
            ``version`` and ``backfilled_version`` (the newest that is backfilled), ``ratified_version``,
            ``lag`` (ratified versions that aren't backfilled) and ``num_backfilled``.
        """
        return {
            "version": self.backfilled_version,
            "ratified_version": self.ratified_version,
            "backfilled_version": self.backfilled_version,
            "lag": self.lag,
            "num_backfilled": self.num_backfilled,
        }


def read_commit_status(storage: Storage, owners: CommitOwners) -> CommitStatus:
    """Read how far the commits of a table are ratified and backfilled.

    Args:
        storage: where the table is.
        owners: the known commit owners.

    Raises:
        TableNotFoundError: there is no table.
        CommitOwnerUnavailableError: its owner isn't known here, or can't be reached.
        CommitOwnerError: its owner doesn't have it.
        DeltaError: see `open_newest`.
    """
    logged, owned = _open_logged(storage, owners)
    if owned is None:
        return CommitStatus(storage.root, None, None, logged, logged)
    status = owned.owner.status(owned.table)
    logged = find_latest_version(storage, logged)
    ratified = max(status.latest_version, logged)
    return CommitStatus(storage.root, owned.table.owner, status.standing, ratified, logged)


def plan_backfill(
    storage: Storage, owners: CommitOwners, version: int | None = None
) -> BackfillPlan:
    """Plan a backfill.

    Args:
        storage: where the table is.
        owners: the known commit owners.
        version: the last version to backfill; None for the newest ratified one.

    Raises:
        InvalidArgumentError: the file system manages the table; or the version isn't valid.
        VersionNotFoundError: the owner hasn't ratified the version.
        CommitOwnerUnavailableError: the owner isn't known here, or can't be reached.
        CommitOwnerError: the owner doesn't have the table.
        DeltaError: see `open_newest`.
    """
    check_version(version, table=storage.root)
    plan = _plan(storage, owners, version)
    if plan is None:
        raise InvalidArgumentError(
            "there is nothing to backfill: the table has no commit owner, and all its commits are in the "
            "log",
            table=storage.root,
        )
    return plan


def execute_backfill(storage: Storage, plan: BackfillPlan) -> BackfillResult:
    """Have the owner backfill what a plan says. The owner also records what others have backfilled.

    Raises:
        CommitOwnerUnavailableError: the owner can't be reached.
        CommitOwnerError: the owner doesn't have the table any more.
        CorruptLogError: the log has another commit instead of a ratified one, a ratified one is gone, or
            the log lacks what the owner reports as backfilled. Facts: version, path.
        StorageError: the store failed. What is backfilled by then stays, and another call continues.
    """
    owned = plan.owned
    done = owned.owner.backfill_to_version(owned.table, plan.version)
    # The owner may be a foreign implementation, so its answer is checked.
    newest = find_latest_version(storage, max(done, plan.backfilled_version), confirm=True)
    if newest < done:
        raise CorruptLogError(
            f"the owner {plan.owner!r} reports the versions up to {done} as backfilled, but the newest "
            f"one in the log is {newest}: files were lost, or the table's directory was restored to an "
            "older state; put the newer files back from a backup",
            table=storage.root,
            version=done,
            path=commit_path(done),
            found=newest,
        )
    return BackfillResult(plan, newest, newest - plan.backfilled_version)


def ensure_backfilled(storage: Storage, owners: CommitOwners, version: int | None = None) -> None:
    """Backfill a version before a checkpoint or a compaction of it is written.

    Args:
        storage: where the table is, managed or not.
        owners: the known commit owners.
        version: the version; None for the newest.

    Raises:
        DeltaError: see `plan_backfill` and `execute_backfill`.
    """
    check_version(version, table=storage.root)
    plan = _plan(storage, owners, version)
    if plan is not None and plan.needed:
        execute_backfill(storage, plan)


def _open_logged(storage: Storage, owners: CommitOwners) -> tuple[int, OwnedTable | None]:
    """Return the newest version in the log, and the owner that it names."""
    newest = open_newest(storage, verified=True)
    return newest.version, owners.find_owned_table(storage, newest.protocol, newest.metadata)


def _plan(storage: Storage, owners: CommitOwners, version: int | None) -> BackfillPlan | None:
    """Make the plan; None if the file system manages the table."""
    logged, owned = _open_logged(storage, owners)
    if owned is None:
        return None
    tracked = owned.owner.get_commits(owned.table, logged + 1)
    newest = find_latest_version(storage, logged)
    if newest > max(logged, tracked.latest_table_version):
        # Either the owner's record lags behind the log, or the owner has released the table, and
        # the later versions aren't its own. Read the log again to find out.
        newest, now_owned = _open_logged(storage, owners)
        if now_owned is None or now_owned.table != owned.table:
            return _plan(storage, owners, version)
    logged = newest
    ratified = max(tracked.latest_table_version, logged)
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
    commits = tuple(commit for commit in tracked.commits if logged < commit.version <= wanted)
    return BackfillPlan(storage.root, owned.table.owner, wanted, ratified, logged, commits, owned)
