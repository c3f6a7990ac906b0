"""Take out of a footer what a writer says about its own types.

Arrow stores its schema beside that of Parquet, as the key-value metadata ``ARROW:schema``. A reader then
restores types that Parquet doesn't have, such as dictionaries. Without it the types are those of Parquet.

Spec: parquet.thrift of Apache Parquet, ``FileMetaData``.
"""

from __future__ import annotations

import os
from typing import BinaryIO

from airflow_delta.engine.parquet.fallback import PyarrowFallback
from airflow_delta.engine.parquet.footer_fields import KEY_VALUES, MAGIC, drop_fields
from airflow_delta.engine.parquet.thrift import decode, encode

__all__ = ["read_plain_footer"]

_END = 8


def read_plain_footer(source: BinaryIO, *, size: int) -> bytes:
    """Read the footer of a file without its key-value metadata.

    Args:
        source: the file.
        size: its size in bytes.

    Returns:
        A Parquet file that has this footer, and no data: what a reader of footers takes.

    Raises:
        PyarrowFallback: the footer is damaged.
    """
    source.seek(max(size - _END, 0), os.SEEK_SET)
    end = source.read(_END)
    length = int.from_bytes(end[:4], "little")
    if end[4:] != MAGIC or length > size - _END - len(MAGIC):
        raise PyarrowFallback("the file doesn't end as Parquet does")
    source.seek(size - _END - length, os.SEEK_SET)
    found, consumed = decode(source.read(length))
    if consumed != length:
        raise PyarrowFallback(f"the footer takes {consumed} bytes, expected {length}")
    plain = encode(drop_fields(found, (KEY_VALUES,)))
    return MAGIC + plain + len(plain).to_bytes(4, "little") + MAGIC
