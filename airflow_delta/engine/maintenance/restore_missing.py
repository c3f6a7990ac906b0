"""Are the files there that a restore would bring back?

A vacuum deletes files once nobody needs them but those who travel back in time. A restore that brought
back such a file would leave a table that can't be read, so each file is looked for, data and deletion
vectors, before anything is committed.

That is a request for each file, many of them at once. From some thousands on the table's directory is
listed instead, at a thousand files a request, and only what the listing doesn't have is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import chain, islice

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.parallel import map_ordered
from airflow_delta.engine.errors import ObjectNotFoundError
from airflow_delta.engine.maintenance.vacuum_candidates import list_files
from airflow_delta.engine.maintenance.vacuum_locations import locations
from airflow_delta.engine.maintenance.vector_files import vector_paths
from airflow_delta.engine.model.paths import resolve
from airflow_delta.engine.storage.base import Storage
from airflow_delta.engine.storage.location import storage_for_uri

__all__ = ["MOST_TOLD", "missing_files"]

MOST_TOLD = 100
"""With so many missing files the search ends."""

_LISTED_FROM = 10_000
_WORKERS = 32


def missing_files(
    files: pa.Table, storage: Storage, options: Mapping[str, object] | None = None
) -> list[str]:
    """The files of adds that aren't there, `MOST_TOLD` at most, each once.

    Args:
        files: adds with at least ``path`` and ``deletionVector``.
        storage: the table's.
        options: those of the table's store, for files elsewhere.

    Returns:
        Below the table's root their paths, decoded; elsewhere their absolute locations.

    Raises:
        CorruptLogError: a path can't be decoded, or a deletion vector is of an unknown kind.
        DeletionVectorError: a deletion vector's file can't be told.
        InvalidArgumentError: the location of a file elsewhere makes no sense.
        StorageError: the store failed.
    """
    inside, elsewhere = _places(files, storage.root)
    if len(inside) >= _LISTED_FROM:
        listed = list_files(storage)["path"]
        inside = inside.filter(pc.invert(pc.is_in(inside, value_set=listed)))
    looks: Iterator[tuple[str | None, str]] = chain(
        ((path, path) for chunk in inside.chunks for path in chunk.to_pylist()),
        ((None, uri) for uri in elsewhere),
    )
    workers = _WORKERS if storage.capabilities.remote else 1
    found = map_ordered(partial(_missing, storage, options), looks, workers=workers)
    return list(islice((name for name in found if name is not None), MOST_TOLD))


def _places(files: pa.Table, root: str) -> tuple[pa.ChunkedArray, list[str]]:
    """The files below the root, and those that only a location tells, each once."""
    data = locations(files["path"], root=root)
    vectors, absolute = vector_paths(files["deletionVector"], table=root)
    inside = pa.chunked_array([*data.chunks, *vectors.chunks], pa.string())
    others = chain(
        files["path"].filter(data.is_null()).unique().to_pylist(),
        absolute.drop_null().unique().to_pylist(),
    )
    # A loop over files outside of the root: clones have them, others don't.
    elsewhere = dict.fromkeys(resolve(root, path) for path in others)
    return pa.chunked_array([inside.drop_null().unique()]), list(elsewhere)


def _missing(
    storage: Storage, options: Mapping[str, object] | None, place: tuple[str | None, str]
) -> str | None:
    """The name of a file that isn't there; None for one that is."""
    path, name = place
    try:
        if path is None:
            storage, path = storage_for_uri(name, options)
        storage.head(path)
    except ObjectNotFoundError:
        return name
    return None
