"""Where the files of a log are: its paths as columns, decoded, in the one form that a storage has.

Vacuum compares what a store lists with what the log names, and where two spellings of one file miss each
other it deletes what is alive. So both are brought to one form, the *location*: the path below the table's
root, decoded once (``model/paths.py``), as a storage lists it.

* A relative path is decoded. Only paths with a ``%`` need that, folder by folder, for a partitioned table
  has few of those.
* An absolute path below the root gets the location that it has there, whichever of the names of its
  store it uses (``s3``, ``s3a``), and whether or not it goes by the links that the
  root does. Any other is outside, and has none.
* A path with an empty, a ``.`` or a ``..`` segment has none either: on a file system it is another name
  of some file, in an object store it is the name of another one, and neither is worth a guess. Nor has one
  with a NUL, which is the name of no file.

Who decides what may be deleted takes a path without a location for that of nobody's file; who decides
what must stay looks at more spellings (`vacuum_references`); and who tells what is lost then asks of an
absolute path what it ends with (`places`).
"""

from __future__ import annotations

import os
from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.python_arrays import array_of, joined_text, scalar_of
from airflow_delta.engine.errors import CorruptLogError
from airflow_delta.engine.model.paths import decode_path, is_absolute, resolve
from airflow_delta.engine.replay.file_key import are_relative

__all__ = ["IRREGULAR", "beginnings", "decoded", "is_far", "locations", "mapped", "places"]

IRREGULAR = r"(^|/)\.{0,2}(/|$)|\x00"
"""A path with a segment that a file system resolves: an empty one, ``.`` or ``..``; or with a NUL, which
no name has."""

_SCHEMES = (("s3", "s3a", "s3n"), ("gs", "gcs"), ("abfs", "abfss"))
"""The names of one kind of store."""


def locations(paths: pa.ChunkedArray, *, root: str) -> pa.ChunkedArray:
    """The location of each file; null where it has none. See the module.

    Args:
        paths: of actions, as in the log.
        root: the table's location.

    Raises:
        CorruptLogError: a path can't be decoded.
    """
    plain = _inside(paths, root=root)
    irregular = pc.match_substring_regex(plain, IRREGULAR)
    return pc.if_else(irregular, scalar_of(None, pa.string()), plain)


def places(paths: pa.ChunkedArray, *, root: str) -> pa.ChunkedArray:
    """As `locations`; but an absolute path without one stands for itself, decoded.

    It may be a file of this table all the same, by a name of the root that isn't known here. No location
    can be taken for such a path, nor the other way round.

    Raises:
        CorruptLogError: a path can't be decoded.
    """
    inside = locations(paths, root=root)
    far = is_far(paths)
    if far is None:
        return inside
    outside = pc.and_(far, inside.is_null())
    return pc.if_else(outside, decoded(paths), inside)


def _inside(paths: pa.ChunkedArray, *, root: str) -> pa.ChunkedArray:
    """The paths below the root, decoded; null for what is outside."""
    plain, far = decoded(paths), is_far(paths)
    if far is None:
        return plain
    bases = beginnings(root)

    def _inside_of(chunk: pa.Array) -> pa.Array:
        # A loop in Python, over tables that have absolute paths: clones have them, others don't.
        inside = [
            path if path is None or not is_absolute(path) else _below(bases, resolve(root, path))
            for path in chunk.to_pylist()
        ]
        return array_of(inside, pa.string())

    return pc.if_else(far, mapped(_inside_of, paths), plain)


def decoded(paths: pa.ChunkedArray) -> pa.ChunkedArray:
    """The paths, decoded once.

    Raises:
        CorruptLogError: a path can't be decoded.
    """
    return mapped(_decoded, paths)


def is_far(paths: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """Which paths are absolute; None where none is, which is quickly told."""
    if are_relative(paths):
        return None
    absolute = [
        array_of([path is not None and is_absolute(path) for path in chunk.to_pylist()], pa.bool_())
        for chunk in paths.chunks
    ]
    return pa.chunked_array(absolute, pa.bool_())


def beginnings(root: str) -> tuple[str, ...]:
    """What the location of any file below a root begins with, by each name of its store."""
    base = resolve(root, "")
    scheme, colon, rest = base.partition("://")
    if not colon:
        # A root that is a link, or below one, is mostly called by either of its names.
        bases = dict.fromkeys((base, f"{os.path.realpath(base).rstrip('/')}/"))
        return tuple(f"{scheme}{base}" for base in bases for scheme in ("", "file:", "file://"))
    same = next((names for names in _SCHEMES if scheme in names), (scheme,))
    return tuple(f"{name}://{rest}" for name in same)


def mapped(function: Callable[[pa.Array], pa.Array], column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A function of texts, chunk by chunk: all texts of a table are too much for one array."""
    return pa.chunked_array([function(chunk) for chunk in column.chunks], pa.string())


def _below(bases: tuple[str, ...], location: str) -> str | None:
    base = next((base for base in bases if location.startswith(base)), None)
    return None if base is None else location.removeprefix(base)


def _decoded(paths: pa.Array) -> pa.Array:
    escaped = pc.match_substring(paths, "%")
    if not pc.any(escaped).as_py():
        return paths
    encoded = paths.filter(escaped)
    folders = pc.replace_substring_regex(encoded, "[^/]*$", "")
    names = pc.replace_substring_regex(encoded, "(?s)^.*/", "")
    try:
        plain = joined_text(_each_decoded(folders), _each_decoded(names))
    except CorruptLogError:
        # Once more, for the error that names the whole path.
        for path in encoded.to_pylist():
            decode_path(path)
        raise
    return pc.replace_with_mask(paths, escaped, plain)


def _each_decoded(texts: pa.Array) -> pa.Array:
    """Each text decoded: in Python, but only once for those that are the same."""
    distinct = pc.unique(texts)
    plain = array_of([decode_path(text) for text in distinct.to_pylist()], pa.string())
    return plain.take(pc.index_in(texts, value_set=distinct))
