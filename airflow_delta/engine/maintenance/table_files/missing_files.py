"""Find the files that don't exist, of data and deletion vectors that a version needs.

For operations that go back to an earlier version, whose files a vacuum may have deleted: a restore
(``restore/missing_files.py``), a task that pins a version (``availability.py``), and a check.

`locate_files` turns actions into locations, `find_absent` looks them up: by one request for each file, many
at once. From `_LISTED_FROM` files on it lists the table's directory instead, at a thousand files a request,
and asks only for what the listing lacks. Files outside the directory are always looked up one by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.parallel import map_ordered
from airflow_delta.engine.arrow.python_arrays import array_of, scalar_of
from airflow_delta.engine.errors import MissingFilesError, ObjectNotFoundError
from airflow_delta.engine.maintenance.table_files.deletion_vector_files import (
    are_irregular,
    check_deletion_vector_paths,
    locate_deletion_vectors,
)
from airflow_delta.engine.maintenance.table_files.listing import list_files
from airflow_delta.engine.maintenance.table_files.locations import locate_paths
from airflow_delta.engine.maintenance.table_files.oldest_restorable import find_oldest_restorable
from airflow_delta.engine.model.paths import resolve
from airflow_delta.engine.progress import report_progress
from airflow_delta.engine.snapshot.snapshot import Snapshot
from airflow_delta.engine.storage.base import Storage
from airflow_delta.engine.storage.file_access import FileAccess

__all__ = [
    "MAX_MISSING",
    "FileLocations",
    "find_absent",
    "find_missing_files",
    "find_unaffected_version",
    "locate_files",
    "locate_readable_files",
    "missing_files_error",
]

MAX_MISSING = 100
"""The search ends when it has found this many missing files."""

_Lookup: TypeAlias = tuple[str, tuple[Storage, str]]
"""The name of a file, and where to look for it."""

_LISTED_FROM = 10_000
_WORKERS = 32
_SHOWN = 5

_MOST_COMMITS = 1000
"""At most this many commits are read to find the version from which on the missing files aren't needed."""


@dataclass(frozen=True, slots=True)
class FileLocations:
    """Locations of files, each once.

    Attributes:
        inside: the decoded paths of those below the table's root.
        elsewhere: the absolute locations of the others.
    """

    inside: pa.ChunkedArray
    elsewhere: list[str]

    def __len__(self) -> int:
        return len(self.inside) + len(self.elsewhere)


def find_missing_files(files: pa.Table, access: FileAccess) -> list[str]:
    """Find the files of adds that don't exist; see `find_absent`.

    Args:
        files: adds with at least ``path`` and ``deletionVector``.
        access: opens the table's files.

    Raises:
        DeltaError: see `locate_files` and `find_absent`.
    """
    locations = locate_files(files["path"], files["deletionVector"], root=access.storage.root)
    return find_absent(locations, access)


def locate_files(paths: pa.ChunkedArray, vectors: pa.ChunkedArray, *, root: str) -> FileLocations:
    """Locate data files and deletion vectors.

    Args:
        paths: of adds, as in the log.
        vectors: descriptors, of these adds or of others. Nulls and inline ones have no file.
        root: the table's location.

    Raises:
        CorruptLogError: a path can't be decoded, or a deletion vector is of an unknown kind.
        DeletionVectorError: a deletion vector's descriptor doesn't name a file.
    """
    data = locate_paths(paths, root=root)
    relative, absolute = locate_deletion_vectors(vectors, table=root)
    check_deletion_vector_paths(relative, table=root)
    # Large strings: `unique` makes one array of them all, and an array of plain strings ends at 2 GB.
    inside = pa.chunked_array(
        [chunk.cast(pa.large_string()) for chunk in (*data.chunks, *relative.chunks)],
        pa.large_string(),
    )
    others = chain(
        paths.filter(data.is_null()).unique().to_pylist(),
        absolute.drop_null().unique().to_pylist(),
    )
    # A loop over files outside of the root: only clones have them.
    elsewhere = dict.fromkeys(resolve(root, path) for path in others)
    return FileLocations(pa.chunked_array([inside.drop_null().unique()]), list(elsewhere))


def locate_readable_files(files: pa.Table, access: FileAccess) -> tuple[FileLocations, list[str]]:
    """Locate the files that the table may read, and list those that it may not.

    Args:
        files: adds with at least ``path`` and ``deletionVector``.
        access: opens the table's files.

    Raises:
        DeltaError: see `locate_files`.
    """
    root = access.storage.root
    vectors, _ = locate_deletion_vectors(files["deletionVector"], table=root)
    nowhere = pc.coalesce(are_irregular(vectors), scalar_of(False, pa.bool_()))
    sound = files["deletionVector"].filter(pc.invert(nowhere))
    found = locate_files(files["path"], sound, root=root)
    # A loop over files outside of the root: only clones have them.
    allowed = [uri for uri in found.elsewhere if access.is_allowed(uri)]
    outside = set(found.elsewhere).difference(allowed)
    refused = [*vectors.filter(nowhere).unique().to_pylist(), *sorted(outside)]
    return replace(found, elsewhere=allowed), refused


def find_absent(locations: FileLocations, access: FileAccess) -> list[str]:
    """Find the files that don't exist, at most `MAX_MISSING`, each once.

    Args:
        locations: where they should be.
        access: opens the table's files.

    Returns:
        Decoded paths for files below the table's root; absolute locations for the others.

    Raises:
        OutsidePathError: the table may not read where a file is.
        CorruptLogError: a path names no file.
        StorageError: the store failed.
    """
    inside = locations.inside
    # Before the first request, so that a forbidden path fails before anything is read.
    found = [(uri, access.locate(uri)) for uri in locations.elsewhere]
    storage = access.storage
    if len(inside) >= _LISTED_FROM:
        listed = list_files(storage)["path"].cast(pa.large_string())
        inside = inside.filter(pc.invert(pc.is_in(inside, value_set=listed)))
    lookups: Iterator[_Lookup] = chain(
        ((path, (storage, path)) for chunk in inside.chunks for path in chunk.to_pylist()),
        found,
    )
    workers = _WORKERS if storage.capabilities.remote else 1
    with report_progress("look up", "files", len(inside) + len(found)) as reporter:
        missing = reporter.count(map_ordered(_name_if_missing, lookups, workers=workers))
        return list(islice((name for name in missing if name is not None), MAX_MISSING))


def missing_files_error(
    table: str, version: int, missing: list[str], *, problem: str, remedy: str
) -> MissingFilesError:
    """Make the error that names the missing files.

    Args:
        table: the table's location.
        version: the version that needs the files.
        missing: what `find_absent` has found.
        problem: what can't be done, with ``{count}`` for how many files are gone. The message adds which.
        remedy: what to do.
    """
    count = f"{len(missing)}{' or more' if len(missing) == MAX_MISSING else ''}"
    return MissingFilesError(
        f"{problem.format(count=count)}, such as {', '.join(missing[:_SHOWN])}: {remedy}",
        table=table,
        path=missing[0],
        paths=tuple(missing),
        num_missing=len(missing),
        version=version,
    )


def find_unaffected_version(base: Snapshot, version: int, missing: list[str]) -> int | None:
    """Find the first version from which on no version needs the missing files; None if unknown.

    Args:
        base: the newest version.
        version: the one that needs them.
        missing: what `find_absent` has found.

    Raises:
        CorruptLogError: a commit breaks the protocol.
    """
    if base.version - version > _MOST_COMMITS:
        return None
    names = array_of(missing, pa.string())

    def _is_missing(removes: pa.Table, locations: pa.ChunkedArray) -> pa.ChunkedArray:  # noqa: ARG001
        return pc.is_in(locations, value_set=names)

    found = find_oldest_restorable(base, _is_missing)
    return found if found > version else None


def _name_if_missing(lookup: _Lookup) -> str | None:
    """Return the name of a file that doesn't exist; None if it does."""
    name, (storage, path) = lookup
    try:
        storage.head(path)
    except ObjectNotFoundError:
        return name
    return None
