"""Candidates that may be files which the table needs, under a name that the log doesn't have.

One file may have several names, and a store lists one of them:

* file systems without case hold ``part=A/f2`` where a writer has made ``part=a/f2``, and some take ``é``
  for the same in one character or in two;
* a directory in a table may be a link to another one;
* a writer may encode paths in a way of its own, such as ``+`` for a space.

So where a file that the table needs isn't found under its own name, each candidate with the same last
segment stays, compared without case and in one normal form: data files are named by UUIDs, and nobody
else's file has such a name. That takes a listing, which has all files. Where the candidates are some of the
files, most of what the table needs isn't among them; then whole paths are compared.
"""

from __future__ import annotations

import posixpath
import unicodedata
from collections.abc import Iterator
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.python_arrays import array_of
from airflow_delta.engine.maintenance.table_files.path_endings import all_endings, longest_of
from airflow_delta.engine.maintenance.vacuum.references import References, last_segments

__all__ = ["folded", "folded_names", "under_other_names"]

_TEXT = pa.large_string()


def folded(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    """Texts as a file system without case compares them."""
    lower = pc.ascii_lower(texts.cast(_TEXT))
    other = pc.invert(pc.string_is_ascii(lower))
    if not pc.any(other).as_py():
        return lower
    # A loop in Python, for Arrow has no case folding: few tables have such names.
    distinct = pc.unique(lower.filter(other))
    plain = array_of([_folded(text) for text in distinct.to_pylist()], pa.string()).cast(_TEXT)
    known = plain.take(pc.index_in(lower, value_set=distinct))
    return pc.coalesce(known, lower)


def folded_names(paths: pa.ChunkedArray) -> pa.ChunkedArray:
    """The last segments of paths, `folded`: all names of a file on a file system have the same."""
    return folded(last_segments(paths))


def under_other_names(
    candidates: pa.ChunkedArray, needed: References, listed: pa.ChunkedArray | None
) -> pa.ChunkedArray:
    """Which candidates may be files that the table needs.

    Args:
        candidates: paths below the root, none of which the table needs under that name.
        needed: the files that the table needs.
        listed: the paths of all files that there are; None where only some are known.
    """
    names = folded_names(candidates)
    near = needed.near.filter(pc.is_in(folded_names(needed.near), value_set=names))
    if listed is None:
        return pc.is_in(folded(candidates), value_set=folded(near))
    far = needed.far.filter(pc.is_in(folded_names(needed.far), value_set=names))
    lost = folded_names(_not_there(near, far, listed))
    return pc.is_in(names, value_set=lost)


def _not_there(
    near: pa.ChunkedArray, far: pa.ChunkedArray, listed: pa.ChunkedArray
) -> pa.ChunkedArray:
    """The paths that aren't among those listed in any of their own spellings."""
    if len(near):
        near = near.filter(pc.invert(pc.is_in(near, value_set=listed.cast(_TEXT))))
    # Loops over what has the name of a candidate and isn't found by its own: mostly nothing.
    spelled = {path: {*_spellings(path)} for path in (*near.to_pylist(), *far.to_pylist())}
    if not spelled:
        return pa.chunked_array([array_of([], pa.string())])
    names = {text.rpartition("/")[2] for texts in spelled.values() for text in texts}
    same = pc.is_in(
        last_segments(listed), value_set=array_of(sorted(names), pa.string()).cast(_TEXT)
    )
    there = {*listed.filter(same).to_pylist()}
    longest = longest_of(there)
    lost = [path for path in near.to_pylist() if there.isdisjoint(spelled[path])]
    lost += [
        path
        for path in far.to_pylist()
        if not any(
            True for text in spelled[path] for _ in all_endings(text, there, longest=longest)
        )
    ]
    return pa.chunked_array([array_of(lost, pa.string())])


def _folded(text: str) -> str:
    # Folding may undo what the normal form has joined.
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold())


def _spellings(path: str) -> Iterator[str]:
    """The places of a path that is decoded or isn't, resolved or not."""
    for text in (path, unquote(path)):
        yield text
        yield posixpath.normpath(text)
