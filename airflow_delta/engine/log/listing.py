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

    def commits_between(self, first: int, last: int) -> tuple[Commit, ...]:
        """The commits of a range of versions, as far as they are there.

        Args:
            first: the first version.
            last: the last version, which counts too.
        """
        start = bisect_left(self.commits, first, key=_version)
        return self.commits[start : bisect_right(self.commits, last, key=_version)]

    def checksum_of(self, version: int) -> Checksum | None:
        """The version checksum of a version, None where there is none."""
        place = bisect_left(self.checksums, version, key=_version)
        found = self.checksums[place : place + 1]
        return found[0] if found and found[0].version == version else None

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


class BackwardListing:
    """A listing from a version backwards, window by window, as far as somebody has looked.

    No name is listed twice, however many checkpoints turn out to be unreadable. A store that can't begin
    in the middle is listed at once.

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
        """Pass over one more checkpoint, which proved unreadable.

        Args:
            path: of the checkpoint.
        """
        # The usual case is the last one, and there may be thousands: nothing goes over all of them again.
        checkpoints = self._listing.checkpoints
        if checkpoints and checkpoints[-1].path == path:
            self._listing = replace(self._listing, checkpoints=checkpoints[:-1])
        else:
            self._excluded |= {path}
            self._listing = self._without_excluded(self._listing)

    def to_checkpoint(self) -> Listing:
        """The listing without the excluded checkpoints, back to one that isn't among them.

        Or until it is clear that the version can't be rebuilt: a window must hold its last version.

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
    """List from a version backwards until there is a checkpoint; see `BackwardListing`.

    Args:
        storage: the table's storage.
        version: the last version of interest.
        excluded: paths of checkpoints that proved unreadable.

    Raises:
        StorageError: the store failed.
    """
    return BackwardListing(storage, version, excluded=excluded).to_checkpoint()


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
