"""The rules of copies: what is asked for, what marks a copy, and what a copy may take the place of.

A copy says what it is a copy of, in a file (`copy_marker`); and a Delta copy in each of its commits as
well, by a transaction identifier (`copy_source`). That mark can't be parted from what was committed. It
says two things:

* **What the target is a copy of.** A copy replaces an earlier copy of the same table, and nothing
  else; see `airflow_delta.spark.copy.copies`.
* **What a commit has copied.** A retry finds the commit of an earlier try by the identity of its
  task. That identity stays when the task is cleared and runs again with another version of the
  source: without the mark the old copy would pass for the new one.

The file of a Delta copy is written behind the commit. Where a run is killed in between, its retry writes
it.

No PySpark here: whoever submits a copy looks at the target first, because starting Spark takes
seconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from airflow_delta.copies.formats import DELTA
from airflow_delta.copies.marker import MARKER, CopyMarker, read_marker, write_marker
from airflow_delta.engine.errors import CorruptLogError, InvalidArgumentError, VersionNotFoundError

if TYPE_CHECKING:
    from airflow_delta.copies.source import CopySource
    from airflow_delta.engine import DeltaTable, Snapshot
    from airflow_delta.engine.storage.base import Storage

__all__ = [
    "LONGEST_EXPIRY_MS",
    "CopyRequest",
    "CopyResult",
    "check_delta_target",
    "check_held",
    "check_place",
    "copied_by",
    "held_marker",
    "mark_delta_copy",
    "now_ms",
    "refusal",
]


LONGEST_EXPIRY_MS = 365_000 * 86_400_000
"""A thousand years, in ms: what is added to the time of a copy must remain a date."""


@dataclass(frozen=True, slots=True)
class CopyRequest:
    """A copy to be made.

    Attributes:
        table_uri: the table.
        version: its version.
        target_uri: where the copy goes.
        format: one of `copy_formats.FORMATS`.
        txn: application id and version of a Delta copy, by which a retry finds its commit.
        replace_newer: whether to replace a copy of a later version, too.
        expire_after_ms: how old the copy must be to be deleted, in ms, up to `LONGEST_EXPIRY_MS`; None: it
            never is.

    Raises:
        InvalidArgumentError: ``expire_after_ms`` is out of range.
    """

    table_uri: str
    version: int
    target_uri: str
    format: str = "parquet"
    txn: tuple[str, int] | None = None
    replace_newer: bool = False
    expire_after_ms: int | None = None

    def __post_init__(self) -> None:
        if self.expire_after_ms is not None and not 0 <= self.expire_after_ms <= LONGEST_EXPIRY_MS:
            raise InvalidArgumentError(
                f"expire_after_ms: expected 0 to {LONGEST_EXPIRY_MS}, found {self.expire_after_ms}",
                table=self.table_uri,
                target=self.target_uri,
            )

    def expires_at_ms(self, made_at_ms: int) -> int | None:
        """When the copy may be deleted, in epoch ms; None: never.

        Args:
            made_at_ms: when it was made, in epoch ms.
        """
        return None if self.expire_after_ms is None else made_at_ms + self.expire_after_ms


@dataclass(frozen=True, slots=True)
class CopyResult:
    """A copy that was made, by this call or by an earlier try of it.

    Attributes:
        num_rows: how many rows it has; None where the statistics of a Delta copy don't tell.
        num_files: how many files.
        committed_version: of a Delta copy, the version of the target that has the rows.
        expires_at_ms: when it may be deleted, in epoch ms; None: never.
    """

    num_rows: int | None
    num_files: int
    committed_version: int | None = None
    expires_at_ms: int | None = None


def now_ms() -> int:
    """The time by which copies are made and expire, in epoch ms."""
    return time.time_ns() // 1_000_000


def copied_by(
    request: CopyRequest, source: CopySource, target: DeltaTable, commit: int
) -> Snapshot | None:
    """The target at a commit, if that commit has made the very copy that is asked for.

    Args:
        request: the copy.
        source: what is to be copied.
        target: the table that the copy goes to.
        commit: a version of it, found by the request's transaction identifier.

    Returns:
        None where the commit has copied another version or table, or where its version can't be
        rebuilt any more, because cleanup or damage below the newest checkpoint has taken commits:
        then nobody can tell what it has copied.

    Raises:
        DeltaError: the target, or the table, can't be read.
    """
    try:
        snapshot = target.snapshot(commit)
    except (VersionNotFoundError, CorruptLogError):
        return None
    return snapshot if source.version_at(snapshot) == request.version else None


def check_delta_target(request: CopyRequest, source: CopySource, held: Snapshot) -> None:
    """Check that a copy may take the place of what a Delta table holds, as far as its marks tell.

    Args:
        request: the copy.
        source: what is to be copied.
        held: the target as it is.

    Raises:
        InvalidArgumentError: the target is no copy of the source, or one of which that can't be told any
            more, or a newer one that hasn't expired. Facts: target.
        StorageError: the store failed.
    """
    marker = held_marker(request, held.storage)
    version = source.version_at(held)
    if version is None and (unknown := source.unknown_version(held)) is not None:
        raise _refusal_of_unknown(request, unknown)
    expired = (
        marker is not None
        and source.was(marker.table_id, marker.version)
        and marker.is_of(held.metadata.id, held.version)
        and marker.has_expired(now_ms())
    )
    if version is None or not expired:
        check_held(request, version)


def check_place(
    request: CopyRequest,
    source: CopySource,
    target: Storage,
    *,
    is_leftover: Callable[[str], bool] = lambda _: False,
) -> None:
    """Check that a copy may take a place where there is no Delta table.

    Args:
        request: the copy.
        source: what is to be copied.
        target: the place.
        is_leftover: whether a path is that of a file which a copy that was killed has left.

    Raises:
        InvalidArgumentError: something is there that must stay. Facts: target.
        StorageError: the store failed.
    """
    marker = held_marker(request, target)
    if marker is None:
        for info in target.walk(""):
            if not is_leftover(info.path):
                raise refusal(request, f"it holds {info.path}, which no earlier copy has written")
        return
    if (marker.format == DELTA) is not (request.format == DELTA):
        raise refusal(request, f"it holds a copy as {marker.format}, not as {request.format}")
    ours = source.had_id(marker.table_id, marker.version)
    if ours is None:
        raise _refusal_of_unknown(request, marker.version)
    if not (ours and marker.has_expired(now_ms())):
        check_held(request, marker.version if ours else None)


def check_held(request: CopyRequest, version: int | None) -> None:
    """Check the version that the target is a copy of; None where it is no copy of the source.

    Raises:
        InvalidArgumentError: it is none, or a newer one that isn't to be replaced. Facts: target.
    """
    if version is None:
        raise refusal(request, "it holds no copy of this table")
    if version > request.version and not request.replace_newer:
        raise refusal(
            request,
            f"it holds a copy of version {version}, which is newer than version {request.version} "
            "(replace_newer replaces it all the same)",
        )


def held_marker(request: CopyRequest, target: Storage) -> CopyMarker | None:
    """The marker at a target; None where there is none.

    Raises:
        InvalidArgumentError: there is a file of its name which is no marker. Facts: target.
        StorageError: the store failed.
    """
    try:
        return read_marker(target)
    except InvalidArgumentError as error:
        raise refusal(request, f"its {MARKER} can't be read") from error


def mark_delta_copy(
    request: CopyRequest, source: CopySource, copy: Snapshot, held: CopyMarker | None
) -> CopyMarker:
    """Have the file of a Delta copy say what the copy is, where a later copy hasn't one there already.

    Args:
        request: the copy.
        source: the version that was copied.
        copy: the version of the target that is the copy.
        held: the marker that is there, of which `CopyWatch.check` knows that it isn't being deleted.

    Returns:
        The marker of this copy. Where a later copy is there, it expires with that: they are one table.

    Raises:
        StorageError: the store failed.
    """
    storage, table_id = copy.storage, copy.metadata.id
    if held is not None and held.is_of(table_id, copy.version):
        return held
    try:
        made_at_ms = copy.timestamp_ms
    except VersionNotFoundError:
        # The commit is gone: it is as old as can be told.
        made_at_ms = now_ms()
    marker = CopyMarker(
        request.table_uri,
        source.id,
        request.version,
        storage.root,
        DELTA,
        copy.num_rows,
        copy.num_files,
        made_at_ms=made_at_ms,
        expires_at_ms=request.expires_at_ms(made_at_ms),
        target_id=table_id,
        committed_version=copy.version,
    )
    there = held if held is not None and held.target_id == table_id else marker
    if (there.committed_version or 0) > copy.version:
        return replace(marker, expires_at_ms=there.expires_at_ms)
    write_marker(storage, marker)
    return marker


def refusal(request: CopyRequest, reason: str) -> InvalidArgumentError:
    """The error that says why a target stays as it is, and what to do."""
    return InvalidArgumentError(
        f"the target {request.target_uri} isn't replaced: {reason}; empty it, or choose another",
        table=request.table_uri,
        target=request.target_uri,
    )


def _refusal_of_unknown(request: CopyRequest, version: int) -> InvalidArgumentError:
    return refusal(
        request,
        "whether it holds a copy of this table can't be told any more: the copy is of a version "
        f"{version}, at which its table had another id than this one has now, and cleanup, or damage, has "
        f"taken version {version} of this one",
    )
