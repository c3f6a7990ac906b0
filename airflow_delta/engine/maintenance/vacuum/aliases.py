"""Find candidates that may be files which the table needs, under another name than the log's.

One file may have several names, and a store lists one of them:

* a file system without case holds ``part=A/f2`` where a writer has made ``part=a/f2``; some also treat
  ``é`` as one character and as two;
* a directory in a table may be a link to another one;
* a writer may encode paths in its own way, such as ``+`` for a space.

So if a needed file isn't listed under its own name, every candidate with the same last segment stays,
compared without case and in one normal form. Data files are named by UUIDs, so hardly any other file stays.
"""

from __future__ import annotations

import posixpath
import unicodedata
from collections.abc import Iterator
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.python_arrays import array_of
from airflow_delta.engine.maintenance.table_files.path_endings import (
    iter_known_endings,
    longest_length,
)
from airflow_delta.engine.maintenance.vacuum.references import References, get_file_names

__all__ = ["fold_case", "fold_names", "may_be_aliases"]

_TEXT = pa.large_string()


def fold_case(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return texts in the form in which a file system without case compares them."""
    lower = pc.ascii_lower(texts.cast(_TEXT))
    other = pc.invert(pc.string_is_ascii(lower))
    if not pc.any(other).as_py():
        return lower
    # A loop in Python, since Arrow has no case folding; few tables have such names.
    distinct = pc.unique(lower.filter(other))
    plain = array_of([_fold_text(text) for text in distinct.to_pylist()], pa.string()).cast(_TEXT)
    known = plain.take(pc.index_in(lower, value_set=distinct))
    return pc.coalesce(known, lower)


def fold_names(paths: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the last segments of paths by `fold_case`: all names of one file have the same."""
    return fold_case(get_file_names(paths))


def may_be_aliases(
    candidates: pa.ChunkedArray, needed: References, listed: pa.ChunkedArray | None
) -> pa.ChunkedArray:
    """Whether each candidate may be a file that the table needs.

    Args:
        candidates: paths below the root, none of which the table needs under that name.
        needed: the files that the table needs.
        listed: the paths of all existing files; None where only some are known.
    """
    names = fold_names(candidates)
    near = needed.near.filter(pc.is_in(fold_names(needed.near), value_set=names))
    if listed is None:
        # Most needed files aren't among the candidates then, so whole paths are compared.
        return pc.is_in(fold_case(candidates), value_set=fold_case(near))
    far = needed.far.filter(pc.is_in(fold_names(needed.far), value_set=names))
    lost = fold_names(_find_unlisted(near, far, listed))
    return pc.is_in(names, value_set=lost)


def _find_unlisted(
    near: pa.ChunkedArray, far: pa.ChunkedArray, listed: pa.ChunkedArray
) -> pa.ChunkedArray:
    """Return the needed paths that aren't listed in any of their own spellings."""
    if len(near):
        near = near.filter(pc.invert(pc.is_in(near, value_set=listed.cast(_TEXT))))
    # Loops over needed files that share a name with a candidate and aren't listed: mostly none.
    spelled = {path: {*_list_spellings(path)} for path in (*near.to_pylist(), *far.to_pylist())}
    if not spelled:
        return pa.chunked_array([array_of([], pa.string())])
    names = {text.rpartition("/")[2] for texts in spelled.values() for text in texts}
    same = pc.is_in(
        get_file_names(listed), value_set=array_of(sorted(names), pa.string()).cast(_TEXT)
    )
    there = {*listed.filter(same).to_pylist()}
    longest = longest_length(there)
    lost = [path for path in near.to_pylist() if there.isdisjoint(spelled[path])]
    lost += [
        path
        for path in far.to_pylist()
        if not any(
            True for text in spelled[path] for _ in iter_known_endings(text, there, longest=longest)
        )
    ]
    return pa.chunked_array([array_of(lost, pa.string())])


def _fold_text(text: str) -> str:
    # Normalize again: folding case may break the normal form.
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold())


def _list_spellings(path: str) -> Iterator[str]:
    """Yield the path as it is and decoded, each with and without its dot segments."""
    for text in (path, unquote(path)):
        yield text
        yield posixpath.normpath(text)
