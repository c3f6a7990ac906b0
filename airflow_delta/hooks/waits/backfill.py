"""Check whether a managed table is backfilled, for sensors and triggers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_delta.engine import DeltaTable

__all__ = ["BackfillLook", "BackfillWatch"]


@dataclass(frozen=True, slots=True)
class BackfillLook:
    """The result of one check of the backfill of a table.

    Attributes:
        reached: whether the wanted version is backfilled.
        facts: ``table_uri``, ``version`` (the wanted one), ``ratified_version``, ``backfilled_version`` and
            ``lag``, as JSON values.
    """

    reached: bool
    facts: dict[str, Any]

    @property
    def seen(self) -> str:
        """The state that was found, in words."""
        backfilled, ratified = self.facts["backfilled_version"], self.facts["ratified_version"]
        return f"version {backfilled} backfilled, version {ratified} ratified"


class BackfillWatch:
    """Checks whether a version of a table is backfilled.

    Every version of a table that isn't managed counts as backfilled.

    :param version: the wanted version; None: the newest that is ratified at the first successful check.
    :param trigger_backfill: have the owner backfill missing versions.
    """

    def __init__(self, version: int | None = None, *, trigger_backfill: bool = False) -> None:
        self.version = version
        self._trigger_backfill = trigger_backfill

    @property
    def wanted(self) -> str:
        """The state that is waited for, in words."""
        if self.version is None:
            return "all versions that are ratified now to be backfilled"
        return f"version {self.version} to be backfilled"

    def look(self, table: DeltaTable) -> BackfillLook:
        """Check the table and its commit owner once.

        :param table: the table; it may be a new object for the same table.
        :raises InvalidArgumentError: the version is invalid.
        :raises DeltaError: the table can't be read, or its owner can't be reached.
        """
        from airflow_delta.engine.log.segment import check_version

        check_version(self.version, table=table.uri)
        status = table.commit_status()
        wanted = status.ratified_version if self.version is None else self.version
        backfilled = status.backfilled_version
        # The owner can only backfill ratified versions.
        missing = min(wanted, status.ratified_version)
        if self._trigger_backfill and backfilled < missing:
            backfilled = table.backfill(missing).backfilled_version
        self.version = wanted
        return BackfillLook(
            backfilled >= wanted,
            {
                "table_uri": table.uri,
                "version": wanted,
                "ratified_version": status.ratified_version,
                "backfilled_version": backfilled,
                "lag": max(status.ratified_version - backfilled, 0),
            },
        )
