"""Read the references of a log to files, and partition them by file name.

The references are the files that the table needs, those that commits have removed, and those that old
commits name, by which the vacuum records its progress. Different paths may mean the same file (see the
engine's ``maintenance/vacuum``), but they end with the same name. So a found file and all references to it
are in the partition of its name, where the engine's rules can decide about it.

Before that, the files of the newest version are reconciled by the engine's rules, in partitions by
file key. The driver gets none of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.action_schema import VERSION
from airflow_delta.engine.arrow.python_arrays import array_of
from airflow_delta.engine.errors import ObjectNotFoundError, TableStateError
from airflow_delta.engine.log.files import CompactedCommits
from airflow_delta.engine.maintenance.table_files.deletion_vector_files import (
    locate_deletion_vectors,
)
from airflow_delta.engine.maintenance.table_files.locations import locate_or_decode
from airflow_delta.engine.maintenance.table_files.removals import REMOVE_COLUMNS
from airflow_delta.engine.maintenance.vacuum.aliases import fold_names
from airflow_delta.engine.maintenance.vacuum.lite import list_named_files
from airflow_delta.engine.maintenance.vacuum.references import References, collect_references
from airflow_delta.engine.replay.tombstones import unexpired
from airflow_delta.engine.snapshot.segment_commits import parse_commit_files
from airflow_delta.engine.snapshot.snapshot import Snapshot
from airflow_delta.spark.checkpoint.action_files import reconciled
from airflow_delta.spark.checkpoint.key_shuffle import (
    ByHash,
    Parcel,
    StorageAddress,
    gathered,
    parcels,
    shuffled_actions,
)
from airflow_delta.spark.checkpoint.log_parts import CommitPart, commit_runs, log_parts
from airflow_delta.spark.runtime.executor_errors import errors_for_driver

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext

__all__ = [
    "CLEANED",
    "LIVE",
    "NAMED_FILES",
    "RECENT",
    "REMOVED_FILES",
    "STAYS",
    "log_parcels",
    "parcels_by_name",
    "reference_parcels",
]

LIVE, RECENT = "live", "recent"
"""The kinds of parcels with files of the newest version, and with files removed since the cut-off."""

REMOVED_FILES = "removed"
"""The kind of parcels with files that a commit has removed."""

CLEANED = "cleaned"
"""The kind of parcels that report commits deleted by a cleanup: the version after the last of them."""

NAMED_FILES = "named"
"""The kind of parcels with files that an old commit names: it removed them, or they are its change data."""

STAYS = "stays"
"""The kind of parcels with an old version that names a file which stays, whether it was found or not; or
the first old version, if one of them can't be read."""

_COLUMNS = ("deletionTimestamp",)


def log_parcels(
    context: SparkContext,
    address: StorageAddress,
    snapshot: Snapshot,
    names: ByHash,
    *,
    cutoff_ms: int,
    until: int,
    expired: range,
) -> RDD[tuple[int, Parcel]]:
    """Read the references of the log, partitioned by file name.

    Args:
        context: the Spark context.
        address: the table's address, for tasks.
        snapshot: the newest version.
        names: the partitions.
        cutoff_ms: files removed at this time or later, in epoch ms, are needed.
        until: the last version whose removed files are read.
        expired: the versions that the vacuum's progress is recorded for, whose named files are read.

    Raises:
        CorruptLogError: the top level of the checkpoint is damaged.
        ObjectNotFoundError: it is gone.
        VersionNotFoundError: no version can be rebuilt from the log.
    """
    root, storage = address.root, snapshot.storage
    parts = log_parts(storage, snapshot.segment)
    actions = shuffled_actions(
        context, address, parts, columns=_COLUMNS, partitions=ByHash(max(len(parts), 1))
    )

    def needed(found: Iterable[tuple[int, Parcel]]) -> Iterator[tuple[int, Parcel]]:
        """Collect the files that the reconciled actions of one partition keep."""
        with errors_for_driver():
            adds, removes = reconciled(gathered(found, columns=_COLUMNS), root)
            yield from reference_parcels(LIVE, collect_references([adds], table=root), names)
            young = unexpired(removes, cutoff_ms - 1)
            yield from reference_parcels(RECENT, collect_references([young], table=root), names)

    def removed(given: Iterable[CommitPart]) -> Iterator[tuple[int, Parcel]]:
        """Collect the files that some commits removed."""
        with errors_for_driver():
            for part in given:
                yield from _removed(part, address, names)

    def named(given: Iterable[CommitPart]) -> Iterator[tuple[int, Parcel]]:
        """Collect the files that some old commits name."""
        with errors_for_driver():
            for part in given:
                yield from _named(part, address, names, cutoff_ms=cutoff_ms, first=expired.start)

    first = snapshot.timeline.earliest_recreatable + 1
    # Read apart from these: a checkpoint may cover an old commit, which may then be damaged.
    removes = _runs(context, snapshot, range(first, until + 1)).mapPartitions(removed)
    names_of_old = _runs(context, snapshot, expired).mapPartitions(named)
    return context.union([actions.mapPartitions(needed), removes, names_of_old])


def reference_parcels(kind: str, files: References, names: ByHash) -> Iterator[tuple[int, Parcel]]:
    """Partition references by file name; the kinds are ``<kind> near`` and ``<kind> far``."""
    for distance, texts in (("near", files.near), ("far", files.far)):
        paths = pa.table({"path": texts.cast(pa.string())})
        yield from parcels_by_name(f"{kind} {distance}", paths, names)


def parcels_by_name(kind: str, rows: pa.Table, names: ByHash) -> Iterator[tuple[int, Parcel]]:
    """Partition rows with a column ``path`` by a name that all spellings of a path have in common.

    It is the last segment, case-folded for file systems that ignore case, and decoded until it has no more
    escapes.
    """
    return parcels(kind, rows, fold_names(_plain(rows["path"])), names)


def _plain(paths: pa.ChunkedArray) -> pa.ChunkedArray:
    escaped = pc.match_substring(paths, "%")
    if not pc.any(escaped).as_py():
        return paths
    distinct = pc.unique(paths.filter(escaped))
    # A Python loop, over distinct paths with an escape.
    plain = array_of([_unquoted(path) for path in distinct.to_pylist()], pa.string())
    return pc.coalesce(plain.take(pc.index_in(paths, value_set=distinct)), paths)


def _unquoted(path: str) -> str:
    while (plain := unquote(path)) != path:
        path = plain
    return path


def _runs(context: SparkContext, snapshot: Snapshot, versions: range) -> RDD[CommitPart]:
    """Distribute the commits of some versions, without those that cleanup has deleted."""
    commits = [commit for commit in snapshot.timeline.commits if commit.version in versions]
    runs = list(commit_runs(commits))
    return context.parallelize(runs, max(len(runs), 1))


def _removed(
    part: CommitPart, address: StorageAddress, names: ByHash
) -> Iterator[tuple[int, Parcel]]:
    """The paths of data files and deletion vectors that some commits have removed."""
    root = address.root
    try:
        parsed = parse_commit_files(
            address.open(), part.commits, columns=REMOVE_COLUMNS, table=root
        )
    except ObjectNotFoundError:
        last = part.commits[-1]
        end = last.end if isinstance(last, CompactedCommits) else last.version
        yield 0, (CLEANED, str(end + 1).encode())
        return
    removed = parsed.files.removes
    rows = removed.select([VERSION, "deletionTimestamp"])
    relative, absolute = locate_deletion_vectors(removed["deletionVector"], table=root)
    # The forms in which `restorable` needs the paths.
    found = (
        locate_or_decode(removed["path"], root=root),
        relative,
        locate_or_decode(absolute, root=root),
    )
    for column in found:
        known = pc.is_valid(column)
        yield from parcels_by_name(
            REMOVED_FILES, rows.append_column("path", column).filter(known), names
        )


def _named(
    part: CommitPart, address: StorageAddress, names: ByHash, *, cutoff_ms: int, first: int
) -> Iterator[tuple[int, Parcel]]:
    """The files that some old commits name, as the engine's `find_vacuumed_versions` looks at them."""
    root = address.root
    try:
        parsed = parse_commit_files(
            address.open(), part.commits, columns=REMOVE_COLUMNS, table=root
        )
        named, recent = list_named_files(parsed, cutoff_ms, table=root)
    except (TableStateError, ObjectNotFoundError):
        # Only the record depends on these commits: nothing is recorded. The engine would still record what
        # lies before a file that stays, and reads no further.
        yield 0, (STAYS, str(first).encode())
        return
    if recent is not None:
        yield 0, (STAYS, str(recent).encode())
    yield from parcels_by_name(NAMED_FILES, named.select([VERSION, "path"]), names)
