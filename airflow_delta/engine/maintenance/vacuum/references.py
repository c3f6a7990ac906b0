"""Collect the files that a vacuum must keep, in every spelling that may mean them.

These are the live files, the removed files whose tombstones haven't expired, and the deletion vectors of
both. A file stays if its location is

* a path of the log, decoded once, with dot segments resolved as a file system does;
* a path of the log as it stands there, for writers that don't encode;
* the end of an absolute path. Locations have many names (links, mounts, ``s3`` and ``s3a``), so
  ``/mnt/lake/t/k=1/a.parquet`` may well be ``k=1/a.parquet`` of this table;
* a path that seems to have a scheme, as it stands there: ``a:1.parquet`` may be a file's name.

Too many spellings keep some files too long; too few would lose data. Change data files belong to their
commit and not to the state, so they stay as long as they are young.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.python_arrays import array_of
from airflow_delta.engine.maintenance.table_files.deletion_vector_files import (
    locate_deletion_vectors,
)
from airflow_delta.engine.maintenance.table_files.locations import (
    IRREGULAR,
    are_absolute,
    decode_paths,
    map_chunks,
)
from airflow_delta.engine.maintenance.table_files.path_endings import (
    iter_known_endings,
    longest_length,
)

__all__ = ["References", "collect_references", "get_file_names"]

_TEXT = pa.large_string()
"""An array of plain strings, and a lookup set of them, can't exceed 2 GB."""


@dataclass(frozen=True, slots=True)
class References:
    """The files that a vacuum must keep.

    Attributes:
        near: paths below the root, in all spellings.
        far: absolute paths, in all spellings.
    """

    near: pa.ChunkedArray
    far: pa.ChunkedArray

    def __or__(self, others: References) -> References:
        """The files of both."""
        return References(
            _join([*self.near.chunks, *others.near.chunks]),
            _join([*self.far.chunks, *others.far.chunks]),
        )

    def protect(self, locations: pa.ChunkedArray) -> pa.ChunkedArray:
        """Return which files must stay, by their locations; false for a null."""
        named = pc.is_in(locations.cast(_TEXT), value_set=self.near)
        if not len(self.far):
            return named
        hits = pc.is_in(get_file_names(locations), value_set=get_file_names(self.far))
        suspects = {*locations.filter(hits).to_pylist()}
        longest = longest_length(suspects)
        wanted = pc.is_in(
            get_file_names(self.far), value_set=get_file_names(locations.filter(hits))
        )
        # A loop over absolute paths that share a name with a candidate: mostly none.
        ends: set[str] = set()
        for path in self.far.filter(wanted).to_pylist():
            ends.update(iter_known_endings(path, suspects, longest=longest))
        return pc.or_(named, pc.is_in(locations, value_set=array_of(sorted(ends), pa.string())))


def collect_references(actions: Iterable[pa.Table], *, table: str) -> References:
    """Collect the files that actions refer to.

    Args:
        actions: adds and removes, each with at least ``path`` and ``deletionVector``.
        table: the table's location, for errors.

    Raises:
        CorruptLogError: a path can't be decoded, or a deletion vector is of an unknown kind.
        DeletionVectorError: a descriptor holds no UUID.
    """
    near: list[pa.Array] = []
    far: list[pa.Array] = []
    for rows in actions:
        relative, absolute = locate_deletion_vectors(rows["deletionVector"], table=table)
        near += _with_resolved(relative.drop_null())
        for paths in (rows["path"], absolute.drop_null()):
            far_mask = are_absolute(paths)
            near_paths = paths if far_mask is None else paths.filter(pc.invert(far_mask))
            near += _list_spellings(near_paths, table)
            if far_mask is not None:
                absolute_paths = paths.filter(far_mask)
                far += _list_spellings(absolute_paths, table)
                near += _list_spellings(_without_authority(absolute_paths), table)
    return References(_join(near), _join(far))


def get_file_names(paths: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the last segments of paths."""
    return pc.replace_substring_regex(paths.cast(_TEXT), "(?s)^.*/", "")


def _list_spellings(paths: pa.ChunkedArray, table: str) -> list[pa.Array]:
    plain = decode_paths(paths, table=table)
    literal = paths.filter(pc.match_substring(paths, "%"))
    return [*_with_resolved(plain), *_with_resolved(literal)]


def _with_resolved(texts: pa.ChunkedArray) -> list[pa.Array]:
    """Return the texts, and the irregular ones once more, as a file system resolves them."""
    irregular = texts.filter(pc.match_substring_regex(texts, IRREGULAR))
    resolved = map_chunks(_resolve, irregular)
    return [*texts.chunks, *resolved.chunks]


def _resolve(texts: pa.Array) -> pa.Array:
    # A loop in Python: no known writer makes such paths.
    return array_of([posixpath.normpath(text) for text in texts.to_pylist()], pa.string())


def _join(chunks: list[pa.Array]) -> pa.ChunkedArray:
    return pa.chunked_array([chunk.cast(_TEXT) for chunk in chunks], _TEXT)


def _without_authority(paths: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the paths that have a scheme but no authority: their first segment may be a file's name."""
    plain = pc.invert(pc.or_(pc.starts_with(paths, "/"), pc.match_substring(paths, "://")))
    return paths.filter(plain)
