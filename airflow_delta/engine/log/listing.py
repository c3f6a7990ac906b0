"""List the log directory: its commits, checkpoints, compactions and checksums.

A listing leaves out what no reader can use: checkpoints and compactions of zero bytes, and multi-part
checkpoints with missing parts. `segment` decides whether the commits are contiguous, and which checkpoint
to read.

Of files that are created or deleted while the store lists, a listing may contain a later one without an
earlier one. Then the log seems to have a gap that it never had.

Spec: PROTOCOL.md, "Delta Log Entries", "Checkpoints" (readers must ignore multi-part checkpoints
with missing parts).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from operator import attrgetter

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

__all__ = ["BackwardListing", "Listing", "list_backwards", "list_log", "list_names", "listing_of"]

_version = attrgetter("version")

_WINDOW = 1000
"""Versions in the first window of a backward search for a checkpoint: one to three pages of a
listing. Each further window is twice as long, because on a file system every window costs the
same."""

_NAME = len(LOG_DIRECTORY) + 1
"""The position of the name in the path of a log file."""


@dataclass(frozen=True, slots=True)
class Listing:
    """The usable files of a log, or of a range of its versions.

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
        """The newest version with a commit or a checkpoint; None if there is neither."""
        proven = [files[-1].version for files in (self.commits, self.checkpoints) if files]
        return max(proven, default=None)

    def commits_between(self, first: int, last: int) -> tuple[Commit, ...]:
        """The commits of a range of versions, as far as they exist.

        Args:
            first: the first version.
            last: the last version, inclusive.
        """
        start = bisect_left(self.commits, first, key=_version)
        return self.commits[start : bisect_right(self.commits, last, key=_version)]

    def checksum_of(self, version: int) -> Checksum | None:
        """The version checksum of a version; None if there is none."""
        index = bisect_left(self.checksums, version, key=_version)
        found = self.checksums[index : index + 1]
        return found[0] if found and found[0].version == version else None

    def best_checkpoint(self, version: int | None, excluded: Collection[str]) -> Checkpoint | None:
        """The best checkpoint to rebuild a version from; None if there is none.

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
        """This listing followed by a listing of later versions."""
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
        start: the first version of interest. A compaction belongs to the version that it starts at.
        end: the last version of interest. The listing ends there, which saves requests on stores
            that list in pages.

    Returns:
        The listing; empty if there is no log.

    Raises:
        StorageError: the store failed.
    """
    return listing_of(list_names(storage, start=start, end=end))


class BackwardListing:
    """A listing that extends backwards from a version, window by window, on demand.

    No name is listed twice, however many checkpoints prove unreadable. If a store can't start a
    listing in the middle, the log is listed at once.

    Args:
        storage: the table's storage.
        version: the last version of interest.
        excluded: paths of checkpoints that proved unreadable.
    """

    def __init__(self, storage: Storage, version: int, *, excluded: Collection[str] = ()) -> None:
        self._storage = storage
        self._version = version
        self._end = version
        self._length = _WINDOW if storage.capabilities.start_after else version + 1
        self._listing = Listing((), (), (), ())
        self._complete = False
        self._excluded = frozenset(excluded)

    def exclude(self, path: str) -> None:
        """Exclude one more checkpoint, which proved unreadable.

        Args:
            path: the path of the checkpoint.
        """
        # Usually it is the last checkpoint. There may be thousands, so don't search all of them
        # again.
        checkpoints = self._listing.checkpoints
        if checkpoints and checkpoints[-1].path == path:
            self._listing = replace(self._listing, checkpoints=checkpoints[:-1])
        else:
            self._excluded |= {path}
            self._listing = self._without_excluded(self._listing)

    def to_checkpoint(self) -> Listing:
        """List back to the newest checkpoint that isn't excluded.

        The search also ends when a window lacks its last version, because then the version can't be
        rebuilt.

        Raises:
            StorageError: the store failed.
        """
        while not self._complete and self._listing.best_checkpoint(self._version, ()) is None:
            start = max(0, self._end - self._length + 1)
            window = list_log(self._storage, start=start, end=self._end)
            self._listing = self._without_excluded(window).before(self._listing)
            self._complete = start == 0 or window.latest != self._end
            self._end, self._length = start - 1, 2 * self._length
        return self._listing

    def _without_excluded(self, listing: Listing) -> Listing:
        if not self._excluded:
            return listing
        kept = tuple(c for c in listing.checkpoints if c.path not in self._excluded)
        return replace(listing, checkpoints=kept)


def list_backwards(storage: Storage, version: int, *, excluded: Collection[str]) -> Listing:
    """List backwards from a version until there is a checkpoint; see `BackwardListing`.

    Args:
        storage: the table's storage.
        version: the last version of interest.
        excluded: paths of checkpoints that proved unreadable.

    Raises:
        StorageError: the store failed.
    """
    return BackwardListing(storage, version, excluded=excluded).to_checkpoint()


def list_names(storage: Storage, *, start: int = 0, end: int | None = None) -> Iterator[FileInfo]:
    """The files whose names begin with a version, and others that sort between them.

    Args:
        storage: the table's storage.
        start: see `list_log`.
        end: see `list_log`.
    """
    # The prefix of a version sorts before all its names. Version 0 needs no prefix.
    start_after = version_prefix(start) if start else ""
    past_end = None if end is None else f"{LOG_DIRECTORY}/{version_prefix(end + 1)}"
    for info in storage.list(LOG_DIRECTORY, start_after=start_after):
        # All names of a log begin with a digit, so there is none after the digits.
        if info.path[_NAME : _NAME + 1] > "9":
            break
        if past_end is not None and info.path >= past_end:
            break
        yield info


def listing_of(files: Iterable[FileInfo]) -> Listing:
    """Parse files of the log directory, in the order of their names; others are skipped."""
    commits: list[Commit] = []
    checkpoints: list[Checkpoint] = []
    parts: defaultdict[tuple[int, int], list[CheckpointPart]] = defaultdict(list)
    compactions: list[CompactedCommits] = []
    checksums: list[Checksum] = []
    for info in files:
        match parse_log_file(info):
            case Commit() as commit:
                # Also one of zero bytes, which must be an error, not the end of the log.
                commits.append(commit)
            case Checksum() as checksum:
                checksums.append(checksum)
            case _ if info.size == 0:
                # Its writer has died.
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
    """The complete sets of parts. Listed names are unique, so counting is enough."""
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
