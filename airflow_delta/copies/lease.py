"""Make sure that a new copy and the deletion of an expired one don't overlap.

This is the copy's side of the protocol in `deletion_list`. A copy looks for a deletion before it
starts, before it commits, and after the commit. If a deletion began and ended in between, the
marker is gone. A commit to a deleted table is rolled back; see `CopyWatch.is_lost`.

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
from airflow_delta.copies.request import load_target_marker
from airflow_delta.engine.errors import DeltaError

if TYPE_CHECKING:
    from airflow_delta.copies.marker import CopyMarker
    from airflow_delta.copies.request import CopyRequest
    from airflow_delta.engine.storage.base import Storage

__all__ = ["CopyBeingDeletedError", "CopyWatch", "check_not_being_deleted"]

_LEASE_MINUTES = LEASE_MS // 60_000


class CopyBeingDeletedError(DeltaError):
    """An expired copy is being deleted at the target of a copy; retry later. Facts: target."""


def check_not_being_deleted(request: CopyRequest, target: Storage) -> None:
    """Check that no expired copy is being deleted at the target.

    Args:
        request: the copy to be made there.
        target: the storage of the target.

    Raises:
        CopyBeingDeletedError: one is being deleted.
        StorageError: the store failed.
    """
    if is_being_deleted(target):
        raise _refusal(
            request,
            "an expired copy is being deleted there. Try again later: if the deletion was killed, the next "
            f"run that deletes expired copies there finishes it, {_LEASE_MINUTES} minutes after it began "
            f"or later. Or delete by hand all that is there, {DELETING} last",
        )


class CopyWatch:
    """Watches the target of a Delta copy for deletions.

    Args:
        request: the copy.
        target: the storage of the target.

    Raises:
        CopyBeingDeletedError: an expired copy is being deleted there.
        InvalidArgumentError: the marker can't be parsed.
        StorageError: the store failed.
    """

    def __init__(self, request: CopyRequest, target: Storage) -> None:
        self._request = request
        self._target = target
        self._before = self._look()

    def check(self) -> CopyMarker | None:
        """Check that the earlier copy wasn't deleted since the watch began.

        Returns:
            The marker that is there now.

        Raises:
            CopyBeingDeletedError: it was, or is being deleted.
            InvalidArgumentError: the marker can't be parsed.
            StorageError: the store failed.
        """
        before, now = self._before, self._look()
        if before is not None and (now is None or now.target_id != before.target_id):
            raise _refusal(
                self._request,
                "the expired copy that was there has been deleted in the meantime. Try again; if the "
                "target can't be read then, empty it",
            )
        return now

    def is_lost(self, table_id: str | None) -> bool:
        """Whether a table has been deleted, or its deletion is decided.

        A deletion that isn't decided yet doesn't count: it lists again, and finds the commit.

        Args:
            table_id: the table's id; None if there was no table before, so that any other table counts.

        Raises:
            InvalidArgumentError: the list or the marker can't be parsed.
            StorageError: the store failed.
        """
        # In this order: a deletion deletes the marker before its list.
        deletion = read_list(self._target)
        if deletion is not None:
            return deletion.decided
        marker = load_target_marker(self._request, self._target)
        return marker is None or marker.target_id != table_id

    def _look(self) -> CopyMarker | None:
        # In this order: a deletion deletes the marker before its list.
        check_not_being_deleted(self._request, self._target)
        return load_target_marker(self._request, self._target)


def _refusal(request: CopyRequest, reason: str) -> CopyBeingDeletedError:
    return CopyBeingDeletedError(
        f"no copy can be made at the target {request.target_uri}: {reason}",
        table=request.table_uri,
        target=request.target_uri,
    )
