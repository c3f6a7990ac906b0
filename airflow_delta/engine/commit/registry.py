"""Find the commit owner of a table.

A table names its owner in the property ``delta.managedCommit.commitOwner``. `CommitOwners` looks the name
up

1. among the owners that were given to the table (`DeltaTable(commit_owners=…)`),
2. among the entry points of the group ``airflow_delta.commit_owners``. Any package can add owners: an entry
   point is a function that takes the table's ``commitOwnerConf`` and returns a `CommitOwner`.

Secrets of an owner come from its environment, because everybody can read the table's configuration.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, TypeAlias

from airflow_delta.engine.commit.owner import CommitOwner, ManagedTable
from airflow_delta.engine.errors import CommitOwnerError, CommitOwnerUnavailableError
from airflow_delta.engine.features.managed_commits import commit_owner
from airflow_delta.engine.features.protocol import supported_features
from airflow_delta.engine.model.actions import Metadata, Protocol
from airflow_delta.engine.model.properties import TableProperties
from airflow_delta.engine.storage.base import Storage

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = ["GROUP", "CommitOwners", "OwnedTable", "OwnerFactory"]

GROUP = "airflow_delta.commit_owners"
"""The group of the entry points."""

OwnerFactory: TypeAlias = Callable[[Mapping[str, str]], CommitOwner]
"""Makes an owner for tables with a configuration; raises `CommitOwnerUnavailableError` if it can't."""


@dataclass(frozen=True, slots=True)
class OwnedTable:
    """A managed table together with its commit owner."""

    owner: CommitOwner
    table: ManagedTable


class CommitOwners:
    """The commit owners that are known to a process.

    Args:
        given: owners by name; they come before those of entry points.
    """

    def __init__(self, given: Mapping[str, CommitOwner] | None = None) -> None:
        self._given = dict(given or {})

    def find_owned_table(
        self, storage: Storage, protocol: Protocol, metadata: Metadata
    ) -> OwnedTable | None:
        """Find the owner of a table.

        Args:
            storage: the table's storage.
            protocol: the table's protocol.
            metadata: the table's metadata.

        Returns:
            The table with its owner; None if the file system manages the table.

        Raises:
            InvalidTableError: the table has the feature without the property, or the property without the
                feature; or the owner's configuration can't be parsed.
            CommitOwnerUnavailableError: no owner of that name is known here.
        """
        properties = TableProperties(metadata.configuration, storage.root)
        name = commit_owner(supported_features(protocol), properties)
        if name is None:
            return None
        table = ManagedTable(storage, name, properties.commit_owner_conf)
        return OwnedTable(self.find(table), table)

    def find(self, table: ManagedTable) -> CommitOwner:
        """Find the owner that a table names.

        Raises:
            CommitOwnerUnavailableError: no owner of that name is known here.
        """
        given = self._given.get(table.owner)
        return _make_from_entry_point(table) if given is None else given


def _make_from_entry_point(table: ManagedTable) -> CommitOwner:
    found = _entry_points().get(table.owner)
    if found is None:
        raise CommitOwnerUnavailableError(
            f"the commit owner {table.owner!r} isn't known here; known are {sorted(_entry_points())} and "
            "those given to the table as commit_owners. Install its package, or pass it as commit_owners",
            table=table.uri,
            owner=table.owner,
        )
    try:
        factory: OwnerFactory = found.load()
        return factory(table.conf)
    except CommitOwnerError as error:
        facts = {**error.facts, "owner": table.owner}
        raise type(error)(error.message, table=table.uri, **facts) from error
    # The code of another package may raise anything.
    except Exception as error:
        raise CommitOwnerUnavailableError(
            f"the commit owner {table.owner!r} can't be made from its entry point {found.value}: "
            f"{type(error).__name__}: {error}",
            table=table.uri,
            owner=table.owner,
        ) from error


@cache
def _entry_points() -> Mapping[str, EntryPoint]:
    # Imported here because few tables are managed. Reading the entry points takes milliseconds, so they are
    # cached.
    from importlib.metadata import entry_points

    return {point.name: point for point in entry_points(group=GROUP)}
