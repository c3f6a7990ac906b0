"""Repair what a commit owner has recorded of a managed table, after a loss or a move.

* `propose`: the owner has lost its records, and agrees again to own the table.
* `relocate`: the table has moved.
* `accept_log`: ratified commits are lost for good.

The table itself isn't changed. It is opened by its log alone, since the owner may not be able to answer.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Protocol, runtime_checkable

from airflow_delta.engine.commit.owner import CommitOwner, ManagedTable
from airflow_delta.engine.commit.registry import CommitOwners, OwnedTable
from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.engine.log.segment import check_version
from airflow_delta.engine.maintenance.backfill.backfilled import open_backfilled
from airflow_delta.engine.model.arguments import check_type
from airflow_delta.engine.storage.base import Storage

__all__ = ["RepairableOwner", "accept_log", "propose", "relocate"]


@runtime_checkable
class RepairableOwner(Protocol):
    """The methods that a commit owner has in addition to `CommitOwner`, if it can record a loss or a move.

    `StoreBackedOwner` has them, and so has the owner ``sql``.
    """

    def relocate(self, table: ManagedTable, *, opened: Callable[[str], Storage]) -> str:
        """Record that a table has moved; see `StoreBackedOwner.relocate`."""

    def accept_log(self, table: ManagedTable, version: int, *, dry_run: bool = False) -> int:
        """Give up ratified commits that are lost; see `StoreBackedOwner.accept_log`.

        An owner may lack ``dry_run``. Then its dry runs are refused.
        """


def propose(storage: Storage, owners: CommitOwners, version: int) -> None:
    """Propose to the owner again that it owns the table; see `DeltaTable.propose`."""
    _check_given(version, storage.root)
    owned = _find_owner(storage, owners)
    owned.owner.propose(owned.table, version)


def relocate(storage: Storage, owners: CommitOwners, opened: Callable[[str], Storage]) -> str:
    """Report to the owner that a table has moved here; see `DeltaTable.relocate`.

    Args:
        storage: where the table is now.
        owners: the known commit owners.
        opened: opens another location of the same store, to check the old one.
    """
    owned = _find_owner(storage, owners)
    return _require_repairable(owned).relocate(owned.table, opened=opened)


def accept_log(
    storage: Storage, owners: CommitOwners, version: int, *, dry_run: bool = False
) -> int:
    """Have the owner give up the lost commits of a table; see `DeltaTable.accept_log`."""
    _check_given(version, storage.root)
    owned = _find_owner(storage, owners)
    owner = _require_repairable(owned)
    if not dry_run:
        return owner.accept_log(owned.table, version)
    # Not one that takes any keyword, because it may not know this one, and give the commits up.
    if "dry_run" not in inspect.signature(owner.accept_log).parameters:
        raise InvalidArgumentError(
            f"the commit owner {owned.table.owner!r} has no dry run: it can't check whether version "
            f"{version} would be accepted without giving up the versions after it",
            table=owned.table.uri,
        )
    return owner.accept_log(owned.table, version, dry_run=True)


def _check_given(version: object, table: str) -> None:
    check_type("version", version, int, "a version", table=table)
    check_version(version, table=table)


def _find_owner(storage: Storage, owners: CommitOwners) -> OwnedTable:
    newest = open_backfilled(storage)
    owned = owners.find_owned_table(storage, newest.protocol, newest.metadata)
    if owned is None:
        raise _cannot_record("the file system", storage.root)
    return owned


def _require_repairable(owned: OwnedTable) -> RepairableOwner:
    owner: CommitOwner | RepairableOwner = owned.owner
    if not isinstance(owner, RepairableOwner):
        raise _cannot_record(f"the commit owner {owned.table.owner!r}", owned.table.uri)
    return owner


def _cannot_record(whose: str, table: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"the commits of the table are managed by {whose}, which can't record a loss or a move; only "
        "owners such as 'sql' can",
        table=table,
    )
