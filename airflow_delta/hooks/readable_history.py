"""Read the newest commits of a table whose log may have a damaged commit."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_delta.engine import CommitInfo, Snapshot

__all__ = ["readable_history"]

_LOG = logging.getLogger(__name__)


def readable_history(
    snapshot: Snapshot, limit: int, *, since_ms: int | None = None
) -> list[CommitInfo]:
    """The ``commitInfo`` of the newest commits, newest first; of a damaged commit and older ones none.

    A table with a damaged commit can be read if a later checkpoint has replaced it. A warning in the log
    names the damage.

    :param snapshot: the newest version.
    :param limit: the maximum number.
    :param since_ms: leave out commits of earlier times, in epoch milliseconds.
    :raises InvalidTableError: the properties of the table contradict each other.
    :raises DeltaError: the store failed.
    """
    from airflow_delta.engine.errors import CorruptLogError, InvalidTableError

    while True:
        try:
            return snapshot.timeline.history(limit, since_ms=since_ms)
        except (CorruptLogError, InvalidTableError) as error:
            version = getattr(error, "version", None)
            if version is None:
                raise  # It is about the table, not about a commit.
            # Less each time, even if the error is about a commit before those.
            limit = max(0, min(snapshot.version - version, limit - 1))
            _LOG.warning(
                "%s: only the newest %d commits are read, because an older one is damaged: %s",
                snapshot.table,
                limit,
                error.message,
            )
