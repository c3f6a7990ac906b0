"""What must stay: the files that a table refers to, in every spelling that may mean them.

Live files, and removed ones whose tombstones haven't expired; the deletion vectors of both. A file is
protected where its location is

* a path of the log, decoded once, with the segments resolved that a file system resolves;
* a path of the log as it stands there, for writers that don't encode (edge cases I5): one file more that
  stays is nothing beside one less;
* what an absolute path ends with. Locations have many names (links, mounts, ``s3`` and ``s3a``, an account
  or a container first), so that ``/mnt/lake/t/k=1/a.parquet`` may well be ``k=1/a.parquet`` of this table;
* a path that reads as if it had a scheme, as it stands there: ``a:1.parquet`` may be a file's name.

Change data files belong to their commit, not to the state. They stay as long as they are young.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.python_arrays import array_of
from airflow_delta.engine.maintenance.table_files.deletion_vector_files import vector_paths
from airflow_delta.engine.maintenance.table_files.locations import (
    IRREGULAR,
    decoded,
    is_far,
    mapped,
)
from airflow_delta.engine.maintenance.table_files.path_endings import all_endings, longest_of

__all__ = ["References", "last_segments", "references"]

_TEXT = pa.large_string()
"""Of which an array, and a table of what is in one, may have more than 2 GB."""


@dataclass(frozen=True, slots=True)
class References:
    """The files that must stay.

    Attributes:
        near: paths below the root, in all spellings.
        far: absolute paths, likewise.
    """

    near: pa.ChunkedArray
    far: pa.ChunkedArray

    def __or__(self, others: References) -> References:
        """The files of both."""
        return References(
            _joined([*self.near.chunks, *others.near.chunks]),
            _joined([*self.far.chunks, *others.far.chunks]),
        )

    def protect(self, places: pa.ChunkedArray) -> pa.ChunkedArray:
        """Which files must stay, by their locations; false for a null."""
        named = pc.is_in(places.cast(_TEXT), value_set=self.near)
        if not len(self.far):
            return named
        hits = pc.is_in(last_segments(places), value_set=last_segments(self.far))
        suspects = {*places.filter(hits).to_pylist()}
        longest = longest_of(suspects)
        wanted = pc.is_in(last_segments(self.far), value_set=last_segments(places.filter(hits)))
        # A loop over absolute paths with the name of a candidate: mostly nothing.
        ends: set[str] = set()
        for path in self.far.filter(wanted).to_pylist():
            ends.update(all_endings(path, suspects, longest=longest))
        return pc.or_(named, pc.is_in(places, value_set=array_of(sorted(ends), pa.string())))


def references(actions: Iterable[pa.Table], *, table: str) -> References:
    """The files that actions refer to.

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
        relative, absolute = vector_paths(rows["deletionVector"], table=table)
        near += _all(relative.drop_null())
        for paths in (rows["path"], absolute.drop_null()):
            apart = is_far(paths)
            spelled = (
                _spellings(paths) if apart is None else _spellings(paths.filter(pc.invert(apart)))
            )
            near += spelled
            if apart is not None:
                absolute_paths = paths.filter(apart)
                far += _spellings(absolute_paths)
                near += _spellings(_without_authority(absolute_paths))
    return References(_joined(near), _joined(far))


def last_segments(paths: pa.ChunkedArray) -> pa.ChunkedArray:
    """The names of files, by their paths."""
    return pc.replace_substring_regex(paths.cast(_TEXT), "(?s)^.*/", "")


def _spellings(paths: pa.ChunkedArray) -> list[pa.Array]:
    plain = decoded(paths)
    literal = paths.filter(pc.match_substring(paths, "%"))
    return [*_all(plain), *_all(literal)]


def _all(texts: pa.ChunkedArray) -> list[pa.Array]:
    """The texts, and the irregular ones among them as a file system resolves them."""
    irregular = texts.filter(pc.match_substring_regex(texts, IRREGULAR))
    resolved = mapped(_resolved, irregular)
    return [*texts.chunks, *resolved.chunks]


def _resolved(texts: pa.Array) -> pa.Array:
    # A loop in Python: no writer that is known makes such paths.
    return array_of([posixpath.normpath(text) for text in texts.to_pylist()], pa.string())


def _joined(chunks: list[pa.Array]) -> pa.ChunkedArray:
    return pa.chunked_array([chunk.cast(_TEXT) for chunk in chunks], _TEXT)


def _without_authority(paths: pa.ChunkedArray) -> pa.ChunkedArray:
    """The paths with a scheme and no more than that: their first segment may be a file's name."""
    plain = pc.invert(pc.or_(pc.starts_with(paths, "/"), pc.match_substring(paths, "://")))
    return paths.filter(plain)
