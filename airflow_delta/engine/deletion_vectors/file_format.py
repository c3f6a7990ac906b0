"""The format of deletion vector files: vectors one after the other, each in a frame.

::

    byte 0             version of the format: 1
    then per vector    u32 size · data of that size · u32 CRC-32 of the data

The numbers of the frame are big-endian, unlike those inside the data (see `roaring`). A descriptor's
``offset`` is that of the size, not of the data. Its ``sizeInBytes`` is the size of the data alone.

Spec: PROTOCOL.md, "Deletion Vector File Storage Format".
"""

from __future__ import annotations

import struct
import zlib

from airflow_delta.engine.errors import DeletionVectorError

__all__ = [
    "FIRST_OFFSET",
    "FRAME_OVERHEAD",
    "VERSION_BYTE",
    "check_version",
    "frame",
    "unframe",
]

FIRST_OFFSET = 1
"""The offset of the first vector of a file: after the version."""

FRAME_OVERHEAD = 8
"""The bytes of a frame without the data: size and checksum."""

_VERSION = 1
VERSION_BYTE = bytes([_VERSION])
"""The first byte of a file: the version of the format."""

_NUMBER = struct.Struct(">I")


def check_version(head: bytes) -> None:
    """Check the version at the beginning of a file.

    Args:
        head: the first byte of the file, or more.

    Raises:
        DeletionVectorError: the file is empty or of another version.
    """
    if head[:1] != VERSION_BYTE:
        # The content isn't quoted, because the file may not belong to a table.
        found = "a file of another format" if head else "an empty file"
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
    # The errors don't quote the content, because the file may not belong to the table.
    if _NUMBER.unpack_from(framed, 0)[0] != size:
        raise DeletionVectorError(f"the frame doesn't state the descriptor's size of {size} bytes")
    data = framed[_NUMBER.size : _NUMBER.size + size]
    stated = _NUMBER.unpack_from(framed, _NUMBER.size + size)[0]
    if zlib.crc32(data) != stated:
        raise DeletionVectorError("the data's CRC-32 isn't the one that the frame states")
    return data
