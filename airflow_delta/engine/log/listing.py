"""One look at the log directory: which commits, checkpoints, compactions and checksums there are.

A listing only reports; it does not judge whether the commits are contiguous or which checkpoint to
read (`segment` does). It leaves out what no reader can use: checkpoints and compactions of zero
bytes, whose writers died, and multi-part checkpoints with missing parts. A commit of zero bytes
stays in: it takes its version, and must be an error rather than the end of the log.

A listing vouches for the files that were there when it began and are there when it ends. Of those that
are made or deleted meanwhile it may show the later and not the earlier, so that a log seems to have a
hole that it never had.

Spec: PROTOCOL.md, "Delta Log Entries", "Checkpoints" (readers must ignore multi-part checkpoints
with missing parts).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from airflow_delta.engine.log.files import (
    LOG_DIRECTORY,
    Checkpoint,
    CheckpointPart,
    Checksum,
    ClassicCheckpoint,
    Commit,
    CompactedCommits,
    MultipartCheckpoint,
    UnbackfilledCommit,
    V2Checkpoint,
    checkpoint_rank,
    parse_log_file,
    version_prefix,
)
from airflow_delta.engine.storage.base import FileInfo, Storage

__all__ = ["Listing", "list_backwards", "list_log", "list_names", "listing_of"]

_WINDOW = 1000
"""Versions in the first step when looking backwards for a checkpoint: about a page or three of a
listing. Each further step is twice as long, because on a file system every step costs the same."""

_NAME = len(LOG_DIRECTORY) + 1
"""Where the name begins in the path of a file of the log."""


@dataclass(frozen=True, slots=True)
class Listing:
    """The usable files of a log, or of a stretch of it.

    Attributes:
        commits: by version, ascending; not necessarily contiguous.
        checkpoints: complete ones, by `checkpoint_rank`, ascending: the last one is the best.
        compactions: by start, then by end.
        checksums: by version, ascending.
    """

    commits: tuple[Commit, ...]
    checkpoints: tuple[Checkpoint, ...]
    compactions: tuple[CompactedCommits, ...]
    checksums: tuple[Checksum, ...]

    @property
    def latest(self) -> int | None:
        """The newest version that a commit or a checkpoint proves, None where there is none."""
        proven = [files[-1].version for files in (self.commits, self.checkpoints) if files]
        return max(proven, default=None)

    def best_checkpoint(self, version: int | None, excluded: Collection[str]) -> Checkpoint | None:
        """The checkpoint to start a version from; None where there is none.

        Args:
            version: the version, None for the newest.
            excluded: paths of checkpoints that proved unreadable.
        """
        for checkpoint in reversed(self.checkpoints):
            if (version is None or checkpoint.version <= version) and (
                checkpoint.path not in excluded
            ):
                return checkpoint
        return None

    def before(self, other: Listing) -> Listing:
        """This listing continued by one of later versions."""
        return Listing(
            self.commits + other.commits,
            self.checkpoints + other.checkpoints,
            self.compactions + other.compactions,
            self.checksums + other.checksums,
        )


def list_log(storage: Storage, *, start: int = 0, end: int | None = None) -> Listing:
    """List the log of a table.

    Args:
        storage: the table's storage.
        start: the first version of interest. A compaction belongs to the version it starts at.
        end: the last version of interest; the listing ends there, which saves requests on stores
            that list in pages.

    Returns:
        The listing, empty where there is no log.

    Raises:
        StorageError: the store failed.
    """
    return listing_of(list_names(storage, start=start, end=end))


def list_backwards(storage: Storage, version: int, *, excluded: Collection[str]) -> Listing:
    """List from a version backwards, window by window, until there is a checkpoint.

    Or until it is clear that the version can't be rebuilt: a window must hold its last version.

    Args:
        storage: the table's storage.
        version: the last version of interest.
        excluded: paths of checkpoints that proved unreadable.

    Raises:
        StorageError: the store failed.
    """
    end, length = version, _WINDOW
    listing = Listing((), (), (), ())
    while True:
        start = max(0, end - length + 1)
        window = list_log(storage, start=start, end=end)
        listing = window.before(listing)
        found = listing.best_checkpoint(version, excluded) is not None
        if found or start == 0 or window.latest != end:
            return listing
        end, length = start - 1, 2 * length


def list_names(storage: Storage, *, start: int = 0, end: int | None = None) -> Iterator[FileInfo]:
    """The files whose names begin like one of a version, and others that sort among them.

    Args:
        storage: the table's storage.
        start: see `list_log`.
        end: see `list_log`.
    """
    # A version's prefix sorts before all its names; no prefix is needed to begin at the beginning.
    start_after = version_prefix(start) if start else ""
    past_end = None if end is None else f"{LOG_DIRECTORY}/{version_prefix(end + 1)}"
    for info in storage.list(LOG_DIRECTORY, start_after=start_after):
        # Names begin with a digit or are none of ours, and no name of ours sorts after the digits.
        if info.path[_NAME : _NAME + 1] > "9":
            break
        if past_end is not None and info.path >= past_end:
            break
        yield info


def listing_of(files: Iterable[FileInfo]) -> Listing:
    """What files of the log directory are, in the order of their names; others are left out."""
    commits: list[Commit] = []
    checkpoints: list[Checkpoint] = []
    parts: defaultdict[tuple[int, int], list[CheckpointPart]] = defaultdict(list)
    compactions: list[CompactedCommits] = []
    checksums: list[Checksum] = []
    for info in files:
        match parse_log_file(info):
            case Commit() as commit:
                commits.append(commit)
            case Checksum() as checksum:
                checksums.append(checksum)
            case _ if info.size == 0:
                continue
            case ClassicCheckpoint() | V2Checkpoint() as checkpoint:
                checkpoints.append(checkpoint)
            case CheckpointPart() as part:
                parts[part.version, part.parts].append(part)
            case CompactedCommits() as compaction:
                compactions.append(compaction)
            case UnbackfilledCommit() | None:
                continue
    checkpoints.extend(_complete(parts))
    checkpoints.sort(key=checkpoint_rank)
    return Listing(tuple(commits), tuple(checkpoints), tuple(compactions), tuple(checksums))


def _complete(
    parts: dict[tuple[int, int], list[CheckpointPart]],
) -> list[MultipartCheckpoint]:
    """The sets of parts that lack none. Listed names are unique, so counting is enough."""
    return [
        MultipartCheckpoint(
            version,
            tuple(
                FileInfo(part.path, part.size, part.modified_ms)
                for part in sorted(found, key=lambda part: part.part)
            ),
        )
        for (version, count), found in parts.items()
        if len(found) == count
    ]
