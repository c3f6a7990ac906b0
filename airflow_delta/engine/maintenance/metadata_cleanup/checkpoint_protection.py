"""What the feature ``checkpointProtection`` lets a cleanup take.

checkpoint-protection.md, "Writer Requirements". With the feature, and below the version that
``delta.requireCheckpointProtectionBeforeVersion`` names, the boundary:

====  ======================================================  ==============================================
rule  of the document                                         here
====  ======================================================  ==============================================
a     checkpoints below the boundary stay                     they do, unless all below it goes in one go
b     no new checkpoint there by who doesn't know the         all checkpoints: ``checkpoint_plan``
      protocol of its version
c     versions of whose protocol that is true stay, unless    `find_first_unknown`, and ``log_start``: the log
      all below the boundary goes in one go                   begins no later than there
d     commits go before their checkpoints                     ``cleanup_files``, in all tables
====  ======================================================  ==============================================

**Which versions are cleaned up** (rule c): those that can be rebuilt from what is there. What is left of
others by a cleanup that was cut short is no version any more: whoever began has seen to the rule, and must
be able to end it.

A checkpoint that turns out to be damaged rebuilds nothing either: such versions begin at the next one that
can be read.

**To know a protocol** is to know each of its features well enough to read tables with it and to commit to
them. What a version's metadata says plays no part: nothing is read of it, or written.
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
    """A version that only who knows its protocol may clean up.

    Attributes:
        version: the version.
        reason: what isn't known, as a sentence.
    """

    version: int
    reason: str


def read_protection_boundary(snapshot: Snapshot) -> int:
    """The version below which checkpoints are protected; 0 where none are.

    Args:
        snapshot: the newest version that the log has.

    Raises:
        InvalidTableError: the property can't be read.
    """
    if _FEATURE not in supported_features(snapshot.protocol):
        return 0
    return snapshot.properties.require_checkpoint_protection_before_version


def explain_unknown(protocol: Protocol, *, table: str) -> str | None:
    """What of a protocol the engine doesn't know, as a sentence; None where it knows all of it.

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
    return f"the engine can't write with its features {', '.join(unknown)}" if unknown else None


def find_first_unknown(storage: Storage, log: OldLog, *, before: int) -> UnknownProtocol | None:
    """The first version that can be rebuilt and whose protocol the engine doesn't know.

    Args:
        storage: where the table is.
        log: the log, at least up to that version.
        before: only versions below this one.

    Returns:
        The version; one whose protocol can't be established counts as such. None where all are known.

    Raises:
        StorageError: the store failed.
    """
    for starts, last in _rebuildable(log, before):
        for start in starts:
            try:
                found = _first_unknown_in(storage, first=start, last=last)
            except _UnreadableError:
                continue  # no version begins with this checkpoint
            if found is not None:
                return found
            break
    return None


class _UnreadableError(Exception):
    """The checkpoint that versions were to begin with is damaged or gone."""


def _first_unknown_in(storage: Storage, *, first: int, last: int) -> UnknownProtocol | None:
    """The same among consecutive versions, the first of which is 0 or has a checkpoint.

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


def _rebuildable(log: OldLog, before: int) -> Iterator[tuple[Sequence[int], int]]:
    """The versions that can be rebuilt and that have commits, as ranges, ascending.

    Yields:
        The versions that a range can begin with, the first of which can be read, and its last version.
    """
    checkpoints = sorted({checkpoint.version for checkpoint in log.checkpoints})
    for run in _runs(log.commits.below(before).versions):
        # A checkpoint of the version before the first commit serves as well.
        first = bisect_left(checkpoints, run.start - 1)
        starts = [0] if run.start == 0 else checkpoints[first : bisect_left(checkpoints, run.stop)]
        yield starts, run[-1]


def _runs(versions: Sequence[int]) -> Iterator[range]:
    """Ascending versions as ranges between which some are missing."""
    start = place = 0
    while start < len(versions):
        # Mostly none is missing, and one comparison tells.
        place = bisect_right(
            range(start, len(versions)),
            versions[start] - start,
            key=lambda at: versions[at] - at,
        )
        place += start
        yield range(versions[start], versions[place - 1] + 1)
        start = place
