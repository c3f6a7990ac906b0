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

A configuration that isn't right is refused when a table is handed over (`check_conf`). The policy concerns
those who commit. Whoever reads, backfills or gives a table back doesn't need it, so that a value nobody
understands shuts no table for ever.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from airflow_delta.engine.errors import InvalidArgumentError, InvalidTableError
from airflow_delta.engine.features.managed_commits import TABLE_ID

__all__ = ["BACKFILL", "BackfillPolicy", "check_conf", "same_conf"]

BACKFILL = "backfill"
"""The key of the configuration."""

_PROPERTY = "delta.managedCommit.commitOwnerConf"
_ON_REQUEST, _DIRECT = "on-request", "direct"
_DEFAULT = "1"
_NUMBER = re.compile(r"[1-9][0-9]{0,17}")
_EXPECTED = (
    "a whole number above 0, to backfill at each version that it divides, "
    f"{_ON_REQUEST!r} or {_DIRECT!r}"
)


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
        value = conf.get(BACKFILL, _DEFAULT)
        policy = _policy(value)
        if policy is not None:
            return policy
        raise InvalidTableError(
            f"the property {_PROPERTY} has {value!r} as {BACKFILL!r}: expected {_EXPECTED}. No commit can "
            "be made by it: convert the table to file-system commits, and hand it over again with a "
            "configuration that is right",
            table=table,
            property=_PROPERTY,
            value=value,
        )

    def is_due(self, version: int) -> bool:
        """Whether to backfill after the commit of a version."""
        return self.every is not None and version % self.every == 0


def check_conf(conf: Mapping[str, str], *, owner: str, table: str) -> None:
    """Make sure that a table may be handed over with a configuration.

    Args:
        conf: the configuration, with the table's id or without.
        owner: what the table calls its owner, for errors.
        table: the table's location, for errors.

    Raises:
        InvalidArgumentError: it has a key that means nothing to the owner, as a misspelled one does, or
            no policy. Facts: option, and of a policy value.
    """
    unknown = sorted(conf.keys() - {BACKFILL, TABLE_ID})
    if unknown:
        raise InvalidArgumentError(
            f"conf[{unknown[0]!r}] means nothing to the commit owner {owner!r}: expected no other key than "
            f"{BACKFILL!r} in its configuration (conf, or the property {_PROPERTY})",
            table=table,
            option=unknown[0],
        )
    value = conf.get(BACKFILL, _DEFAULT)
    if _policy(value) is None:
        raise InvalidArgumentError(
            f"conf[{BACKFILL!r}] is {value!r}: the commit owner {owner!r} expects {_EXPECTED}",
            table=table,
            option=BACKFILL,
            value=value,
        )


def same_conf(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    """Whether two configurations say the same: what goes without saying may be said."""
    return {BACKFILL: _DEFAULT, **one} == {BACKFILL: _DEFAULT, **other}


def _policy(value: str) -> BackfillPolicy | None:
    """The policy of a name; None where it is none's."""
    if value == _DIRECT:
        return BackfillPolicy(None, direct=True)
    if value == _ON_REQUEST:
        return BackfillPolicy(None)
    return BackfillPolicy(int(value)) if _NUMBER.fullmatch(value) else None
