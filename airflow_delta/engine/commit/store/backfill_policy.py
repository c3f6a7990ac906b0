"""The backfill policy of a managed table: the key ``backfill`` of its ``commitOwnerConf``.

=================  =======================================================================
``"1"``            after each commit; the default
``"<n>"``          after each commit of a version that is divisible by n
``"on-request"``   only by `CommitOwner.backfill_to_version`
``"direct"``       at once: the owner writes commits into the log, not under ``_commits``
=================  =======================================================================

`check_conf` refuses an invalid policy when a table is handed over. `BackfillPolicy.of` reads the policy for
commits. To read a table, to backfill it or to give it back needs no valid policy.

Spec: RFC managed-commits, "Commit Backfills"; ``"direct"`` is choice 2 of "Commit Protocol".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from airflow_delta.engine.errors import InvalidArgumentError, InvalidTableError
from airflow_delta.engine.features.managed_commits import TABLE_ID

__all__ = ["BACKFILL", "BackfillPolicy", "check_conf", "is_same_conf"]

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
    """A rule by which the commits of a table are backfilled.

    Attributes:
        every: backfill after commits of versions that this divides; None to backfill only on request.
        direct: whether commits are written into the log at once.
    """

    every: int | None = 1
    direct: bool = False

    @classmethod
    def of(cls, conf: Mapping[str, str], *, table: str) -> BackfillPolicy:
        """Return the policy in a table's ``commitOwnerConf``.

        Args:
            conf: the configuration.
            table: the table's location, for errors.

        Raises:
            InvalidTableError: there is no such policy. Facts: property, value.
        """
        value = conf.get(BACKFILL, _DEFAULT)
        policy = _parse_policy(value)
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
        owner: the name of the table's owner, for errors.
        table: the table's location, for errors.

    Raises:
        InvalidArgumentError: it has an unknown key or an invalid policy. Facts: option; for a policy also
            value.
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
    if _parse_policy(value) is None:
        raise InvalidArgumentError(
            f"conf[{BACKFILL!r}] is {value!r}: the commit owner {owner!r} expects {_EXPECTED}",
            table=table,
            option=BACKFILL,
            value=value,
        )


def is_same_conf(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    """Whether two configurations mean the same; a missing policy means the default."""
    return {BACKFILL: _DEFAULT, **one} == {BACKFILL: _DEFAULT, **other}


def _parse_policy(value: str) -> BackfillPolicy | None:
    """Return the policy for a value of the key; None if the value is invalid."""
    if value == _DIRECT:
        return BackfillPolicy(None, direct=True)
    if value == _ON_REQUEST:
        return BackfillPolicy(None)
    return BackfillPolicy(int(value)) if _NUMBER.fullmatch(value) else None
