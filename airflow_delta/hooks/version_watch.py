"""Ask a table for its newest version again and again: what sensors and triggers have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_delta.hooks.delta import DeltaHook

if TYPE_CHECKING:
    from airflow_delta.engine import DeltaTable

__all__ = ["VersionLook", "VersionWatch", "wanted_version"]

_CONFIRM_EVERY = 100
"""At one look of so many it is made sure that the version seen last is still there."""


@dataclass(frozen=True, slots=True)
class VersionLook:
    """What one look at the versions of a table has found.

    Attributes:
        reached: whether it has the version that is waited for.
        facts: ``table_uri`` and the newest ``version``, None where there is no table yet.
    """

    reached: bool
    facts: dict[str, Any]

    @property
    def seen(self) -> str:
        """What was seen, in words."""
        version = self.facts["version"]
        return "no table" if version is None else f"version {version}"


def wanted_version(version: int) -> str:
    """What is waited for, in words."""
    return f"version {version} or newer"


class VersionWatch:
    """The newest version of one table, asked for again and again.

    The first look lists the log. Later ones ask for the next commit by its name, which is one small
    request however long the log is. The look that finds the version reads its commit, with one request
    more: nobody shall be told of a version that can't be read.
    """

    def __init__(self) -> None:
        self._latest: int | None = None
        self._looks = 0

    def look(self, table: DeltaTable, *, wanted: int) -> VersionLook:
        """Look whether the table has a version, or a newer one.

        A look that fails doesn't count.

        :param table: the table; another object for the same one will do.
        :param wanted: the version.
        :raises CorruptLogError: the newest commit isn't one.
        :raises UnsupportedFeatureError: the newest commit demands a feature that the engine lacks.
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
