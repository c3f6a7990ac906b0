"""The serialised form of a deletion vector: a 64-bit roaring bitmap behind a magic number.

=============  ================  ==================================================================
magic number   byte order        what follows
=============  ================  ==================================================================
1681511377     little            *portable*: the 64-bit format of the RoaringBitmap specification:
                                 a u64 count of buckets, then each bucket's u32 key (the upper half
                                 of its values) and 32-bit bitmap, keys ascending
1681511376     little            *native*, of early writers: an i32 count of bitmaps, then each
                                 one's i32 size and bytes; the n-th bitmap has the key n
1681511376     big               the same with big-endian numbers: the inline example of PROTOCOL.md
=============  ================  ==================================================================

All three are read, the portable form is written. 32-bit bitmaps are little-endian in all of them.
The most significant bit of every key is 0, so that positions are non-negative as signed numbers,
too.

Spec: PROTOCOL.md, "Deletion Vector Format".
"""

from __future__ import annotations

import struct

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap, BitMap64

from airflow_delta.engine.errors import DeletionVectorError

__all__ = ["deserialize", "positions", "serialize"]

_PORTABLE_MAGIC = 1681511377
_NATIVE_MAGIC = 1681511376
_POSITION_LIMIT = 1 << 63


def serialize(bitmap: BitMap64) -> bytes:
    """Serialise a set of positions in the portable form.

    Raises:
        DeletionVectorError: a position is 2⁶³ or larger.
    """
    _check_positions(bitmap)
    data: bytes = bitmap.serialize()
    return struct.pack("<I", _PORTABLE_MAGIC) + data


def deserialize(data: bytes) -> BitMap64:
    """Read a set of positions in any of the three forms.

    Raises:
        DeletionVectorError: the magic number is unknown, or the bytes are not such a bitmap.
    """
    if len(data) < 4:
        raise DeletionVectorError(
            f"the deletion vector is cut off: found {len(data)} bytes, expected at least 4"
        )
    payload = data[4:]
    if data.startswith(struct.pack("<I", _PORTABLE_MAGIC)):
        bitmap = _portable(payload)
    elif data.startswith(struct.pack("<I", _NATIVE_MAGIC)):
        bitmap = _native(payload, "<")
    elif data.startswith(struct.pack(">I", _NATIVE_MAGIC)):
        bitmap = _native(payload, ">")
    else:
        raise DeletionVectorError(
            "the deletion vector doesn't begin with a magic number: expected "
            f"{_PORTABLE_MAGIC} or {_NATIVE_MAGIC}"
        )
    _check_positions(bitmap)
    return bitmap


def positions(bitmap: BitMap64) -> npt.NDArray[np.int64]:
    """The positions of a set, ascending, as an array: 8 bytes each, without a loop in Python."""
    values = np.frombuffer(bitmap.to_array(), dtype=np.uint64)
    # Safe: `_check_positions` keeps the sign bit free.
    return values.view(np.int64)


def _portable(payload: bytes) -> BitMap64:
    try:
        # The library's own format is the portable one; it checks order, keys and containers.
        return BitMap64.deserialize(payload)
    except (ValueError, IndexError) as error:  # an IndexError where there is no byte at all
        raise DeletionVectorError(
            f"the {len(payload)} bytes behind the magic number are no portable 64-bit roaring "
            f"bitmap: {error}"
        ) from error


def _native(payload: bytes, order: str) -> BitMap64:
    number = struct.Struct(f"{order}i")
    buckets: list[bytes] = []
    at = number.size
    # As the portable form, so that the library joins the bitmaps: it keeps runs as runs, of which
    # a few bytes may stand for any number of positions.
    for key in range(_int_at(payload, 0, number)):
        size = _int_at(payload, at, number)
        at += number.size
        if size < 0 or at + size > len(payload):
            raise DeletionVectorError(
                f"bitmap {key} of the native deletion vector is cut off: it needs {size} bytes, "
                f"found {len(payload) - at}"
            )
        try:
            bucket = BitMap.deserialize(payload[at : at + size])
        except (ValueError, IndexError) as error:  # an IndexError where there is no byte at all
            raise DeletionVectorError(
                f"bitmap {key} of the native deletion vector is damaged: {error}"
            ) from error
        if bucket:
            buckets.append(struct.pack("<I", key) + bucket.serialize())
        at += size
    return _portable(struct.pack("<Q", len(buckets)) + b"".join(buckets))


def _int_at(payload: bytes, at: int, number: struct.Struct) -> int:
    if at + number.size > len(payload):
        raise DeletionVectorError(
            f"the native deletion vector is cut off at byte {len(payload)} behind its magic number"
        )
    value: int = number.unpack_from(payload, at)[0]
    return value


def _check_positions(bitmap: BitMap64) -> None:
    if bitmap and bitmap.max() >= _POSITION_LIMIT:
        raise DeletionVectorError(
            f"the deletion vector holds the position {bitmap.max()}: expected less than 2**63, as "
            "the most significant bit of a key must be 0"
        )
