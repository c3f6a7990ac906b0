"""Find the files of a log that are deleted if the log begins at a later version.

PROTOCOL.md and RFC managed-commits, "Metadata Cleanup", step 3. ``start`` is the version of the checkpoint
that the log begins with afterwards:

=============================================  =======================================================
deleted                                        which
=============================================  =======================================================
commits, version checksums                     below ``start``; those of ``start`` stay, since a
                                               checkpoint has no in-commit timestamp
compactions                                    that begin at ``start`` or below
checkpoints, also incomplete ones              below ``start``, unless they are protected
un-backfilled commits                          up to ``start``
Hadoop's checksums (``.<name>.crc``)           of the files above, whether these exist or not
=============================================  =======================================================

`scan_old_log` lists the log once. A log may have a hundred thousand commits and checksums, so only their
versions and sizes are kept, as numbers; their names follow from the versions.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, overload

from airflow_delta.engine.log.files import (
    COMMITS_DIRECTORY,
    LOG_DIRECTORY,
    Checkpoint,
    Checksum,
    Commit,
    CompactedCommits,
    LogFile,
    UnbackfilledCommit,
    checksum_path,
    commit_path,
    commit_version,
    parse_log_file,
    version_prefix,
)
from airflow_delta.engine.log.listing import list_names, listing_of
from airflow_delta.engine.storage.base import FileInfo, Storage

__all__ = [
    "FileGroup",
    "FilesByVersion",
    "Kind",
    "OldLog",
    "ProposedCommits",
    "find_hadoop_checksums",
    "list_checkpoints",
    "scan_old_log",
]

Kind = Literal[
    "commits",
    "checksums",
    "compactions",
    "checkpoints",
    "un-backfilled commits",
    "sidecars",
    "files in the making",
    "Hadoop checksums",
]
"""The kinds of files of a log."""


@dataclass(frozen=True, slots=True)
class FilesByVersion(Sequence[str]):
    """The paths of files of one kind, whose names follow from their versions.

    Attributes:
        versions: ascending.
        sizes: of each file, in bytes.
        name: returns the path of a version's file.
    """

    versions: array[int]
    sizes: array[int]
    name: Callable[[int], str]

    def __len__(self) -> int:
        return len(self.versions)

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> FilesByVersion: ...

    def __getitem__(self, index: int | slice) -> str | FilesByVersion:
        if isinstance(index, slice):
            return FilesByVersion(self.versions[index], self.sizes[index], self.name)
        return self.name(self.versions[index])

    def below(self, version: int) -> FilesByVersion:
        """Return the files of lower versions."""
        return self[: bisect_left(self.versions, version)]


@dataclass(frozen=True, slots=True)
class FileGroup:
    """Files of one kind that are to be deleted.

    Attributes:
        kind: what they are.
        paths: below the table's root, ascending by version where they have one.
        size_in_bytes: the sum of their sizes.
        first_version: the lowest version among them; None where they have none.
        last_version: the highest one.
    """

    kind: Kind
    paths: Sequence[str]
    size_in_bytes: int
    first_version: int | None = None
    last_version: int | None = None

    @classmethod
    def of(cls, kind: Kind, files: Iterable[tuple[int | None, FileInfo]]) -> FileGroup:
        """Make a group of files, each given with its version."""
        found = sorted(files, key=lambda file: (file[0] or 0, file[1].path))
        versions = [version for version, _ in found if version is not None]
        return cls(
            kind,
            tuple(info.path for _, info in found),
            sum(info.size for _, info in found),
            min(versions, default=None),
            max(versions, default=None),
        )

    @classmethod
    def by_version(cls, kind: Kind, files: FilesByVersion) -> FileGroup:
        """Make a group of files whose names follow from their versions."""
        first, last = (files.versions[0], files.versions[-1]) if files else (None, None)
        return cls(kind, files, sum(files.sizes), first, last)

    @property
    def count(self) -> int:
        """The number of files."""
        return len(self.paths)


@dataclass(frozen=True, slots=True)
class OldLog:
    """The files of a log up to a version.

    Attributes:
        commits: those whose files exist.
        checksums: likewise.
        compactions: by the version that they begin at.
        checkpoint_files: every file of every checkpoint, complete or not, with its version.
        checkpoints: the complete ones, by the names and sizes of their files.
        hidden: files whose names begin with a dot.
    """

    commits: FilesByVersion
    checksums: FilesByVersion
    compactions: tuple[tuple[int, FileInfo], ...]
    checkpoint_files: tuple[tuple[int, FileInfo], ...]
    checkpoints: tuple[Checkpoint, ...]
    hidden: tuple[FileInfo, ...]

    def groups(self, start: int, *, keeps_checkpoints: bool = False) -> tuple[FileGroup, ...]:
        """Group the files to delete if the log begins at a version, in the order of deletion.

        Commits come first. So, as long as a commit exists that readers with fewer features must not see,
        the checkpoint that hides it exists too (RFC checkpoint-protection, rule d).

        Args:
            start: the version.
            keeps_checkpoints: whether checkpoints stay.
        """
        checkpoints = () if keeps_checkpoints else self.checkpoint_files
        found = (
            FileGroup.by_version("commits", self.commits.below(start)),
            FileGroup.by_version("checksums", self.checksums.below(start)),
            FileGroup.of("compactions", (file for file in self.compactions if file[0] <= start)),
            FileGroup.of("checkpoints", (file for file in checkpoints if file[0] < start)),
        )
        return tuple(group for group in found if group.count)

    def begins_below(self, version: int) -> bool:
        """Whether a commit or checkpoint exists below a version."""
        older = any(file_version < version for file_version, _ in self.checkpoint_files[:1])
        return older or any(first < version for first in self.commits.versions[:1])


@dataclass(frozen=True, slots=True)
class ProposedCommits:
    """The files in ``_delta_log/_commits``.

    Attributes:
        commits: un-backfilled commits, ascending by version; several may be of one version.
        hidden: files whose names begin with a dot.
    """

    commits: tuple[UnbackfilledCommit, ...]
    hidden: tuple[FileInfo, ...]

    @classmethod
    def of(cls, storage: Storage) -> ProposedCommits:
        """List the files of ``_delta_log/_commits``.

        Raises:
            StorageError: the store failed.
        """
        commits, hidden = [], []
        for info in storage.list(COMMITS_DIRECTORY):
            file = parse_log_file(info)
            if isinstance(file, UnbackfilledCommit):
                commits.append(file)
            elif info.name.startswith("."):
                hidden.append(info)
        return cls(tuple(commits), tuple(hidden))

    def group(self, start: int) -> FileGroup:
        """Group the commits to delete if the log begins at a version.

        RFC managed-commits, "Metadata Cleanup". If such a commit became a version, it was backfilled before
        the checkpoint was written. If not, it never will, because its version is taken. The table need not
        be managed any more.
        """
        old = (
            (file.version, FileInfo(file.path, file.size, file.modified_ms))
            for file in self.commits
            if file.version <= start
        )
        return FileGroup.of("un-backfilled commits", old)


def scan_old_log(storage: Storage, *, end: int) -> OldLog:
    """Collect the files that a log has up to a version, in one listing.

    Args:
        storage: where the table is.
        end: the version.

    Raises:
        StorageError: the store failed.
    """
    commits, checksums = array("q"), array("q")
    commit_sizes, checksum_sizes = array("q"), array("q")
    compactions: list[tuple[int, FileInfo]] = []
    checkpoints: list[tuple[int, FileInfo]] = []
    hidden: list[FileInfo] = []
    past_end = f"{LOG_DIRECTORY}/{version_prefix(end + 1)}"
    for info in storage.list(LOG_DIRECTORY):
        if info.path >= past_end:
            break
        version = commit_version(info.path)
        if version is not None:
            commits.append(version)
            commit_sizes.append(info.size)
            continue
        match parse_log_file(info):
            case Checksum() as checksum:
                checksums.append(checksum.version)
                checksum_sizes.append(info.size)
            case CompactedCommits() as compaction:
                compactions.append((compaction.start, info))
            case None | Commit() | UnbackfilledCommit():
                if info.name.startswith("."):
                    hidden.append(info)
            case checkpoint:
                checkpoints.append((checkpoint.version, info))
    return OldLog(
        FilesByVersion(commits, commit_sizes, commit_path),
        FilesByVersion(checksums, checksum_sizes, checksum_path),
        tuple(compactions),
        tuple(checkpoints),
        listing_of(info for _, info in checkpoints).checkpoints,
        tuple(hidden),
    )


def list_checkpoints(storage: Storage, *, start: int) -> tuple[Checkpoint, ...]:
    """List the complete checkpoints from a version on, ascending by `checkpoint_rank`.

    Args:
        storage: where the table is.
        start: the version.

    Raises:
        StorageError: the store failed.
    """
    names = list_names(storage, start=start)
    return listing_of(info for info in names if ".checkpoint." in info.path).checkpoints


def find_hadoop_checksums(
    hidden: Iterable[FileInfo], start: int, *, keeps_checkpoints: bool = False
) -> FileGroup:
    """Find Hadoop's checksums of files that don't exist any more if the log begins at a version.

    Args:
        hidden: the files in the log's directories whose names begin with a dot.
        start: the version.
        keeps_checkpoints: whether checkpoints stay.
    """
    found = []
    for info in hidden:
        directory, _, name = info.path.rpartition("/")
        if name.endswith(".crc"):
            of = parse_log_file(FileInfo(f"{directory}/{name[1:-4]}", 0, 0))
            if of is not None and _is_expired(of, start, keeps_checkpoints=keeps_checkpoints):
                found.append((_get_version(of), info))
    return FileGroup.of("Hadoop checksums", found)


def _get_version(file: LogFile) -> int:
    return file.start if isinstance(file, CompactedCommits) else file.version


def _is_expired(file: LogFile, start: int, *, keeps_checkpoints: bool) -> bool:
    match file:
        case Commit() | Checksum():
            return file.version < start
        case CompactedCommits():
            return file.start <= start
        case UnbackfilledCommit():
            return file.version <= start
        case _:
            return file.version < start and not keeps_checkpoints
