"""Deletion vector files: vectors one after the other, each in a frame.

::

    byte 0             version of the format: 1
    then per vector    u32 size · data of that size · u32 CRC-32 of the data

The numbers of the frame are big-endian, unlike those inside the data (see `roaring`). A
descriptor's ``offset`` is that of the size, not of the data; its ``sizeInBytes`` is the data's
alone.

Spec: PROTOCOL.md, "Deletion Vector File Storage Format".
"""

from __future__ import annotations

import struct
import zlib

from airflow_delta.engine.errors import DeletionVectorError

__all__ = ["FIRST_OFFSET", "FRAME_OVERHEAD", "check_version", "frame", "unframe"]

FIRST_OFFSET = 1
"""Where the first vector of a file begins: right behind the version."""

FRAME_OVERHEAD = 8
"""Bytes of a frame besides the data: size and checksum."""

_VERSION = 1
_NUMBER = struct.Struct(">I")


def check_version(head: bytes) -> None:
    """Check the version at the beginning of a file.

    Args:
        head: the first byte of the file, or more.

    Raises:
        DeletionVectorError: the file is empty or of another version.
    """
    if head[:1] != bytes([_VERSION]):
        found = f"version {head[0]}" if head else "an empty file"
        raise DeletionVectorError(f"found {found}, expected version {_VERSION} of the format")


def frame(data: bytes) -> bytes:
    """Put serialised data into a frame."""
    return _NUMBER.pack(len(data)) + data + _NUMBER.pack(zlib.crc32(data))


def unframe(framed: bytes, *, size: int) -> bytes:
    """Take the data out of a frame.

    Args:
        framed: the bytes from the vector's offset on.
        size: the size of the data that the descriptor states.

    Raises:
        DeletionVectorError: the frame is cut off, states another size, or the checksum differs.
    """
    needed = size + FRAME_OVERHEAD
    if len(framed) < needed:
        raise DeletionVectorError(f"the frame is cut off: found {len(framed)} of {needed} bytes")
    found_size = _NUMBER.unpack_from(framed, 0)[0]
    if found_size != size:
        raise DeletionVectorError(
            f"the frame states a size of {found_size} bytes, the descriptor {size}"
        )
    data = framed[_NUMBER.size : _NUMBER.size + size]
    stated = _NUMBER.unpack_from(framed, _NUMBER.size + size)[0]
    found = zlib.crc32(data)
    if found != stated:
        raise DeletionVectorError(
            f"the data's CRC-32 is 0x{found:08x}, the frame states 0x{stated:08x}"
        )
    return data
