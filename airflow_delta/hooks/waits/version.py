"""Poll a table for its newest version, for sensors and triggers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_delta.hooks.delta import DeltaHook

if TYPE_CHECKING:
    from airflow_delta.engine import DeltaTable

__all__ = ["VersionLook", "VersionWatch", "wanted_version"]

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


def wanted_version(version: int) -> str:
    """The state that is waited for, in words."""
    return f"version {version} or newer"


class VersionWatch:
    """Polls a table for its newest version.

    The first check lists the log. Later ones request the next commit by its name: one small
    request, whatever the length of the log. The check that finds the wanted version also reads its
    commit, so that no task continues with a version that can't be read.
    """

    def __init__(self) -> None:
        self._latest: int | None = None
        self._looks = 0

    def look(self, table: DeltaTable, *, wanted: int) -> VersionLook:
        """Check whether the table has a version, or a newer one.

        :param table: the table; it may be a new object for the same table.
        :param wanted: the version.
        :raises CorruptLogError: the newest commit is damaged.
        :raises UnsupportedFeatureError: the newest commit needs a feature that the engine doesn't support.
        :raises DeltaError: the table can't be read.
        """
        confirm = self._looks % _CONFIRM_EVERY == 0
        latest = DeltaHook.latest_version(table, self._latest, confirm=confirm)
        reached = latest is not None and latest >= wanted
        if latest is not None and reached:
            table.check_commit(latest)
        self._latest = latest
        self._looks += 1
        return VersionLook(reached, {"table_uri": table.uri, "version": latest})
