"""Which commit owner a table has, and where owners come from.

A table names its owner in ``delta.managedCommit.commitOwner``. The name is looked up

1. among the owners that were given to the table (`DeltaTable(commit_owners=…)`), then
2. among the entry points of the group ``airflow_delta.commit_owners``, by which any package adds owners:
   each is a function of the table's ``commitOwnerConf`` that returns a `CommitOwner`.

What an owner must keep secret comes from its own surroundings, such as the environment; the configuration
in the table is for everybody to read.
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
    """The commit owners that a table may have.

    Args:
        given: owners by name, which come before those of entry points.
    """

    def __init__(self, given: Mapping[str, CommitOwner] | None = None) -> None:
        self._given = dict(given or {})

    def owner_of(
        self, storage: Storage, protocol: Protocol, metadata: Metadata
    ) -> OwnedTable | None:
        """The owner of a table; None for one that the file system manages.

        Args:
            storage: where the table is.
            protocol: the table's.
            metadata: the table's.

        Raises:
            InvalidTableError: the feature is there without the property, or the other way round; or the
                configuration of the owner can't be read.
            CommitOwnerUnavailableError: there is no such owner here.
        """
        properties = TableProperties(metadata.configuration, storage.root)
        name = commit_owner(supported_features(protocol), properties)
        if name is None:
            return None
        table = ManagedTable(storage, name, properties.commit_owner_conf)
        return OwnedTable(self.find(table), table)

    def find(self, table: ManagedTable) -> CommitOwner:
        """The owner that a table names.

        Raises:
            CommitOwnerUnavailableError: there is no such owner here.
        """
        given = self._given.get(table.owner)
        return _from_entry_point(table) if given is None else given


def _from_entry_point(table: ManagedTable) -> CommitOwner:
    found = _entry_points().get(table.owner)
    if found is None:
        raise CommitOwnerUnavailableError(
            f"the commit owner {table.owner!r} isn't known here; known are {sorted(_entry_points())} and "
            "those given to the table as commit_owners. Install the package that has it, or give it",
            table=table.uri,
            owner=table.owner,
        )
    try:
        factory: OwnerFactory = found.load()
        return factory(table.conf)
    except CommitOwnerError as error:
        facts = {**error.facts, "owner": table.owner}
        raise type(error)(error.message, table=table.uri, **facts) from error
    # Code of any package may fail in any way.
    except Exception as error:
        raise CommitOwnerUnavailableError(
            f"the commit owner {table.owner!r} can't be made from its entry point {found.value}: "
            f"{type(error).__name__}: {error}",
            table=table.uri,
            owner=table.owner,
        ) from error


@cache
def _entry_points() -> Mapping[str, EntryPoint]:
    # Imported here, for few tables are managed. What is installed takes milliseconds to read, and stays.
    from importlib.metadata import entry_points

    return {point.name: point for point in entry_points(group=GROUP)}
