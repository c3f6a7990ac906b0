"""Turn the paths of a log into locations: decoded, below the table's root, in the form that storages list.

Vacuum compares what a store lists with what the log names. If two spellings of one file don't match, it
deletes a live file. So both are brought to one form (``model/paths.py``):

* A relative path is decoded once.
* An absolute path below the root becomes the path below it. The root may be spelled with any scheme of its
  store (``s3``, ``s3a``), and with or without the links in it. Other absolute paths have no location.
* A path with an empty, a ``.`` or a ``..`` segment, or with a NUL, has no location (`IRREGULAR`).

Each caller decides what a path without a location means. A vacuum never deletes it, and protects more
spellings than this one (``vacuum/references.py``). The search of lost files uses `locate_or_decode`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.python_arrays import array_of, joined_text, scalar_of
from airflow_delta.engine.errors import CorruptLogError
from airflow_delta.engine.model.paths import decode_path, is_absolute, resolve
from airflow_delta.engine.replay.file_key import are_relative

__all__ = [
    "IRREGULAR",
    "are_absolute",
    "decode_paths",
    "list_root_prefixes",
    "locate_or_decode",
    "locate_paths",
    "map_chunks",
]

IRREGULAR = r"(^|/)\.{0,2}(/|$)|\x00"
"""A path with an empty, a ``.`` or a ``..`` segment, or with a NUL.

A file system resolves such a path to another file; an object store has another object of that name. A NUL
is in no file's name. Guessing isn't worth it."""

_SCHEMES = (("s3", "s3a", "s3n"), ("gs", "gcs"), ("abfs", "abfss"))
"""Schemes that mean the same store."""


def locate_paths(paths: pa.ChunkedArray, *, root: str) -> pa.ChunkedArray:
    """Return the location of each file below the root; null where it has none. See the module.

    Args:
        paths: of actions, as in the log.
        root: the table's location.

    Raises:
        CorruptLogError: a path can't be decoded.
    """
    plain = _locate_inside(paths, root=root)
    irregular = pc.match_substring_regex(plain, IRREGULAR)
    return pc.if_else(irregular, scalar_of(None, pa.string()), plain)


def locate_or_decode(paths: pa.ChunkedArray, *, root: str) -> pa.ChunkedArray:
    """Return locations as `locate_paths` does, but the decoded path where an absolute path has none.

    Such a path may still be a file of this table, by a name of the root that isn't known here. It can't be
    confused with a location, because it is absolute.

    Raises:
        CorruptLogError: a path can't be decoded.
    """
    inside = locate_paths(paths, root=root)
    far = are_absolute(paths)
    if far is None:
        return inside
    outside = pc.and_(far, inside.is_null())
    return pc.if_else(outside, decode_paths(paths, table=root), inside)


def _locate_inside(paths: pa.ChunkedArray, *, root: str) -> pa.ChunkedArray:
    """Return the decoded paths below the root; null for what is outside."""
    plain, far = decode_paths(paths, table=root), are_absolute(paths)
    if far is None:
        return plain
    bases = list_root_prefixes(root)

    def _locate_chunk(chunk: pa.Array) -> pa.Array:
        # A loop in Python: only clones have absolute paths.
        inside = [
            path
            if path is None or not is_absolute(path)
            else _strip_prefix(bases, resolve(root, path))
            for path in chunk.to_pylist()
        ]
        return array_of(inside, pa.string())

    return pc.if_else(far, map_chunks(_locate_chunk, paths), plain)


def decode_paths(paths: pa.ChunkedArray, *, table: str) -> pa.ChunkedArray:
    """Decode the paths once.

    Args:
        paths: the paths of actions, encoded.
        table: the table's location, for the error.

    Raises:
        CorruptLogError: a path can't be decoded.
    """
    return map_chunks(partial(_decode_chunk, table=table), paths)


def are_absolute(paths: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """Whether each path is absolute; None if none is, which is quick to find out."""
    if are_relative(paths):
        return None
    absolute = [
        array_of([path is not None and is_absolute(path) for path in chunk.to_pylist()], pa.bool_())
        for chunk in paths.chunks
    ]
    return pa.chunked_array(absolute, pa.bool_())


def list_root_prefixes(root: str) -> tuple[str, ...]:
    """List the prefixes that locations below a root may have, one for each name of its store."""
    base = resolve(root, "")
    scheme, colon, rest = base.partition("://")
    if not colon:
        # If the root is a link, or below one, writers use its own name or the one it resolves to.
        bases = dict.fromkeys((base, f"{os.path.realpath(base).rstrip('/')}/"))
        return tuple(f"{scheme}{base}" for base in bases for scheme in ("", "file:", "file://"))
    same = next((names for names in _SCHEMES if scheme in names), (scheme,))
    return tuple(f"{name}://{rest}" for name in same)


def map_chunks(
    function: Callable[[pa.Array], pa.Array], column: pa.ChunkedArray
) -> pa.ChunkedArray:
    """Apply a function to texts chunk by chunk: all texts of a table may be too much for one array."""
    return pa.chunked_array([function(chunk) for chunk in column.chunks], pa.string())


def _strip_prefix(bases: tuple[str, ...], location: str) -> str | None:
    base = next((base for base in bases if location.startswith(base)), None)
    return None if base is None else location.removeprefix(base)


def _decode_chunk(paths: pa.Array, *, table: str) -> pa.Array:
    escaped = pc.match_substring(paths, "%")
    if not pc.any(escaped).as_py():
        return paths
    encoded = paths.filter(escaped)
    # Folder by folder: a partitioned table has few distinct ones.
    folders = pc.replace_substring_regex(encoded, "[^/]*$", "")
    names = pc.replace_substring_regex(encoded, "(?s)^.*/", "")
    try:
        plain = joined_text(_decode_each(folders), _decode_each(names))
    except CorruptLogError:
        # Decode again one by one, so that the error names the whole path.
        for path in encoded.to_pylist():
            decode_path(path, table=table)
        raise
    return pc.replace_with_mask(paths, escaped, plain)


def _decode_each(texts: pa.Array) -> pa.Array:
    """Decode each text, in Python but only once for equal ones."""
    distinct = pc.unique(texts)
    plain = array_of([decode_path(text) for text in distinct.to_pylist()], pa.string())
    return plain.take(pc.index_in(texts, value_set=distinct))
