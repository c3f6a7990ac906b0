"""The key of a logical file: its path and its deletion vector.

PROTOCOL.md, "Action Reconciliation": the key is ``(path, deletionVector.uniqueId)``; no deletion
vector is an id of its own. Two spellings of a path are the same file, so paths with several
spellings are converted to their canonical form first (`canonical_key`). Relative paths without
escapes and dots, as nearly every log has them, are compared as they are.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.action_schema import DELETION_VECTOR_TYPE, FILE_KEY_COLUMNS
from airflow_delta.engine.arrow.numpy_arrays import offsets_view
from airflow_delta.engine.arrow.python_arrays import array_of, joined_text, scalar_of
from airflow_delta.engine.model.file_actions import AddFile, RemoveFile
from airflow_delta.engine.model.paths import IRREGULAR_SEGMENT, canonical_key

__all__ = ["are_keys", "are_relative", "file_keys", "keys_of_files"]

_NOT_RELATIVE = r"^(/|[A-Za-z][A-Za-z0-9+.\-]*:)"
_OTHERWISE_SPELLED = rf"{IRREGULAR_SEGMENT.pattern}|%([a-f][0-9A-Fa-f]|[0-9A-F][a-f])"
"""Relative paths that aren't canonical: with segments to resolve, or escapes in lower case."""
_SLASH, _COLON, _DOT, _PERCENT = b"/:.%"
_SEPARATOR = "\x00"  # Can't be part of a path.


def file_keys(actions: pa.Table, *, table: str) -> pa.ChunkedArray:
    """The key of each file action, as a string; equal keys are the same logical file.

    Args:
        actions: adds or removes with at least ``path`` and ``deletionVector``.
        table: the table's location. An absolute path without a scheme is in the same store.
    """
    paths = _canonical(actions["path"], table)
    vectors = actions["deletionVector"]
    if vectors.null_count == len(vectors):
        return paths
    suffixes = joined_text(_SEPARATOR, _unique_ids(vectors))
    # Without a deletion vector nothing is added, so the key doesn't depend on the other files in
    # the batch.
    return joined_text(paths, pc.coalesce(suffixes, scalar_of("", pa.string())))


def keys_of_files(files: Sequence[AddFile | RemoveFile], *, table: str) -> pa.ChunkedArray:
    """As `file_keys`, for the few files of a commit that is being prepared, which are objects."""
    vectors = [file.deletion_vector.to_json() if file.deletion_vector else None for file in files]
    columns = [
        array_of([file.path for file in files], pa.string()),
        array_of(vectors, DELETION_VECTOR_TYPE),
    ]
    return file_keys(pa.Table.from_arrays(columns, names=list(FILE_KEY_COLUMNS)), table=table)


def are_relative(paths: pa.ChunkedArray) -> bool:
    """Whether all paths are relative."""
    return all(map(_is_surely_relative, paths.chunks)) or not pc.any(_are_absolute(paths)).as_py()


def are_keys(paths: pa.ChunkedArray) -> bool:
    """Whether all paths are their own keys: relative and canonical."""
    if not are_relative(paths):
        return False
    if all(map(_has_canonical_spelling, paths.chunks)):
        return True
    return not pc.any(pc.match_substring_regex(paths, _OTHERWISE_SPELLED)).as_py()


def _unique_ids(vectors: pa.ChunkedArray) -> pa.ChunkedArray:
    """``storageType + pathOrInlineDv [+ "@" + offset]``; null for no deletion vector."""
    kind = pc.struct_field(vectors, "storageType")
    dv_path = pc.struct_field(vectors, "pathOrInlineDv")
    offset = pc.cast(pc.struct_field(vectors, "offset"), pa.string())
    suffix = pc.coalesce(joined_text("@", offset), scalar_of("", pa.string()))
    # struct_field of a null struct is null, and so is anything joined with it.
    return joined_text(kind, dv_path, suffix)


def _canonical(paths: pa.ChunkedArray, table: str) -> pa.ChunkedArray:
    if all(map(_is_surely_relative, paths.chunks)) and all(
        map(_has_canonical_spelling, paths.chunks)
    ):
        return paths
    irregular = pc.or_(_are_absolute(paths), pc.match_substring_regex(paths, _OTHERWISE_SPELLED))
    if not pc.any(irregular).as_py():
        return paths
    # A loop in Python, but only over absolute paths (of cloned tables) and rare spellings.
    rows = pc.indices_nonzero(irregular)
    canonical = [canonical_key(path, table_root=table) for path in paths.take(rows).to_pylist()]
    flat = paths.combine_chunks() if paths.num_chunks != 1 else paths.chunk(0)
    if isinstance(flat, pa.ChunkedArray):
        flat = pa.concat_arrays(flat.chunks)
    mask = irregular.combine_chunks() if isinstance(irregular, pa.ChunkedArray) else irregular
    if isinstance(mask, pa.ChunkedArray):
        mask = pa.concat_arrays(mask.chunks)
    return pa.chunked_array([pc.replace_with_mask(flat, mask, array_of(canonical, pa.string()))])


def _are_absolute(paths: pa.ChunkedArray) -> pa.ChunkedArray:
    """Whether each path isn't relative: it begins with a slash or with a scheme."""
    return pc.match_substring_regex(paths, _NOT_RELATIVE)


def _has_canonical_spelling(paths: pa.Array) -> bool:
    """Whether no path matches `_OTHERWISE_SPELLED`. Ten times as fast as the pattern."""
    offsets = offsets_view(paths)
    if offsets[0] == offsets[-1]:
        return True
    text = np.frombuffer(paths.buffers()[2], np.uint8)[offsets[0] : offsets[-1]]
    # Two bytes may belong to two paths. This gives a false alarm at most.
    follows = text[1:][text[:-1] == _SLASH]
    filled = offsets[:-1][offsets[:-1] < offsets[1:]]
    begins = text[filled - offsets[0]]
    dotted = (follows == _SLASH) | (follows == _DOT)
    return not (dotted.any() or (begins == _DOT).any() or (text == _PERCENT).any())


def _is_surely_relative(paths: pa.Array) -> bool:
    """Whether no path can be absolute. Ten times as fast as the pattern."""
    offsets = offsets_view(paths)
    if offsets[0] == offsets[-1]:
        return True
    text = np.frombuffer(paths.buffers()[2], np.uint8)[: offsets[-1]]
    filled = offsets[:-1] < offsets[1:]
    slashes = text[offsets[:-1][filled]] == _SLASH
    return not (slashes.any() or (text[offsets[0] :] == _COLON).any())
