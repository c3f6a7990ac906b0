"""The files that a log names and its table needs no more: what a lite vacuum goes through.

Every file that was removed is named by the ``remove`` that did it, and change data files by their ``cdc``.
So of the commits that have grown older than the retention since the last vacuum, these are the candidates,
without listing a directory. What no commit names, as the files of a job that died, a full vacuum finds.

A commit may be older than the retention, and say of a file that it was removed later than that: the clocks
of a writer and of its store differ. Such a file stays, and the next vacuum begins with that commit.

The commits must be there: where a cleanup of the log has taken one since the last vacuum, what it named
would stay for ever, and nobody would know. Then a lite vacuum is refused.
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
    leads_nowhere,
    vector_paths,
)
from airflow_delta.engine.maintenance.table_files.listing import FOUND, each_once
from airflow_delta.engine.maintenance.table_files.locations import locations
from airflow_delta.engine.maintenance.table_files.past_versions import version_by
from airflow_delta.engine.maintenance.table_files.removals import read_commits
from airflow_delta.engine.maintenance.vacuum.last_vacuum import LAST_VACUUM
from airflow_delta.engine.model.actions import AddCdcFile
from airflow_delta.engine.replay.tombstones import expired
from airflow_delta.engine.snapshot.snapshot import Snapshot

__all__ = ["NamedFiles", "lite_versions", "named_files"]


@dataclass(frozen=True, slots=True)
class NamedFiles:
    """What commits name and their table may need no more.

    Attributes:
        files: the files below the root, each once, as `list_files` gives them. Of deletion vectors, and
            of files whose remove doesn't tell it, the size is null; and so are all times.
        done: the commits, from the first on, of which that is all. The one after them has removed a file
            so recently that it must stay.
    """

    files: pa.Table
    done: range


def lite_versions(snapshot: Snapshot, cutoff_ms: int, *, vacuumed: int | None) -> range:
    """The versions whose commits name the candidates; empty where none has grown old.

    Args:
        snapshot: the newest version.
        cutoff_ms: what is older has outlived the retention, in epoch ms.
        vacuumed: the last version that the last vacuum has dealt with.

    Raises:
        VersionNotFoundError: cleanup has taken one of the commits.
        CorruptLogError: a commit should tell its time and doesn't.
    """
    newest = version_by(snapshot, cutoff_ms)
    # A table may have been made anew in the place of one that had more versions.
    start = 0 if vacuumed is None or vacuumed > snapshot.version else vacuumed + 1
    if newest is None or newest < start:
        return range(start, start)
    first = snapshot.timeline.commits.first
    if start < first:
        since = "nobody has left one" if vacuumed is None else f"up to version {vacuumed}"
        raise VersionNotFoundError(
            f"a lite vacuum needs the commits {start} to {newest}, and cleanup has taken those before "
            f"{first} (the last vacuum by {LAST_VACUUM}: {since}), so that the files they removed would "
            "stay for ever; run a full vacuum, after which lite ones go on from there",
            table=snapshot.table,
            version=start,
            earliest=first,
            latest=snapshot.version,
        )
    return range(start, newest + 1)


def named_files(snapshot: Snapshot, versions: range, cutoff_ms: int) -> NamedFiles:
    """The files that commits have removed, with their deletion vectors, and their change data files.

    Args:
        snapshot: the newest version.
        versions: the commits.
        cutoff_ms: what was removed at this time or later is left out.

    Raises:
        CorruptLogError: a commit breaks the protocol.
        ObjectNotFoundError: a commit vanished: a cleanup is running.
    """
    tables, end = [pa.Table.from_batches([], FOUND)], versions.stop
    for _, commits in read_commits(snapshot, versions):
        old = expired(commits.files.removes, cutoff_ms - 1)
        removes = commits.files.removes.filter(old)
        if removes.num_rows < len(old):
            end = min(end, pc.min(commits.files.removes[VERSION].filter(pc.invert(old))).as_py())
        relative, absolute = vector_paths(removes["deletionVector"], table=snapshot.table)
        far = absolute.drop_null()
        unknown = pa.nulls(removes.num_rows, pa.int64())
        tables += [
            _files(locations(removes["path"], root=snapshot.table), removes["size"]),
            _files(_below(relative), unknown),
            _files(locations(far, root=snapshot.table), unknown[: len(far)]),
            *_change_data(commits.non_file_actions, snapshot.table),
        ]
    named = pa.concat_tables(tables)
    files = each_once(named.filter(named["path"].is_valid()))
    return NamedFiles(files, range(versions.start, end))


def _change_data(non_file_actions: Sequence[NonFileAction], table: str) -> Iterator[pa.Table]:
    # A loop over change data files: the reader of commits gives them as dicts.
    files = [
        AddCdcFile.from_json(action.value, f"commit {action.version}: cdc")
        for action in non_file_actions
        if action.kind == "cdc"
    ]
    if files:
        paths = pa.chunked_array([array_of([file.path for file in files], pa.string())])
        sizes = array_of([file.size for file in files], pa.int64())
        yield _files(locations(paths, root=table), sizes)


def _below(paths: pa.ChunkedArray) -> pa.ChunkedArray:
    """Deletion vector files below the table. What names no file there, nobody has to delete."""
    return pc.if_else(leads_nowhere(paths), scalar_of(None, pa.string()), paths)


def _files(paths: pa.ChunkedArray, sizes: pa.Array | pa.ChunkedArray) -> pa.Table:
    return pa.table([paths, sizes, pa.nulls(len(paths), pa.int64())], schema=FOUND)
