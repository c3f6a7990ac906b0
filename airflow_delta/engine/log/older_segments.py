"""The next best files for a version, where its newest checkpoints can't be read.

A damaged checkpoint is passed over, and the one before it is tried, in the end the commits from version 0
on. Somebody may have left thousands of damaged ones; so the log is listed once for all of them.

Spec: PROTOCOL.md, "Checkpoints".
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_delta.engine.errors import (
    CorruptLogError,
    TableNotFoundError,
    VersionNotFoundError,
)
from airflow_delta.engine.log.compacted import trusted_compactions
from airflow_delta.engine.log.listing import BackwardListing
from airflow_delta.engine.log.segment import (
    LogSegment,
    build_segment,
    load_segment,
    usable_compactions,
)

if TYPE_CHECKING:
    from airflow_delta.engine.storage.base import Storage

__all__ = ["OlderSegments"]


class OlderSegments:
    """The files that rebuild a version, found again each time that one more checkpoint proves unreadable.

    However many do, the log is listed once.

    Args:
        storage: the table's storage.
        version: the version, which the log has.
        verified: see `load_segment`.
        excluded: paths of checkpoints that have proved unreadable by now.
    """

    def __init__(
        self, storage: Storage, version: int, *, verified: bool, excluded: Collection[str]
    ) -> None:
        self._storage = storage
        self._version = version
        self._verified = verified
        self._excluded = set(excluded)
        self._listed = BackwardListing(storage, version, excluded=excluded)
        self._trusted: dict[str, bool] = {}

    def without(self, path: str) -> LogSegment:
        """The segment from the next best checkpoint, at last from version 0.

        Args:
            path: of one more checkpoint that proved unreadable.

        Raises:
            DeltaError: see `load_segment`.
        """
        self._excluded.add(path)
        self._listed.exclude(path)
        version, listing = self._version, self._listed.to_checkpoint()
        try:
            segment = build_segment(listing, table=self._storage.root, version=version)
        except (TableNotFoundError, VersionNotFoundError, CorruptLogError):
            # No log is refused after a single look; see the module.
            return load_segment(
                self._storage,
                version=version,
                excluded_checkpoints=self._excluded,
                verified=self._verified,
            )
        segment = replace(segment, verified=self._verified)
        usable = usable_compactions(segment, listing)
        new = [file for file in usable if file.path not in self._trusted]
        trusted = trusted_compactions(self._storage, new, pledged_only=self._verified)
        self._trusted.update({file.path: file in trusted for file in new})
        return replace(
            segment, compactions=tuple(file for file in usable if self._trusted[file.path])
        )
