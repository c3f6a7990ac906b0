"""Find the candidates of a lite vacuum: the files that old commits have removed.

Every removed file is named by a ``remove``, and every change data file by a ``cdc``. So the commits that
have become older than the retention since the last vacuum name all candidates, without a listing. Only a
full vacuum finds files that no commit names, such as those of a job that died.

1. `find_lite_versions` finds the commits. If cleanup has deleted one, what it named would stay for ever, so
   a lite vacuum is refused.
2. `read_named_files` reads what they name. Clocks of writers and stores differ, so an old commit may record
   that it removed a file within the retention. That file stays, and the next vacuum begins with that
   commit. So it does after a full vacuum, which reads the same commits (`find_vacuumed_versions`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.action_schema import VERSION
from airflow_delta.engine.arrow.json.reader import NonFileAction, ParsedCommits
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

__all__ = [
    "NamedFiles",
    "find_first_kept",
    "find_lite_versions",
    "find_vacuumed_versions",
    "list_named_files",
    "read_named_files",
]

_NAMED_SCHEMA = LISTED_SCHEMA.append(pa.field(VERSION, pa.int64()))
"""Files, each with the version whose commit names it."""


@dataclass(frozen=True, slots=True)
class NamedFiles:
    """The files that commits name and their table may not need any more.

    Attributes:
        files: the files below the root, each once, with the columns of `list_files`. All times are null,
            and so is the size of deletion vectors and of files whose remove doesn't have it.
        done: the commits, from the first on, that name no other file. The commit after them has removed a
            file within the retention.
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


def read_named_files(snapshot: Snapshot, versions: range, cutoff_ms: int) -> NamedFiles:
    """Read which files commits have removed, with their deletion vectors, and their change data files.

    Args:
        snapshot: the newest version.
        versions: the commits.
        cutoff_ms: what was removed at this time or later is left out.

    Raises:
        CorruptLogError: a commit breaks the protocol.
        ObjectNotFoundError: a commit vanished: a cleanup is running.
    """
    tables, end = [pa.Table.from_batches([], _NAMED_SCHEMA)], versions.stop
    for _, commits in read_commits(snapshot, versions):
        named, recent = list_named_files(commits, cutoff_ms, table=snapshot.table)
        tables.append(named)
        end = end if recent is None else min(end, recent)
    files = drop_duplicates(pa.concat_tables(tables).drop_columns([VERSION]))
    return NamedFiles(files, range(versions.start, end))


def find_vacuumed_versions(
    snapshot: Snapshot, versions: range, cutoff_ms: int, *, young: pa.ChunkedArray
) -> range:
    """Find the commits, from the first on, that name no file that stays in a full vacuum.

    The search ends with the run of commits that has the first such file, so damage after it isn't noticed.

    Args:
        snapshot: the newest version.
        versions: the commits.
        cutoff_ms: what was removed at this time or later stays.
        young: the paths of files that stay because they are too young. A copied table may have files that
            are younger than their removal.

    Raises:
        CorruptLogError: a commit breaks the protocol.
        ObjectNotFoundError: a commit vanished: a cleanup is running.
    """
    # Run by run: the first vacuum of a table reads all of its old commits.
    for _, commits in read_commits(snapshot, versions):
        named, recent = list_named_files(commits, cutoff_ms, table=snapshot.table)
        kept = find_first_kept(named, young)
        stays = [version for version in (recent, kept) if version is not None]
        if stays:
            return range(versions.start, min(stays))
    return versions


def list_named_files(
    commits: ParsedCommits, cutoff_ms: int, *, table: str
) -> tuple[pa.Table, int | None]:
    """List the files that commits name: those that they have removed, and their change data files.

    Args:
        commits: with `REMOVE_COLUMNS`.
        cutoff_ms: what was removed at this time or later is left out.
        table: the table's location.

    Returns:
        The files below the root, with the columns of `list_files` and the version whose commit names each;
        and the first version that has removed one that is left out, None if there is none.

    Raises:
        CorruptLogError: a commit breaks the protocol.
    """
    old = expired(commits.files.removes, cutoff_ms - 1)
    recent: int | None = pc.min(commits.files.removes[VERSION].filter(pc.invert(old))).as_py()
    removes = commits.files.removes.filter(old)
    since = removes[VERSION]
    relative, absolute = locate_deletion_vectors(removes["deletionVector"], table=table)
    far, known = absolute.drop_null(), absolute.is_valid()
    unknown = pa.nulls(removes.num_rows, pa.int64())
    tables = [
        _make_rows(locate_paths(removes["path"], root=table), removes["size"], since),
        _make_rows(_drop_irregular(relative), unknown, since),
        _make_rows(locate_paths(far, root=table), unknown[: len(far)], since.filter(known)),
        *_read_change_data(commits.non_file_actions, table),
    ]
    named = pa.concat_tables(tables)
    return named.filter(named["path"].is_valid()), recent


def find_first_kept(named: pa.Table, young: pa.ChunkedArray) -> int | None:
    """Find the first version that names a file which stays because it is too young; None for none.

    Args:
        named: files by `list_named_files`.
        young: the paths of the files that stay.
    """
    version: int | None = pc.min(
        named[VERSION].filter(pc.is_in(named["path"], value_set=young))
    ).as_py()
    return version


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
