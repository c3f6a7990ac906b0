"""Find the files to rebuild a version from, when its newest checkpoints can't be read.

A damaged checkpoint is skipped and the one before it is tried, and finally the commits from version
0 on. There may be thousands of damaged checkpoints, so the log is listed only once for all of them.

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
    """Finds the files that rebuild a version again, each time one more checkpoint proves unreadable.

    The log is listed only once, however many checkpoints do.

    Args:
        storage: the table's storage.
        version: the version; the log has it.
        verified: see `load_segment`.
        excluded: paths of checkpoints that have already proved unreadable.
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
        """The segment from the next best checkpoint, finally from version 0.

        Args:
            path: the path of one more checkpoint that proved unreadable.

        Raises:
            DeltaError: see `load_segment`.
        """
        self._excluded.add(path)
        self._listed.exclude(path)
        version, listing = self._version, self._listed.to_checkpoint()
        try:
            segment = build_segment(listing, table=self._storage.root, version=version)
        except (TableNotFoundError, VersionNotFoundError, CorruptLogError):
            # A single listing isn't enough to refuse a log; see ``segment``.
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
