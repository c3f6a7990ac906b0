"""Decompress a block of Snappy, the codec that most writers of Parquet use.

A block starts with the size of its content. *Elements* follow: literal bytes, or copies of bytes that
earlier elements produced. A copy may overlap with the bytes that it produces.

==========  ==========================  ===================  ==============================
tag & 3     element                     length               offset of a copy
==========  ==========================  ===================  ==============================
0           literal                     tag >> 2, plus 1; for 60 to 63 in the next 1 to 4 bytes
1           copy, one more byte         (tag >> 2 & 7) + 4   (tag >> 5) << 8 | next byte
2           copy, two more bytes        (tag >> 2) + 1       next two bytes
3           copy, four more bytes       (tag >> 2) + 1       next four bytes
==========  ==========================  ===================  ==============================

Spec: format_description.txt of Snappy.
"""

from __future__ import annotations

from airflow_delta.engine.parquet.fallback import PyarrowFallback
from airflow_delta.engine.parquet.thrift import read_varint

__all__ = ["decompress"]


def decompress(data: bytes, *, size: int) -> bytes:
    """Decompress a block.

    Args:
        data: the block, without framing.
        size: the number of bytes that the content must have.

    Raises:
        PyarrowFallback: the block is damaged, or its content has another size.
    """
    try:
        found, position = read_varint(data, 0)
        if found != size:
            raise PyarrowFallback(f"a block of Snappy holds {found} bytes, expected {size}")
        return _content(data, position, size)
    except IndexError as error:
        raise PyarrowFallback("a block of Snappy is cut off") from error


def _content(data: bytes, position: int, size: int) -> bytes:
    out = bytearray()
    while position < len(data):
        tag = data[position]
        position += 1
        element = tag & 3
        if element == 0:
            length = (tag >> 2) + 1
            if length > 60:
                width = length - 60
                length = int.from_bytes(data[position : position + width], "little") + 1
                position += width
            out += data[position : position + length]
            position += length
        else:
            if element == 1:
                length = (tag >> 2 & 7) + 4
                offset = (tag >> 5) << 8 | data[position]
                position += 1
            else:
                width = 2 if element == 2 else 4
                length = (tag >> 2) + 1
                offset = int.from_bytes(data[position : position + width], "little")
                position += width
            _copy(out, offset, length)
        if len(out) > size:
            break
    if position != len(data) or len(out) != size:
        raise PyarrowFallback(f"a block of Snappy doesn't hold the {size} bytes that it says")
    return bytes(out)


def _copy(out: bytearray, offset: int, length: int) -> None:
    start = len(out) - offset
    if not offset or start < 0:
        raise PyarrowFallback(f"a block of Snappy copies from {offset} bytes before")
    if offset >= length:
        out += out[start : start + length]
    else:
        # The copy overlaps with what it produces, so it repeats the last bytes.
        pattern = bytes(out[start:])
        out += (pattern * (length // offset + 1))[:length]
