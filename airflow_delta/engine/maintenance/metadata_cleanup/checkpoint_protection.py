"""Apply the feature ``checkpointProtection`` to a metadata cleanup.

RFC checkpoint-protection, "Writer Requirements". The boundary is the version in
``delta.requireCheckpointProtectionBeforeVersion``:

====  ======================================================  ===========================================
rule  in the document                                         here
====  ======================================================  ===========================================
a     checkpoints below the boundary stay                     unless all below it is deleted at once
b     no new checkpoint there unless the writer knows the     for all checkpoints: ``checkpoint/plan.py``
      protocol of its version
c     versions of unknown protocols stay, unless all below    `find_first_unknown`; ``log_start.py``
      the boundary is deleted at once                         begins the log no later than there
d     commits are deleted before their checkpoints            ``expired_files.py``, for all tables
====  ======================================================  ===========================================

Rule c is about versions that can be rebuilt. What an interrupted cleanup has left of others is no version
any more: that cleanup has applied the rule, and the next one must be able to finish it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from airflow_delta.engine.errors import (
    CorruptLogError,
    InvalidTableError,
    ObjectNotFoundError,
    UnsupportedFeatureError,
    VersionNotFoundError,
)
from airflow_delta.engine.features.feature import Support
from airflow_delta.engine.features.protocol import (
    FEATURES_WRITER_VERSION,
    check_readable,
    supported_features,
)
from airflow_delta.engine.features.registry import FEATURES
from airflow_delta.engine.maintenance.metadata_cleanup.expired_files import OldLog
from airflow_delta.engine.maintenance.metadata_cleanup.protocol_history import read_protocol_history
from airflow_delta.engine.model.actions import Protocol
from airflow_delta.engine.snapshot.snapshot import Snapshot
from airflow_delta.engine.storage.base import Storage

__all__ = ["UnknownProtocol", "explain_unknown", "find_first_unknown", "read_protection_boundary"]

_FEATURE = "checkpointProtection"


@dataclass(frozen=True, slots=True)
class UnknownProtocol:
    """A version that only an engine may clean up that knows its protocol.

    Attributes:
        version: the version.
        reason: what isn't known, as a sentence.
    """

    version: int
    reason: str


def read_protection_boundary(snapshot: Snapshot) -> int:
    """Return the version below which checkpoints are protected; 0 if none are.

    Args:
        snapshot: the newest version in the log.

    Raises:
        InvalidTableError: the property can't be read.
    """
    if _FEATURE not in supported_features(snapshot.protocol):
        return 0
    return snapshot.properties.require_checkpoint_protection_before_version


def explain_unknown(protocol: Protocol, *, table: str) -> str | None:
    """Explain what the engine doesn't know of a protocol, as a sentence; None if it knows everything.

    To know a protocol is to know each feature well enough to read tables with it and to commit to them. The
    metadata of a version don't matter, since nothing is read with them or written.

    Args:
        protocol: the protocol.
        table: the table's location, for errors.
    """
    try:
        check_readable(protocol, table=table)
    except (UnsupportedFeatureError, InvalidTableError) as error:
        return error.message
    if protocol.min_writer_version > FEATURES_WRITER_VERSION:
        return f"it needs writer version {protocol.min_writer_version}"
    supported = sorted(supported_features(protocol))
    unknown = [name for name in supported if not _is_written(name)]
    noun = "feature" if len(unknown) == 1 else "features"
    return f"the engine can't write with its {noun} {', '.join(unknown)}" if unknown else None


def find_first_unknown(storage: Storage, log: OldLog, *, before: int) -> UnknownProtocol | None:
    """Find the first version that can be rebuilt and whose protocol the engine doesn't know.

    Args:
        storage: where the table is.
        log: the log, at least up to ``before``.
        before: only versions below this one.

    Returns:
        The version; None if all protocols are known. A protocol that can't be read counts as unknown.

    Raises:
        StorageError: the store failed.
    """
    for starts, last in _list_rebuildable(log, before):
        for start in starts:
            try:
                found = _find_first_unknown_in(storage, first=start, last=last)
            except _UnreadableError:
                continue  # a damaged checkpoint rebuilds nothing; begin with the next one
            if found is not None:
                return found
            break
    return None


class _UnreadableError(Exception):
    """The checkpoint that a range of versions begins with is damaged or gone."""


def _find_first_unknown_in(storage: Storage, *, first: int, last: int) -> UnknownProtocol | None:
    """Find it among consecutive versions, the first of which is 0 or has a checkpoint.

    Raises:
        _UnreadableError: that checkpoint can't be read.
    """
    known = None
    try:
        for version, protocol in read_protocol_history(storage, first=first, last=last):
            reason = explain_unknown(protocol, table=storage.root)
            if reason is not None:
                return UnknownProtocol(version, reason)
            known = version
    except (CorruptLogError, VersionNotFoundError, ObjectNotFoundError) as error:
        if known is None and first:
            raise _UnreadableError from error
        broken = error.facts.get("version", first if known is None else known)
        return UnknownProtocol(broken, f"its protocol can't be established: {error.message}")
    return None


def _is_written(name: str) -> bool:
    return name in FEATURES and FEATURES[name].append is not Support.NO


def _list_rebuildable(log: OldLog, before: int) -> Iterator[tuple[Sequence[int], int]]:
    """Yield ranges of the versions that can be rebuilt and have commits, ascending.

    Yields:
        The versions that a range can begin with, of which the first readable one counts, and its last
        version.
    """
    checkpoints = sorted({checkpoint.version for checkpoint in log.checkpoints})
    for run in _split_into_runs(log.commits.below(before).versions):
        # A checkpoint of the version before the first commit serves as well.
        first = bisect_left(checkpoints, run.start - 1)
        starts = [0] if run.start == 0 else checkpoints[first : bisect_left(checkpoints, run.stop)]
        yield starts, run[-1]


def _split_into_runs(versions: Sequence[int]) -> Iterator[range]:
    """Split ascending versions into ranges without gaps."""
    start = 0
    while start < len(versions):
        # Bisect, since mostly no version is missing.
        end = start + bisect_right(
            range(start, len(versions)),
            versions[start] - start,
            key=lambda at: versions[at] - at,
        )
        yield range(versions[start], versions[end - 1] + 1)
        start = end
