"""The rules of copies: what is asked for, what marks a copy, and what a copy may take the place of.

A Delta copy is marked by a transaction identifier in each of its commits: `copy_app_id` of the
source's table id, whose version is the source's version. The mark says two things:

* **What the target is a copy of.** A copy replaces an earlier copy of the same table, and nothing
  else; see `airflow_delta.spark.copies`.
* **What a commit has copied.** A retry finds the commit of an earlier try by the identity of its
  task. That identity stays when the task is cleared and runs again with another version of the
  source: without the mark the old copy would pass for the new one.

A Delta copy keeps the columns and the partition columns that it began with. Once the source has
others (a column was added, a type widened, the table partitioned anew) a copy at the same target is
refused; copy to another target, or empty this one. Parquet copies follow any schema.

No PySpark here: whoever submits a copy looks at the target first, because starting Spark takes
seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_delta.engine.errors import CorruptLogError, InvalidArgumentError, VersionNotFoundError
from airflow_delta.spark.nullable import nullable

if TYPE_CHECKING:
    from airflow_delta.engine import DeltaTable, Snapshot

__all__ = [
    "FORMATS",
    "CopyRequest",
    "check_delta_target",
    "check_format",
    "check_held",
    "copied_by",
    "copy_app_id",
    "refusal",
]

FORMATS = ("parquet", "delta")
"""What a copy can be."""


@dataclass(frozen=True, slots=True)
class CopyRequest:
    """A copy to be made.

    Attributes:
        table_uri: the table.
        version: its version.
        target_uri: where the copy goes.
        format: one of `FORMATS`.
        txn: application id and version of a Delta copy, by which a retry finds its commit.
        replace_newer: whether to replace a copy of a later version, too.
    """

    table_uri: str
    version: int
    target_uri: str
    format: str = "parquet"
    txn: tuple[str, int] | None = None
    replace_newer: bool = False


def check_format(name: str) -> None:
    """Check that copies of a format can be made.

    Raises:
        InvalidArgumentError: they can't.
    """
    if name not in FORMATS:
        raise InvalidArgumentError(
            f"unknown format {name!r} of a copy: expected one of {', '.join(FORMATS)}"
        )


def copy_app_id(table_id: str) -> str:
    """The application id that marks a Delta copy of a table, whose id this is."""
    return f"airflow-delta:copy-of:{table_id}"


def copied_by(
    request: CopyRequest, source: Snapshot, target: DeltaTable, commit: int
) -> Snapshot | None:
    """The target at a commit, if that commit has made the very copy that is asked for.

    Args:
        request: the copy.
        source: the version to be copied.
        target: the table that the copy goes to.
        commit: a version of it, found by the request's transaction identifier.

    Returns:
        None where the commit has copied another version or table, or where its version can't be
        rebuilt any more, because cleanup or damage below the newest checkpoint has taken commits:
        then nobody can tell what it has copied.

    Raises:
        DeltaError: the target can't be read.
    """
    try:
        snapshot = target.snapshot(commit)
    except (VersionNotFoundError, CorruptLogError):
        return None
    return snapshot if _held_version(source, snapshot) == request.version else None


def check_delta_target(request: CopyRequest, source: Snapshot, held: Snapshot) -> None:
    """Check that a copy may take the place of what a Delta table holds.

    Args:
        request: the copy.
        source: the version to be copied.
        held: the target as it is.

    Raises:
        InvalidArgumentError: the target is no copy of the source, a newer one, or one of other
            columns or partition columns. Facts: target.
    """
    check_held(request, _held_version(source, held))
    wanted = {field.name: field.data_type for field in nullable(source.schema)}
    kept = {field.name: field.data_type for field in nullable(held.schema)}
    differences = {
        "lacks": [name for name in wanted if name not in kept],
        "has in excess": [name for name in kept if name not in wanted],
        "has with another type": [
            name for name in wanted if name in kept and wanted[name] != kept[name]
        ],
    }
    told = [f"{what} {names}" for what, names in differences.items() if names]
    partitions = source.metadata.partition_columns, held.metadata.partition_columns
    if partitions[0] != partitions[1]:
        told.append(f"is partitioned by {list(partitions[1])} instead of {list(partitions[0])}")
    if told:
        raise refusal(
            request,
            f"compared with version {request.version} of the source it {' and '.join(told)}, and a "
            "Delta copy keeps the columns and partition columns that it began with, while a parquet "
            "copy follows any",
        )


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


def refusal(request: CopyRequest, reason: str) -> InvalidArgumentError:
    """The error that says why a target stays as it is, and what to do."""
    return InvalidArgumentError(
        f"the target {request.target_uri} isn't replaced: {reason}; empty it, or choose another",
        table=request.table_uri,
        target=request.target_uri,
    )


def _held_version(source: Snapshot, held: Snapshot) -> int | None:
    mark = held.transactions.get(copy_app_id(source.metadata.id))
    return None if mark is None else mark.version
