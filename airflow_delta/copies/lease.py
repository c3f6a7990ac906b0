"""Keeps a new copy and the deletion of an expired one apart, where both happen at one place.

The copy's half of what `deletion_list` tells: it looks before it begins, before it puts anything in place,
and again once it has. A deletion that began and ended in between shows by the marker, which goes with the
copy. What a copy has committed to a table that is lost it takes back; see `CopyWatch.is_lost`.

No PySpark here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_delta.copies.deletion_list import (
    DELETING,
    LEASE_MS,
    is_being_deleted,
    read_list,
)
from airflow_delta.copies.request import held_marker
from airflow_delta.engine.errors import DeltaError

if TYPE_CHECKING:
    from airflow_delta.copies.marker import CopyMarker
    from airflow_delta.copies.request import CopyRequest
    from airflow_delta.engine.storage.base import Storage

__all__ = ["CopyBeingDeletedError", "CopyWatch", "check_not_being_deleted"]

_LEASE_MINUTES = LEASE_MS // 60_000


class CopyBeingDeletedError(DeltaError):
    """An expired copy is being deleted where a copy is to be made. Facts: target.

    It can be tried again later.
    """


def check_not_being_deleted(request: CopyRequest, target: Storage) -> None:
    """Check that no expired copy is being deleted at a place.

    Args:
        request: the copy that is made there.
        target: the place.

    Raises:
        CopyBeingDeletedError: one is.
        StorageError: the store failed.
    """
    if is_being_deleted(target):
        raise _refusal(
            request,
            "an expired copy is being deleted there. Try again later: if that was killed, the next run "
            f"that deletes expired copies there finishes it, {_LEASE_MINUTES} minutes after it began or "
            f"later. Or delete by hand all that is there, {DELETING} last",
        )


class CopyWatch:
    """Watches the place of a copy that is made as a Delta table.

    Args:
        request: the copy.
        target: the place.

    Raises:
        CopyBeingDeletedError: an expired copy is being deleted there.
        InvalidArgumentError: there is a file of the marker's name which is no marker.
        StorageError: the store failed.
    """

    def __init__(self, request: CopyRequest, target: Storage) -> None:
        self._request = request
        self._target = target
        self._before = self._look()

    def check(self) -> CopyMarker | None:
        """Check that nothing of the place has been deleted since the watch began.

        Returns:
            The marker that is there now.

        Raises:
            CopyBeingDeletedError: it has been, or is being deleted.
            InvalidArgumentError: there is a file of the marker's name which is no marker.
            StorageError: the store failed.
        """
        before, now = self._before, self._look()
        if before is not None and (now is None or now.target_id != before.target_id):
            raise _refusal(
                self._request,
                "the expired copy that was there has been deleted meanwhile. Try again; if the target "
                "can't be read then, empty it",
            )
        return now

    def is_lost(self, table_id: str | None) -> bool:
        """Whether a table is deleted, or is going to be whatever happens: its deletion is decided.

        Where a deletion has begun that isn't decided, whoever decides it sees what was committed before.

        Args:
            table_id: its id; None where there was none, so that any other table is in its place.

        Raises:
            InvalidArgumentError: a file of the list's name, or the marker's, is none.
            StorageError: the store failed.
        """
        # In this order: a deletion takes the marker first, and its own file last.
        deletion = read_list(self._target)
        if deletion is not None:
            return deletion.decided
        marker = held_marker(self._request, self._target)
        return marker is None or marker.target_id != table_id

    def _look(self) -> CopyMarker | None:
        # In this order: a deletion takes the marker first, and its own file last.
        check_not_being_deleted(self._request, self._target)
        return held_marker(self._request, self._target)


def _refusal(request: CopyRequest, reason: str) -> CopyBeingDeletedError:
    return CopyBeingDeletedError(
        f"no copy can be made at the target {request.target_uri}: {reason}",
        table=request.table_uri,
        target=request.target_uri,
    )
