"""Read the end of a Parquet file, with its footer, and see there whether columns are encrypted.

A file may have a readable footer and encrypted columns ("plaintext footer mode"). pyarrow doesn't show
that. If the metadata of such a column are asked for, it ends the whole process without a Python error.

Spec: parquet.thrift, ``FileMetaData``, and Encryption.md of Apache Parquet.
"""

from __future__ import annotations

import os
from typing import BinaryIO

from airflow_delta.engine.parquet.field_ids import FOOTER_END
from airflow_delta.engine.parquet.thrift import decode

__all__ = ["has_encrypted_columns", "read_file_end"]

_MOST_FOOTERS = 64 << 10
"""So many bytes are read at first; most footers are shorter."""

_ENCRYPTION_ALGORITHM = 8


def read_file_end(source: BinaryIO) -> bytes:
    """Read the end of a file, with the whole footer.

    Arrow would read it piece by piece, each through Python, where threads that open files wait for each
    other. From these bytes it parses the footer in memory.

    Args:
        source: the file.

    Returns:
        The last bytes. If the file doesn't end as Parquet does, or its footer would be longer than the
        file, they have no whole footer; that is left to the parser.
    """
    size = source.seek(0, os.SEEK_END)
    end = _last(source, size, min(size, _MOST_FOOTERS))
    needed = int.from_bytes(end[-FOOTER_END:-4], "little") + FOOTER_END
    return _last(source, size, needed) if len(end) < needed <= size else end


def _last(source: BinaryIO, size: int, length: int) -> bytes:
    source.seek(size - length, os.SEEK_SET)
    return source.read(length)


def has_encrypted_columns(end: bytes, parsed: int) -> bool:
    """Whether a file whose footer can be read has encrypted columns.

    Args:
        end: the end of the file, from `read_file_end`.
        parsed: the length of the struct in the footer, as a parser has found it: ``serialized_size`` of
            pyarrow.

    Raises:
        PyarrowFallback: the footer is damaged.
    """
    length = int.from_bytes(end[-FOOTER_END:-4], "little")
    # The footer of such a file is signed, and the signature follows the struct.
    if length == parsed:
        return False
    footer, _ = decode(end, len(end) - FOOTER_END - length)
    return _ENCRYPTION_ALGORITHM in footer.fields
