"""Hide in a footer what a writer says about its own types.

Arrow stores its schema beside that of Parquet, as the key-value metadata ``ARROW:schema``. A reader then
restores types that Parquet doesn't have, such as dictionaries. Without it the types are those of Parquet.

Spec: parquet.thrift of Apache Parquet, ``FileMetaData``.
"""

from __future__ import annotations

__all__ = ["ARROW_SCHEMA", "hide_arrow_schema"]

ARROW_SCHEMA = b"ARROW:schema"
"""The key of the metadata."""

_HIDDEN = b"hidden:types"  # As long as the key, so that the footer keeps its length.


def hide_arrow_schema(footer: bytes) -> bytes:
    """Give another name to the key of Arrow's schema.

    The footer isn't decoded, which takes long in Python. So other bytes may be taken for the key. Then the
    new footer still has the key, and the caller must not use it.

    Args:
        footer: the end of a file, from its footer on or before.
    """
    length = bytes([len(ARROW_SCHEMA)])
    # The metadata follow the statistics of the columns, in which there may be any bytes.
    before, _, after = footer.rpartition(length + ARROW_SCHEMA)
    return before + length + _HIDDEN + after
