"""Are the files there that versions need, data and deletion vectors?

A vacuum deletes files once nobody needs them but those who travel back in time. So whoever goes back to an
earlier version looks for its files before: a restore (`restore_missing`), and a task that pins the version
for others (`version_files`).

That is a request for each file, many of them at once. From some thousands on the table's directory is
listed instead, at a thousand files a request, and only what the listing doesn't have is asked for. What is
outside of the directory is asked for where it is.
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
    check_vector_paths,
    leads_nowhere,
    vector_paths,
)
from airflow_delta.engine.maintenance.table_files.listing import list_files
from airflow_delta.engine.maintenance.table_files.locations import locations
from airflow_delta.engine.maintenance.table_files.oldest_restorable import oldest_restorable
from airflow_delta.engine.model.paths import resolve
from airflow_delta.engine.snapshot.snapshot import Snapshot
from airflow_delta.engine.storage.base import Storage
from airflow_delta.engine.storage.file_access import FileAccess

__all__ = [
    "MOST_TOLD",
    "Places",
    "look_for",
    "missing_files",
    "missing_files_error",
    "needless_from",
    "openable_places",
    "places_of",
]

MOST_TOLD = 100
"""With so many missing files the search ends."""

_Look: TypeAlias = tuple[str, tuple[Storage, str]]
"""The name of a file, and where to look for it."""

_LISTED_FROM = 10_000
_WORKERS = 32
_SHOWN = 5

_MOST_COMMITS = 1000
"""To tell from which version on the missing files aren't needed, no more commits are read."""


@dataclass(frozen=True, slots=True)
class Places:
    """Where files are, each once.

    Attributes:
        inside: the decoded paths of those below the table's root.
        elsewhere: the absolute locations of the others.
    """

    inside: pa.ChunkedArray
    elsewhere: list[str]

    def __len__(self) -> int:
        return len(self.inside) + len(self.elsewhere)


def missing_files(files: pa.Table, access: FileAccess) -> list[str]:
    """The files of adds that aren't there; see `look_for`.

    Args:
        files: adds with at least ``path`` and ``deletionVector``.
        access: opens the table's files.

    Raises:
        DeltaError: see `places_of` and `look_for`.
    """
    places = places_of(files["path"], files["deletionVector"], root=access.storage.root)
    return look_for(places, access)


def places_of(paths: pa.ChunkedArray, vectors: pa.ChunkedArray, *, root: str) -> Places:
    """Where data files and deletion vectors are.

    Args:
        paths: of adds, as in the log.
        vectors: descriptors, of these adds or of others; nulls and inline ones have no file.
        root: the table's location.

    Raises:
        CorruptLogError: a path can't be decoded, or a deletion vector is of an unknown kind.
        DeletionVectorError: a deletion vector's file can't be told.
    """
    data = locations(paths, root=root)
    relative, absolute = vector_paths(vectors, table=root)
    check_vector_paths(relative, table=root)
    # Not plain strings: `unique` makes one array of them all, and plain ones end at 2 GB.
    inside = pa.chunked_array(
        [chunk.cast(pa.large_string()) for chunk in (*data.chunks, *relative.chunks)],
        pa.large_string(),
    )
    others = chain(
        paths.filter(data.is_null()).unique().to_pylist(),
        absolute.drop_null().unique().to_pylist(),
    )
    # A loop over files outside of the root: clones have them, others don't.
    elsewhere = dict.fromkeys(resolve(root, path) for path in others)
    return Places(pa.chunked_array([inside.drop_null().unique()]), list(elsewhere))


def openable_places(files: pa.Table, access: FileAccess) -> tuple[Places, list[str]]:
    """Where files are that may be looked for; and the locations of those that the table may not read.

    Args:
        files: adds with at least ``path`` and ``deletionVector``.
        access: opens the table's files.

    Raises:
        DeltaError: see `places_of`.
    """
    root = access.storage.root
    vectors, _ = vector_paths(files["deletionVector"], table=root)
    nowhere = pc.coalesce(leads_nowhere(vectors), scalar_of(False, pa.bool_()))
    sound = files["deletionVector"].filter(pc.invert(nowhere))
    found = places_of(files["path"], sound, root=root)
    # A loop over files outside of the root: clones have them, others don't.
    allowed = [uri for uri in found.elsewhere if access.is_allowed(uri)]
    outside = set(found.elsewhere).difference(allowed)
    refused = [*vectors.filter(nowhere).unique().to_pylist(), *sorted(outside)]
    return replace(found, elsewhere=allowed), refused


def look_for(places: Places, access: FileAccess) -> list[str]:
    """The files that aren't there, `MOST_TOLD` at most, each once.

    Args:
        places: where they should be.
        access: opens the table's files.

    Returns:
        Below the table's root their paths, decoded; elsewhere their absolute locations.

    Raises:
        OutsidePathError: the table may not read where a file is.
        CorruptLogError: a path names no file.
        StorageError: the store failed.
    """
    inside = places.inside
    # Before the first request: what a table may not do, it doesn't do in part.
    found = [(uri, access.locate(uri)) for uri in places.elsewhere]
    storage = access.storage
    if len(inside) >= _LISTED_FROM:
        listed = list_files(storage)["path"].cast(pa.large_string())
        inside = inside.filter(pc.invert(pc.is_in(inside, value_set=listed)))
    looks: Iterator[_Look] = chain(
        ((path, (storage, path)) for chunk in inside.chunks for path in chunk.to_pylist()),
        found,
    )
    workers = _WORKERS if storage.capabilities.remote else 1
    missing = map_ordered(_missing, looks, workers=workers)
    return list(islice((name for name in missing if name is not None), MOST_TOLD))


def missing_files_error(
    table: str, version: int, missing: list[str], *, problem: str, remedy: str
) -> MissingFilesError:
    """The error that names the files.

    Args:
        table: the table's location.
        version: the one that needs the files.
        missing: what `look_for` has found.
        problem: what can't be done; how many files are gone, and which, is told by it.
        remedy: what to do.
    """
    count = f"{len(missing)}{' or more' if len(missing) == MOST_TOLD else ''}"
    return MissingFilesError(
        f"{problem.format(count=count)}, such as {', '.join(missing[:_SHOWN])}: {remedy}",
        table=table,
        path=missing[0],
        paths=tuple(missing),
        num_missing=len(missing),
        version=version,
    )


def needless_from(base: Snapshot, version: int, missing: list[str]) -> int | None:
    """The first version that needs none of the missing files, nor does a later one; None if unknown.

    Args:
        base: the newest version.
        version: the one that needs them.
        missing: what `look_for` has found.

    Raises:
        CorruptLogError: a commit breaks the protocol.
    """
    if base.version - version > _MOST_COMMITS:
        return None
    names = array_of(missing, pa.string())

    def _is_missing(removes: pa.Table, places: pa.ChunkedArray) -> pa.ChunkedArray:  # noqa: ARG001
        return pc.is_in(places, value_set=names)

    found = oldest_restorable(base, _is_missing)
    return found if found > version else None


def _missing(look: _Look) -> str | None:
    """The name of a file that isn't there; None for one that is."""
    name, (storage, path) = look
    try:
        storage.head(path)
    except ObjectNotFoundError:
        return name
    return None
