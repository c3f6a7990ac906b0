"""Poll a table for its newest version, for sensors and triggers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_delta.engine import DeltaTable

__all__ = ["VersionLook", "VersionWatch"]

_CONFIRM_EVERY = 100
"""One of so many checks confirms that the last version found still exists."""


@dataclass(frozen=True, slots=True)
class VersionLook:
    """The result of one check of the versions of a table.

    Attributes:
        reached: whether it has the wanted version.
        facts: ``table_uri`` and the newest ``version``, None if there is no table yet.
    """

    reached: bool
    facts: dict[str, Any]

    @property
    def seen(self) -> str:
        """The state that was found, in words."""
        version = self.facts["version"]
        return "no table" if version is None else f"version {version}"


class VersionWatch:
    """Polls a table for its newest version.

    The first check lists the log. Later ones request the next commit by its name: one small
    request, whatever the length of the log. The check that finds the wanted version also reads its
    commit, so that no task continues with a version that can't be read.

    :param version: the wanted version; a newer one will do as well.
    """

    def __init__(self, version: int) -> None:
        self.version = version
        self._latest: int | None = None
        self._looks = 0

    @property
    def wanted(self) -> str:
        """The state that is waited for, in words."""
        return f"version {self.version} or newer"

    def look(self, table: DeltaTable) -> VersionLook:
        """Check the table once.

        :param table: the table; it may be a new object for the same table.
        :raises CorruptLogError: the newest commit is damaged.
        :raises UnsupportedFeatureError: the newest commit needs a feature that the engine doesn't support.
        :raises DeltaError: the table can't be read.
        """
        # Not imported with this module, because Airflow imports the modules of triggers in the event loop.
        from airflow_delta.hooks.delta import DeltaHook

        confirm = self._looks % _CONFIRM_EVERY == 0
        latest = DeltaHook.latest_version(table, self._latest, confirm=confirm)
        reached = latest is not None and latest >= self.version
        if latest is not None and reached:
            table.check_commit(latest)
        self._latest = latest
        self._looks += 1
        return VersionLook(reached, {"table_uri": table.uri, "version": latest})
