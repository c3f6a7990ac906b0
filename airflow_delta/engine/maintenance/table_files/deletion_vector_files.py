"""Find the files of deletion vectors, for many descriptors at once.

A descriptor names its file by a UUID in Z85 behind an optional prefix (PROTOCOL.md, "Deletion Vector
Descriptor Schema"). A table may have as many descriptors as files, so `locate_deletion_vectors` decodes the
twenty digits of all of them with NumPy. If one is malformed, ``deletion_vectors/read.py`` decodes them one
by one and raises the error.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.numpy_arrays import int32_array, offsets_view
from airflow_delta.engine.arrow.python_arrays import array_of, joined_text, scalar_of
from airflow_delta.engine.deletion_vectors import z85
from airflow_delta.engine.deletion_vectors.read import decode_uuid_path
from airflow_delta.engine.errors import CorruptLogError, DeletionVectorError
from airflow_delta.engine.maintenance.table_files.locations import IRREGULAR, map_chunks
from airflow_delta.engine.model.dv_descriptor import (
    ABSOLUTE_PATH,
    INLINE,
    RELATIVE_PATH,
)

__all__ = ["FILE_NAME", "are_irregular", "check_deletion_vector_paths", "locate_deletion_vectors"]

FILE_NAME = r"(^|/)deletion_vector_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.bin$"
"""The names of deletion vector files, as a regular expression over paths."""

_DIGITS = 20
_ALPHABET = [z85.encode(value.to_bytes(4, "big"))[-1] for value in range(85)]
_NO_DIGIT = 255
_DIGIT = np.full(256, _NO_DIGIT, np.uint8)
_DIGIT[np.frombuffer("".join(_ALPHABET).encode(), np.uint8)] = np.arange(85)
_POWERS = 85 ** np.arange(4, -1, -1, dtype=np.int64)
_HEX = np.frombuffer("".join(f"{byte:02x}" for byte in range(256)).encode(), np.uint8).reshape(
    256, 2
)
_NAME = b"deletion_vector_00000000-0000-0000-0000-000000000000.bin"
_HEX_POSITIONS = np.array(
    [16 + index for index, sign in enumerate(_NAME[16:52]) if sign == ord("0")]
)


def locate_deletion_vectors(
    vectors: pa.ChunkedArray, *, table: str
) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
    """Find the file of each deletion vector, row by row.

    Args:
        vectors: descriptors; null for none.
        table: the table's location, for errors.

    Returns:
        The path below the table, literal; and the absolute path, as in the log. Each is null where it
        doesn't apply. The former may lead out of the table by a prefix that no writer makes: see
        `are_irregular`.

    Raises:
        CorruptLogError: a descriptor is of a kind that the protocol doesn't have.
        DeletionVectorError: a descriptor holds no UUID.
    """
    kinds = pc.struct_field(vectors, "storageType")
    values = pc.struct_field(vectors, "pathOrInlineDv")
    known = pc.is_in(kinds, value_set=array_of([RELATIVE_PATH, ABSOLUTE_PATH, INLINE], pa.string()))
    unknown = kinds.filter(pc.and_(kinds.is_valid(), pc.invert(known)))
    if len(unknown):
        raise CorruptLogError(
            f"a deletion vector has the storage type {unknown[0].as_py()!r}: expected "
            f"{RELATIVE_PATH!r}, {ABSOLUTE_PATH!r} or {INLINE!r}; this engine can't find the file of such "
            "a vector, so use an engine that knows the type",
            table=table,
        )
    nothing = scalar_of(None, pa.string())
    relative, absolute = (
        pc.if_else(pc.equal(kinds, scalar_of(kind, pa.string())), values, nothing)
        for kind in (RELATIVE_PATH, ABSOLUTE_PATH)
    )
    return map_chunks(_locate, relative), absolute


def are_irregular(paths: pa.ChunkedArray) -> pa.ChunkedArray:
    """Whether each path of `locate_deletion_vectors` names no file below the table: null stays null.

    An irregular path has an absolute prefix, an empty segment, ``.``, ``..`` or a NUL.
    """
    return pc.match_substring_regex(paths, IRREGULAR)


def check_deletion_vector_paths(paths: pa.ChunkedArray, *, table: str) -> None:
    """Check that the files of deletion vectors are below the table.

    Args:
        paths: by `locate_deletion_vectors`.
        table: the table's location, for errors.

    Raises:
        DeletionVectorError: a path names no file there. Facts: path.
    """
    wrong = paths.filter(are_irregular(paths))
    if len(wrong):
        path = wrong[0].as_py()
        raise DeletionVectorError(
            f"a deletion vector is in the file {path!r}, which is no path below the table: expected a "
            "relative path without '..'; DeltaTable.restore() or RestoreOperator to a version before it",
            table=table,
            path=path,
        )


def _locate(values: pa.Array) -> pa.Array:
    """Find the file of each deletion vector that is named by a UUID: null stays null."""
    # Many deletion vectors share a file, each at an offset of its own.
    distinct = pc.unique(values).drop_null()
    if not len(distinct):
        return pa.nulls(len(values), pa.string())
    return _make_names(distinct).take(pc.index_in(values, value_set=distinct))


def _make_names(values: pa.Array) -> pa.Array:
    digits = _decode_digits(values)
    numbers = None if digits is None else digits.reshape(-1, 4, 5).astype(np.int64) @ _POWERS
    if digits is None or numbers is None or (digits == _NO_DIGIT).any() or (numbers >> 32).any():
        return array_of([decode_uuid_path(value) for value in values.to_pylist()], pa.string())
    uuids = numbers.astype(">u4").view(np.uint8).reshape(-1, 16)
    names = np.tile(np.frombuffer(_NAME, np.uint8), (len(uuids), 1))
    names[:, _HEX_POSITIONS] = _HEX[uuids].reshape(-1, 32)
    offsets = np.arange(len(uuids) + 1, dtype=np.int32) * len(_NAME)
    files = pa.Array.from_buffers(
        pa.string(), len(uuids), [None, int32_array(offsets).buffers()[1], pa.py_buffer(names)]
    )
    # The digits are single bytes, so in front of them there are whole characters.
    prefixes = pc.utf8_slice_codeunits(values, 0, -_DIGITS)
    in_folder = pc.greater(pc.binary_length(prefixes), scalar_of(0, pa.int32()))
    return pc.if_else(in_folder, joined_text(prefixes, "/", files), files)


def _decode_digits(values: pa.Array) -> np.ndarray[Any, Any] | None:
    """The last twenty bytes of each text; None where one is shorter."""
    ends = offsets_view(values)[1:]
    if (np.diff(offsets_view(values)) < _DIGITS).any():
        return None
    text = np.frombuffer(values.buffers()[2], np.uint8)
    digits: np.ndarray[Any, Any] = _DIGIT[text[ends[:, None] + np.arange(-_DIGITS, 0)]]
    return digits
