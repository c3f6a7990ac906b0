"""The names of the files in a Delta log, parsed into a closed set of frozen types.

=========================================  ==============================================
``<v>.json``                               `Commit`: the actions of version ``v``
``<v>.checkpoint.parquet``                 `ClassicCheckpoint`
``<v>.checkpoint.<part>.<parts>.parquet``  `CheckpointPart`; all of them: `MultipartCheckpoint`
``<v>.checkpoint.<uuid>.json|parquet``     `V2Checkpoint`
``<x>.<y>.compacted.json``                 `CompactedCommits`: versions ``x`` to ``y``
``<v>.crc``                                `Checksum`: totals of version ``v``
``_commits/<v>.<uuid>.json``               `UnbackfilledCommit`: only its commit owner knows it
=========================================  ==============================================

Names are parsed strictly: a version has exactly 20 digits, a part number 10, a UUID 36 characters.
Anything else in the directory (temporary files, files of editors and of other engines,
subdirectories) isn't part of the log, and `parse_log_file` returns None for it.

Spec: PROTOCOL.md, "Delta Log Entries", "Checkpoints", "Log Compaction Files"; RFC managed-commits,
"Commit Files".
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from airflow_delta.engine.storage.base import FileInfo

__all__ = [
    "COMMITS_DIRECTORY",
    "LAST_CHECKPOINT_PATH",
    "LOG_DIRECTORY",
    "MAX_VERSION",
    "SIDECAR_DIRECTORY",
    "Checkpoint",
    "CheckpointPart",
    "Checksum",
    "ClassicCheckpoint",
    "Commit",
    "CompactedCommits",
    "LogCommit",
    "LogFile",
    "MultipartCheckpoint",
    "UnbackfilledCommit",
    "V2Checkpoint",
    "checkpoint_path",
    "checkpoint_rank",
    "checksum_path",
    "commit_path",
    "commit_version",
    "compacted_path",
    "parse_log_file",
    "sidecar_path",
    "unbackfilled_commit_path",
    "v2_checkpoint_path",
    "version_prefix",
]

LOG_DIRECTORY = "_delta_log"
COMMITS_DIRECTORY = f"{LOG_DIRECTORY}/_commits"
SIDECAR_DIRECTORY = f"{LOG_DIRECTORY}/_sidecars"
LAST_CHECKPOINT_PATH = f"{LOG_DIRECTORY}/_last_checkpoint"

MAX_VERSION = 2**63 - 1
"""Versions are signed 64-bit numbers, although 20 digits have room for more."""

_DIGITS = 20


@dataclass(frozen=True, slots=True)
class Commit:
    """``<version>.json``: the actions that turn one version into the next.

    Attributes:
        version: the version that it creates.
        path: its path below the table's root.
        size: its size in bytes; 0 if its writer died while writing.
        modified_ms: its modification time in epoch ms. It is the commit's time in tables without
            in-commit timestamps.
    """

    version: int
    path: str
    size: int
    modified_ms: int


@dataclass(frozen=True, slots=True)
class UnbackfilledCommit:
    """``_commits/<version>.<uuid>.json``: a proposed commit; only the commit owner knows its fate.

    Attributes:
        version: the version that it is proposed for.
        uuid: distinguishes the proposals for that version.
        path: its path below the table's root.
        size: its size in bytes; of a ratified commit, the size that its owner has recorded.
        modified_ms: its modification time in epoch ms, which has no meaning.
        crc32: the CRC-32 of its content, as its owner has recorded it; None if it hasn't.
    """

    version: int
    uuid: str
    path: str
    size: int
    modified_ms: int
    # The name alone identifies the commit.
    crc32: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class ClassicCheckpoint:
    """``<version>.checkpoint.parquet``: a checkpoint in one file, of the V1 or the V2 spec."""

    version: int
    path: str
    size: int
    modified_ms: int

    @property
    def files(self) -> tuple[FileInfo, ...]:
        """The one file."""
        return (FileInfo(self.path, self.size, self.modified_ms),)


@dataclass(frozen=True, slots=True)
class CheckpointPart:
    """``<version>.checkpoint.<part>.<parts>.parquet``: one part; readers need all parts."""

    version: int
    part: int
    parts: int
    path: str
    size: int
    modified_ms: int


@dataclass(frozen=True, slots=True)
class MultipartCheckpoint:
    """A complete set of `CheckpointPart` files, in the order of their numbers."""

    version: int
    parts: tuple[FileInfo, ...]

    @property
    def path(self) -> str:
        """The path of the first part, which stands for the whole set."""
        return self.parts[0].path

    @property
    def size(self) -> int:
        """The total size of the parts in bytes."""
        return sum(part.size for part in self.parts)

    @property
    def modified_ms(self) -> int:
        """The time at which the last part was written, in epoch ms."""
        return max(part.modified_ms for part in self.parts)

    @property
    def files(self) -> tuple[FileInfo, ...]:
        """The parts."""
        return self.parts


@dataclass(frozen=True, slots=True)
class V2Checkpoint:
    """``<version>.checkpoint.<uuid>.<format>``: a V2 checkpoint, which may point to sidecars."""

    version: int
    uuid: str
    format: Literal["json", "parquet"]
    path: str
    size: int
    modified_ms: int

    @property
    def files(self) -> tuple[FileInfo, ...]:
        """The one file. Sidecars are listed inside it."""
        return (FileInfo(self.path, self.size, self.modified_ms),)


@dataclass(frozen=True, slots=True)
class CompactedCommits:
    """``<start>.<end>.compacted.json``: commits ``start`` to ``end``, reconciled to one file."""

    start: int
    end: int
    path: str
    size: int
    modified_ms: int


@dataclass(frozen=True, slots=True)
class Checksum:
    """``<version>.crc``: totals of a version, for readers to check their result against."""

    version: int
    path: str
    size: int
    modified_ms: int


LogCommit: TypeAlias = Commit | UnbackfilledCommit
Checkpoint: TypeAlias = ClassicCheckpoint | MultipartCheckpoint | V2Checkpoint
LogFile: TypeAlias = (
    Commit
    | UnbackfilledCommit
    | ClassicCheckpoint
    | CheckpointPart
    | V2Checkpoint
    | CompactedCommits
    | Checksum
)

_PREFIX = f"{LOG_DIRECTORY}/"
_COMMITS_PREFIX = f"{COMMITS_DIRECTORY}/"
_VERSION = slice(len(_PREFIX), len(_PREFIX) + _DIGITS)
"""The position of the version in the path of a log file."""

_UUID = r"(?P<uuid>[0-9a-fA-F-]{36})"
# The part of the rarer names after the version. Not \d, which also matches digits of other scripts.
_RARE = re.compile(
    rf"\.checkpoint\.(?P<part>[0-9]{{10}})\.(?P<parts>[0-9]{{10}})\.parquet"
    rf"|\.checkpoint\.{_UUID}\.(?P<format>json|parquet)"
    r"|\.(?P<end>[0-9]{20})\.compacted\.json"
)
_UNBACKFILLED = re.compile(rf"\.{_UUID}\.json")


def parse_log_file(info: FileInfo) -> LogFile | None:
    """Parse the name of a file; None if the file isn't part of the log.

    Args:
        info: a file with its path below the table's root, as a storage lists it.
    """
    path = info.path
    if not path.startswith(_PREFIX):
        return None
    version = _parse_version(path[_VERSION])
    if version is None:
        return _parse_unbackfilled(info) if path.startswith(_COMMITS_PREFIX) else None
    # Nearly all names have one of these three suffixes; a log can have a hundred thousand names.
    suffix = path[_VERSION.stop :]
    if suffix == ".json":
        return Commit(version, path, info.size, info.modified_ms)
    if suffix == ".crc":
        return Checksum(version, path, info.size, info.modified_ms)
    if suffix == ".checkpoint.parquet":
        return ClassicCheckpoint(version, path, info.size, info.modified_ms)
    return _parse_rare(info, version, suffix)


def commit_version(path: str) -> int | None:
    """The version of a commit from its path; None if the file is no commit in the log itself.

    For scans over all commits of a log, which would waste an object for each. Un-backfilled commits
    give None.
    """
    if path[_VERSION.stop :] != ".json" or not path.startswith(_PREFIX):
        return None
    return _parse_version(path[_VERSION])


def _parse_version(digits: str) -> int | None:
    if len(digits) < _DIGITS or not (digits.isascii() and digits.isdigit()):
        return None
    version = int(digits)
    return version if version <= MAX_VERSION else None


def _parse_rare(info: FileInfo, version: int, suffix: str) -> LogFile | None:
    match = _RARE.fullmatch(suffix)
    if match is None:
        return None
    if match["uuid"]:
        file_format: Literal["json", "parquet"] = "json" if match["format"] == "json" else "parquet"
        return V2Checkpoint(
            version, match["uuid"], file_format, info.path, info.size, info.modified_ms
        )
    if match["end"]:
        end = int(match["end"])
        if not version <= end <= MAX_VERSION:
            return None
        return CompactedCommits(version, end, info.path, info.size, info.modified_ms)
    part, parts = int(match["part"]), int(match["parts"])
    if not 1 <= part <= parts:
        return None
    return CheckpointPart(version, part, parts, info.path, info.size, info.modified_ms)


def _parse_unbackfilled(info: FileInfo) -> UnbackfilledCommit | None:
    name = info.path[len(_COMMITS_PREFIX) :]
    version = _parse_version(name[:_DIGITS])
    match = _UNBACKFILLED.fullmatch(name[_DIGITS:])
    if version is None or match is None:
        return None
    return UnbackfilledCommit(version, match["uuid"], info.path, info.size, info.modified_ms)


def checkpoint_rank(checkpoint: Checkpoint) -> tuple[int, int, int, str]:
    """A sort key for checkpoints: the greatest one is the one to read.

    A newer version wins. Of one version, V2 beats multi-part, which beats classic; more parts beat
    fewer; then the greater name wins, so that every reader makes the same choice.
    """
    match checkpoint:
        case ClassicCheckpoint():
            return checkpoint.version, 0, 1, checkpoint.path
        case MultipartCheckpoint():
            return checkpoint.version, 1, len(checkpoint.parts), checkpoint.path
        case V2Checkpoint():
            return checkpoint.version, 2, 1, checkpoint.path


def version_prefix(version: int) -> str:
    """A version as names begin with it: 20 digits, zero-padded.

    It sorts before every name of its version (``compacted``, ``checkpoint``, ``crc``, ``json``), so
    a listing that starts after it includes all of them.
    """
    return f"{version:0{_DIGITS}d}"


def commit_path(version: int) -> str:
    """The path of a commit: ``_delta_log/<version>.json``."""
    return f"{_PREFIX}{version_prefix(version)}.json"


def unbackfilled_commit_path(version: int, uuid: str) -> str:
    """The path of an un-backfilled commit: ``_delta_log/_commits/<version>.<uuid>.json``."""
    return f"{_COMMITS_PREFIX}{version_prefix(version)}.{uuid}.json"


def checkpoint_path(version: int) -> str:
    """The path of a classic checkpoint: ``_delta_log/<version>.checkpoint.parquet``."""
    return f"{_PREFIX}{version_prefix(version)}.checkpoint.parquet"


def v2_checkpoint_path(version: int, uuid: str, file_format: Literal["json", "parquet"]) -> str:
    """The path of a V2 checkpoint: ``_delta_log/<version>.checkpoint.<uuid>.<format>``."""
    return f"{_PREFIX}{version_prefix(version)}.checkpoint.{uuid}.{file_format}"


def sidecar_path(name: str) -> str:
    """The path of a sidecar, which V2 checkpoints refer to by its file name."""
    return f"{SIDECAR_DIRECTORY}/{name}"


def compacted_path(start: int, end: int) -> str:
    """The path of a log compaction: ``_delta_log/<start>.<end>.compacted.json``."""
    return f"{_PREFIX}{version_prefix(start)}.{version_prefix(end)}.compacted.json"


def checksum_path(version: int) -> str:
    """The path of a version checksum: ``_delta_log/<version>.crc``."""
    return f"{_PREFIX}{version_prefix(version)}.crc"
