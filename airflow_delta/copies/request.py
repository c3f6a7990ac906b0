"""The request to make a copy, and the checks of what a copy may replace.

A copy records what it is a copy of: in its marker (`marker`), and a Delta copy also in each commit,
as a transaction identifier (`source`), which can't be separated from the commit. The identifier
shows two things:

* **What the target is a copy of.** A copy replaces only an earlier copy of the same table; see
  `airflow_delta.spark.copy.copies`.
* **Which version a commit has copied.** A retry finds the commit of an earlier try by the identity
  of its task, and compares this version with its own (`load_earlier_copy`).

The marker of a Delta copy is written after the commit. If a run is killed in between, its retry writes it.

No PySpark here: the operator makes these checks before it starts Spark, which takes seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from airflow_delta.copies.formats import DELTA
from airflow_delta.copies.marker import MARKER, CopyMarker, read_marker, write_marker
from airflow_delta.engine.clock import now_ms
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
    "check_held_version",
    "check_location",
    "load_earlier_copy",
    "load_target_marker",
    "mark_delta_copy",
    "now_ms",
    "refusal",
]


LONGEST_EXPIRY_MS = 365_000 * 86_400_000
"""A thousand years, in ms: a copy's time plus its expiry must be a valid date."""


@dataclass(frozen=True, slots=True)
class CopyRequest:
    """A copy to be made.

    Attributes:
        table_uri: the table.
        version: the version to be copied.
        target_uri: the location of the copy.
        format: one of `airflow_delta.copies.formats.FORMATS`.
        txn: for a Delta copy, application id and version by which a retry finds its commit.
        replace_newer: whether to replace a copy of a later version.
        expire_after_ms: the age at which the copy expires, in ms, up to `LONGEST_EXPIRY_MS`; None: never.

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
        """The time from which the copy may be deleted, in epoch ms; None: never.

        Args:
            made_at_ms: when it was made, in epoch ms.
        """
        return None if self.expire_after_ms is None else made_at_ms + self.expire_after_ms


@dataclass(frozen=True, slots=True)
class CopyResult:
    """A copy that was made, by this call or by an earlier try.

    Attributes:
        num_rows: the number of rows; None if the statistics of a Delta copy don't contain it.
        num_files: the number of files.
        committed_version: for a Delta copy, the version of the target that is the copy.
        expires_at_ms: when it may be deleted, in epoch ms; None: never.
    """

    num_rows: int | None
    num_files: int
    committed_version: int | None = None
    expires_at_ms: int | None = None


def load_earlier_copy(
    request: CopyRequest, source: CopySource, target: DeltaTable, commit: int
) -> Snapshot | None:
    """Load the target at a commit, if that commit has made the requested copy.

    Args:
        request: the copy.
        source: the version to be copied.
        target: the target table.
        commit: the version of the target that has the request's transaction identifier.

    Returns:
        None if the commit has copied another version or table. Also None if its version can't be loaded
        any more, after a cleanup or damage before the newest checkpoint: then nobody knows what it copied.

    Raises:
        DeltaError: the target, or the table, can't be read.
    """
    try:
        snapshot = target.snapshot(commit)
    except (VersionNotFoundError, CorruptLogError):
        return None
    return snapshot if source.version_at(snapshot) == request.version else None


def check_delta_target(request: CopyRequest, source: CopySource, held: Snapshot) -> None:
    """Check that a copy may replace the content of a Delta table.

    Args:
        request: the copy.
        source: the version to be copied.
        held: the target as it is.

    Raises:
        InvalidArgumentError: the target isn't a copy of the source, or nobody can know any more, or it is a
            newer copy that hasn't expired. Facts: target.
        StorageError: the store failed.
    """
    marker = load_target_marker(request, held.storage)
    version = source.version_at(held)
    if version is None and (unknown := source.unknown_version(held)) is not None:
        raise _refusal_of_unknown(request, unknown)
    expired = (
        marker is not None
        and source.had_id(marker.table_id, marker.version) is True
        and marker.is_of(held.metadata.id, held.version)
        and marker.has_expired(now_ms())
    )
    if version is None or not expired:
        check_held_version(request, version)


def check_location(
    request: CopyRequest,
    source: CopySource,
    target: Storage,
    *,
    is_leftover: Callable[[str], bool] = lambda _: False,
) -> None:
    """Check that a copy may be made at a location without a Delta table.

    Args:
        request: the copy.
        source: the version to be copied.
        target: the storage of the location.
        is_leftover: whether a path is that of a file left by a killed copy.

    Raises:
        InvalidArgumentError: there is something that a copy may not replace. Facts: target.
        StorageError: the store failed.
    """
    marker = load_target_marker(request, target)
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
        check_held_version(request, marker.version if ours else None)


def check_held_version(request: CopyRequest, version: int | None) -> None:
    """Check the version that the target is a copy of; None if it isn't a copy of the source.

    Raises:
        InvalidArgumentError: it isn't one, or it is newer and ``replace_newer`` isn't set. Facts: target.
    """
    if version is None:
        raise refusal(request, "it holds no copy of this table")
    if version > request.version and not request.replace_newer:
        raise refusal(
            request,
            f"it holds a copy of version {version}, which is newer than version {request.version} "
            "(set replace_newer to replace it)",
        )


def load_target_marker(request: CopyRequest, target: Storage) -> CopyMarker | None:
    """Read the marker of a target; None if there is none.

    Raises:
        InvalidArgumentError: it can't be parsed. Facts: target.
        StorageError: the store failed.
    """
    try:
        return read_marker(target)
    except InvalidArgumentError as error:
        raise refusal(request, f"its {MARKER} can't be read") from error


def mark_delta_copy(
    request: CopyRequest, source: CopySource, copy: Snapshot, held: CopyMarker | None
) -> CopyMarker:
    """Write the marker of a Delta copy, unless a later copy has written one.

    Args:
        request: the copy.
        source: the version that was copied.
        copy: the version of the target that is the copy.
        held: the existing marker, as returned by `CopyWatch.check`.

    Returns:
        The marker of this copy. If there is a later copy, this one expires with it: they are one table.

    Raises:
        StorageError: the store failed.
    """
    storage, table_id = copy.storage, copy.metadata.id
    if held is not None and held.is_of(table_id, copy.version):
        return held
    try:
        made_at_ms = copy.timestamp_ms
    except VersionNotFoundError:
        # The commit was cleaned up, so its time is unknown.
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
    """Create the error that says why a target isn't replaced, and what to do."""
    return InvalidArgumentError(
        f"the target {request.target_uri} isn't replaced: {reason}; empty it, or choose another",
        table=request.table_uri,
        target=request.target_uri,
    )


def _refusal_of_unknown(request: CopyRequest, version: int) -> InvalidArgumentError:
    return refusal(
        request,
        "nobody can know any more whether it holds a copy of this table: the copy is of a version "
        f"{version}, at which its table had another id than this one has now, and version {version} of "
        "this table is gone after a cleanup or damage",
    )
