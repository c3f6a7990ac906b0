"""Find the candidates of a lite vacuum: the files that old commits have removed.

Every removed file is named by a ``remove``, and every change data file by a ``cdc``. So the commits that
have become older than the retention since the last vacuum name all candidates, without a listing. Only a
full vacuum finds files that no commit names, such as those of a job that died.

1. `find_lite_versions` finds the commits. If cleanup has deleted one, what it named would stay for ever, so
   a lite vacuum is refused.
2. `read_named_files` reads what they name. Clocks of writers and stores differ, so an old commit may record
   that it removed a file within the retention. That file stays, and the next vacuum begins with that
   commit. So it does after a full vacuum, which reads the same commits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.action_schema import VERSION
from airflow_delta.engine.arrow.json.reader import NonFileAction
from airflow_delta.engine.arrow.python_arrays import array_of, scalar_of
from airflow_delta.engine.errors import VersionNotFoundError
from airflow_delta.engine.maintenance.table_files.deletion_vector_files import (
    are_irregular,
    locate_deletion_vectors,
)
from airflow_delta.engine.maintenance.table_files.listing import LISTED_SCHEMA, drop_duplicates
from airflow_delta.engine.maintenance.table_files.locations import locate_paths
from airflow_delta.engine.maintenance.table_files.past_versions import find_version_at
from airflow_delta.engine.maintenance.table_files.removals import read_commits
from airflow_delta.engine.maintenance.vacuum.last_vacuum import LAST_VACUUM
from airflow_delta.engine.model.actions import AddCdcFile
from airflow_delta.engine.replay.tombstones import expired
from airflow_delta.engine.snapshot.snapshot import Snapshot

__all__ = ["NamedFiles", "find_lite_versions", "read_named_files"]

_NAMED_SCHEMA = LISTED_SCHEMA.append(pa.field(VERSION, pa.int64()))
"""Files, each with the version whose commit names it."""


@dataclass(frozen=True, slots=True)
class NamedFiles:
    """The files that commits name and their table may not need any more.

    Attributes:
        files: the files below the root, each once, with the columns of `list_files`. All times are null,
            and so is the size of deletion vectors and of files whose remove doesn't have it.
        done: the commits, from the first on, that name no other file. The commit after them names a file
            that stays, because it is too young, or was removed within the retention.
    """

    files: pa.Table
    done: range


def find_lite_versions(snapshot: Snapshot, cutoff_ms: int, *, vacuumed: int | None) -> range:
    """Find the versions whose commits name the candidates; empty if none is old enough.

    Args:
        snapshot: the newest version.
        cutoff_ms: commits before this time are old enough, in epoch ms.
        vacuumed: the last version that the last vacuum has covered; None if unknown.

    Raises:
        VersionNotFoundError: cleanup has deleted one of the commits.
        CorruptLogError: a commit lacks the in-commit timestamp that it must have.
    """
    newest = find_version_at(snapshot, cutoff_ms)
    # A higher version was recorded for another table, which this one has replaced.
    start = 0 if vacuumed is None or vacuumed > snapshot.version else vacuumed + 1
    if newest is None or newest < start:
        return range(start, start)
    first = snapshot.timeline.commits.first
    if start < first:
        since = "none is recorded" if vacuumed is None else f"up to version {vacuumed}"
        raise VersionNotFoundError(
            f"a lite vacuum needs the commits {start} to {newest}, and cleanup has deleted those before "
            f"{first} (the last vacuum by {LAST_VACUUM}: {since}), so the files that they removed would "
            "stay for ever; run a full vacuum, from which later lite ones continue",
            table=snapshot.table,
            version=start,
            earliest=first,
            latest=snapshot.version,
        )
    return range(start, newest + 1)


def read_named_files(
    snapshot: Snapshot, versions: range, cutoff_ms: int, *, young: pa.ChunkedArray | None = None
) -> NamedFiles:
    """Read which files commits have removed, with their deletion vectors, and their change data files.

    Args:
        snapshot: the newest version.
        versions: the commits.
        cutoff_ms: what was removed at this time or later is left out.
        young: the paths of files that stay because they are too young; None if unknown. A copied table may
            have files that are younger than their removal.

    Raises:
        CorruptLogError: a commit breaks the protocol.
        ObjectNotFoundError: a commit vanished: a cleanup is running.
    """
    tables, end = [pa.Table.from_batches([], _NAMED_SCHEMA)], versions.stop
    for _, commits in read_commits(snapshot, versions):
        old = expired(commits.files.removes, cutoff_ms - 1)
        removes = commits.files.removes.filter(old)
        since = removes[VERSION]
        if removes.num_rows < len(old):
            end = min(end, pc.min(commits.files.removes[VERSION].filter(pc.invert(old))).as_py())
        relative, absolute = locate_deletion_vectors(
            removes["deletionVector"], table=snapshot.table
        )
        far, known = absolute.drop_null(), absolute.is_valid()
        unknown = pa.nulls(removes.num_rows, pa.int64())
        tables += [
            _make_rows(locate_paths(removes["path"], root=snapshot.table), removes["size"], since),
            _make_rows(_drop_irregular(relative), unknown, since),
            _make_rows(
                locate_paths(far, root=snapshot.table), unknown[: len(far)], since.filter(known)
            ),
            *_read_change_data(commits.non_file_actions, snapshot.table),
        ]
    named = pa.concat_tables(tables)
    if young is not None and len(young):
        kept = named[VERSION].filter(pc.is_in(named["path"], value_set=young))
        end = min(end, pc.min(kept).as_py()) if len(kept) else end
    found = named.filter(named["path"].is_valid()).drop_columns([VERSION])
    files = drop_duplicates(found)
    return NamedFiles(files, range(versions.start, end))


def _read_change_data(non_file_actions: Sequence[NonFileAction], table: str) -> Iterator[pa.Table]:
    # A loop over change data files: the reader of commits returns them as dicts.
    actions = [action for action in non_file_actions if action.kind == "cdc"]
    files = [
        AddCdcFile.from_json(action.value, f"commit {action.version}: cdc") for action in actions
    ]
    if files:
        paths = pa.chunked_array([array_of([file.path for file in files], pa.string())])
        sizes = array_of([file.size for file in files], pa.int64())
        since = array_of([action.version for action in actions], pa.int64())
        yield _make_rows(locate_paths(paths, root=table), sizes, since)


def _drop_irregular(paths: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the deletion vector files below the table; null for paths that name no file there."""
    return pc.if_else(are_irregular(paths), scalar_of(None, pa.string()), paths)


def _make_rows(
    paths: pa.ChunkedArray,
    sizes: pa.Array | pa.ChunkedArray,
    versions: pa.Array | pa.ChunkedArray,
) -> pa.Table:
    times = pa.nulls(len(paths), pa.int64())
    return pa.table([paths, sizes, times, versions], schema=_NAMED_SCHEMA)
