"""Are the files there that a restore would bring back?

A vacuum deletes files once nobody needs them but those who travel back in time. A restore that brought
back such a file would leave a table that can't be read, so each file is looked for, data and deletion
vectors, before anything is committed.

That is a request for each file, many of them at once. From some thousands on the table's directory is
listed instead, at a thousand files a request, and only what the listing doesn't have is asked for.

It is done again after the commit, for what a vacuum has taken in between; then the commit stands, and the
error says so. A restore that is tried again finds its commit, and looks for the files once more, so that
the second try doesn't succeed where the first one has failed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import chain, islice

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.action_schema import FILE_KEY_COLUMNS
from airflow_delta.engine.arrow.parallel import map_ordered
from airflow_delta.engine.arrow.python_arrays import array_of
from airflow_delta.engine.errors import ObjectNotFoundError
from airflow_delta.engine.maintenance.restorable import oldest_restorable
from airflow_delta.engine.maintenance.vacuum_candidates import list_files
from airflow_delta.engine.maintenance.vacuum_locations import locations
from airflow_delta.engine.maintenance.vacuum_log import read_commits
from airflow_delta.engine.maintenance.vector_files import vector_paths
from airflow_delta.engine.model.paths import resolve
from airflow_delta.engine.replay.file_key import file_keys
from airflow_delta.engine.snapshot.snapshot import Snapshot
from airflow_delta.engine.storage.base import Storage
from airflow_delta.engine.storage.location import storage_for_uri

__all__ = [
    "MOST_TOLD",
    "check_after_restore",
    "check_before_restore",
    "check_earlier_restore",
    "missing_files",
]

MOST_TOLD = 100
"""With so many missing files the search ends."""

_LISTED_FROM = 10_000
_WORKERS = 32
_SHOWN = 5

_MOST_COMMITS = 1000
"""To tell from which version on the missing files aren't needed, no more commits are read."""


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


def check_before_restore(
    base: Snapshot, version: int, files: pa.Table, options: Mapping[str, object] | None
) -> None:
    """Make sure that the files are there that a restore would bring back.

    Args:
        base: the newest version.
        version: the one that is to be restored.
        files: the adds that would come back.
        options: those of the table's store, for files elsewhere.

    Raises:
        ObjectNotFoundError: some aren't. Facts: path (the first), paths (`MOST_TOLD` at most), version.
        DeltaError: see `missing_files`.
    """
    missing = missing_files(files, base.state.storage, options)
    if not missing:
        return
    later = _needless_from(base, version, missing)
    whole = "a later version" if later is None else f"version {later} or a later one"
    raise _error(
        base.table,
        version,
        missing,
        f"version {version} can't be restored, because {_count(missing)} of the files that it needs are "
        "gone",
        "a vacuum takes files that were removed longer ago than delta.deletedFileRetentionDuration; "
        f"restore {whole}, put the files back, or, where the rest is worth having, ignore missing files",
    )


def check_after_restore(
    storage: Storage, version: int, files: pa.Table, options: Mapping[str, object] | None
) -> None:
    """Make sure that the files are still there that a restore has brought back.

    Args:
        storage: where the table is.
        version: the one that the restore has made.
        files: the adds that it has brought back.
        options: those of the table's store, for files elsewhere.

    Raises:
        ObjectNotFoundError, DeltaError: see `check_before_restore`.
    """
    missing = missing_files(files, storage, options)
    if missing:
        raise _error(
            storage.root,
            version,
            missing,
            f"version {version} is committed and stands, but {_count(missing)} of the files that it "
            "brought back are gone",
            "a vacuum has taken them meanwhile; put them back, or restore a version that does without "
            f"them, such as {version - 1}",
        )


def check_earlier_restore(
    newest: Snapshot, version: int | None, options: Mapping[str, object] | None
) -> None:
    """Make sure that the files that an earlier try has brought back are there, as far as they are live.

    Args:
        newest: the newest version.
        version: the one that the earlier try has made. Where its commit is gone nothing can be told.
        options: those of the table's store, for files elsewhere.

    Raises:
        ObjectNotFoundError, DeltaError: see `check_before_restore`.
    """
    if version is None:
        return
    try:
        told = [commits for _, commits in read_commits(newest, range(version, version + 1))]
    except ObjectNotFoundError:
        return
    live = newest.files(columns=FILE_KEY_COLUMNS)
    keys = file_keys(live, table=newest.table)
    for commits in told:
        added = file_keys(commits.files.adds, table=newest.table)
        files = live.filter(pc.is_in(keys, value_set=added))
        check_after_restore(newest.state.storage, version, files, options)


def _needless_from(base: Snapshot, version: int, missing: list[str]) -> int | None:
    """The first version that needs none of the missing files, nor does a later one; None if unknown."""
    if base.version - version > _MOST_COMMITS:
        return None
    names = array_of(missing, pa.string())

    def _is_missing(removes: pa.Table, places: pa.ChunkedArray) -> pa.ChunkedArray:  # noqa: ARG001
        return pc.is_in(places, value_set=names)

    found = oldest_restorable(base, _is_missing)
    return found if found > version else None


def _count(missing: list[str]) -> str:
    return f"{len(missing)}{' or more' if len(missing) == MOST_TOLD else ''}"


def _error(
    table: str, version: int, missing: list[str], problem: str, remedy: str
) -> ObjectNotFoundError:
    return ObjectNotFoundError(
        f"{problem}, such as {', '.join(missing[:_SHOWN])}: {remedy}",
        table=table,
        path=missing[0],
        paths=tuple(missing),
        version=version,
    )


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
