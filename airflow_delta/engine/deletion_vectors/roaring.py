"""The serialised form of a deletion vector: a 64-bit roaring bitmap after a magic number.

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

All three forms are read, and the portable one is written. 32-bit bitmaps are always little-endian. The most
significant bit of each key is 0, so positions aren't negative as signed numbers.

Spec: PROTOCOL.md, "Deletion Vector Format".
"""

from __future__ import annotations

import struct

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap, BitMap64

from airflow_delta.engine.errors import DeletionVectorError

__all__ = ["deserialize", "serialize", "to_positions"]

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
        bitmap = _deserialize_portable(payload)
    elif data.startswith(struct.pack("<I", _NATIVE_MAGIC)):
        bitmap = _deserialize_native(payload, "<")
    elif data.startswith(struct.pack(">I", _NATIVE_MAGIC)):
        bitmap = _deserialize_native(payload, ">")
    else:
        raise DeletionVectorError(
            "the deletion vector doesn't begin with a magic number: expected "
            f"{_PORTABLE_MAGIC} or {_NATIVE_MAGIC}"
        )
    _check_positions(bitmap)
    return bitmap


def to_positions(bitmap: BitMap64) -> npt.NDArray[np.int64]:
    """Return the positions of a set as an ascending array, without a loop in Python."""
    values = np.frombuffer(bitmap.to_array(), dtype=np.uint64)
    # Safe: `_check_positions` keeps the sign bit free.
    return values.view(np.int64)


def _deserialize_portable(payload: bytes) -> BitMap64:
    try:
        # The library's own format is the portable one; it checks order, keys and containers.
        return BitMap64.deserialize(payload)
    except (ValueError, IndexError) as error:  # an IndexError where there is no byte at all
        raise DeletionVectorError(
            f"the {len(payload)} bytes after the magic number aren't a portable 64-bit roaring "
            f"bitmap: {error}"
        ) from error


def _deserialize_native(payload: bytes, order: str) -> BitMap64:
    number = struct.Struct(f"{order}i")
    buckets: list[bytes] = []
    at = number.size
    # Converted to the portable form, so that the library joins the bitmaps. It doesn't expand runs, which
    # may be any number of positions in a few bytes.
    for key in range(_read_int(payload, 0, number)):
        size = _read_int(payload, at, number)
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
    return _deserialize_portable(struct.pack("<Q", len(buckets)) + b"".join(buckets))


def _read_int(payload: bytes, at: int, number: struct.Struct) -> int:
    if at + number.size > len(payload):
        raise DeletionVectorError(
            f"the native deletion vector is cut off at byte {len(payload)} after its magic number"
        )
    value: int = number.unpack_from(payload, at)[0]
    return value


def _check_positions(bitmap: BitMap64) -> None:
    if bitmap and bitmap.max() >= _POSITION_LIMIT:
        raise DeletionVectorError(
            f"the deletion vector holds the position {bitmap.max()}: expected less than 2**63, as "
            "the most significant bit of a key must be 0"
        )
