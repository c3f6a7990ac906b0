"""When the commits of a managed table are backfilled: the key ``backfill`` of its ``commitOwnerConf``.

=================  ==============================================================================
``"1"``            after each commit; the default
``"<n>"``          after each commit of a version that is divisible by n
``"on-request"``   when somebody asks for it
``"direct"``       commits are backfilled from the start: the owner puts them where the log has them
=================  ==============================================================================

managed-commits.md, "Commit Backfills", advises to backfill often: readers that don't ask the owner see
what is backfilled, and that is all that is left if the owner loses its books. A larger n spares a store
requests. ``"direct"`` needs a store with put-if-absent, which then decides between writers as it does
without an owner ("Commit Protocol", choice 2); the owner's books follow the log.

The policy concerns those who commit. Whoever reads, backfills or gives a table back doesn't need it, so
that a value nobody understands shuts no table for ever.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from airflow_delta.engine.errors import InvalidTableError

__all__ = ["BACKFILL", "BackfillPolicy"]

BACKFILL = "backfill"
"""The key of the configuration."""

_PROPERTY = "delta.managedCommit.commitOwnerConf"
_ON_REQUEST, _DIRECT = "on-request", "direct"
_NUMBER = re.compile(r"[1-9][0-9]{0,17}")


@dataclass(frozen=True, slots=True)
class BackfillPolicy:
    """When a table is backfilled.

    Attributes:
        every: after commits of versions divisible by this; None for never without being asked.
        direct: whether commits are written backfilled.
    """

    every: int | None = 1
    direct: bool = False

    @classmethod
    def of(cls, conf: Mapping[str, str], *, table: str) -> BackfillPolicy:
        """The policy in a table's ``commitOwnerConf``.

        Args:
            conf: the configuration.
            table: the table's location, for errors.

        Raises:
            InvalidTableError: there is no such policy. Facts: property, value.
        """
        value = conf.get(BACKFILL, "1")
        if value == _DIRECT:
            return cls(None, direct=True)
        if value == _ON_REQUEST:
            return cls(None)
        if _NUMBER.fullmatch(value):
            return cls(int(value))
        raise InvalidTableError(
            f"the property {_PROPERTY} has {value!r} as {BACKFILL!r}: expected a whole number above 0, "
            f"to backfill at each version that it divides, {_ON_REQUEST!r} or {_DIRECT!r}. No commit can "
            "be made by it: convert the table to file-system commits, and hand it over again with a "
            "configuration that is right",
            table=table,
            property=_PROPERTY,
            value=value,
        )

    def is_due(self, version: int) -> bool:
        """Whether to backfill after the commit of a version."""
        return self.every is not None and version % self.every == 0
