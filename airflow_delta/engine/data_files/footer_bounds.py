"""Whether the bounds in a footer can be used; and which program has written them.

parquet-mr before 1.10 and parquet-cpp before 1.3 ordered the bounds of all byte arrays by signed bytes, in
fields that are deprecated since then. Arrow leaves out those of texts, but not those of decimals, whose
numbers are in another order. So such decimals have no bounds here. A file that doesn't name its writer is
old.

Spec: parquet.thrift of Apache Parquet, ``Statistics`` and ``ColumnOrder``; PARQUET-251, PARQUET-1025.
"""

from __future__ import annotations

import re
from typing import Any

__all__ = ["has_usable_bounds", "writer_of"]

_CREATED_BY = re.compile(r"(.*?)(?: version(?: (\d+)\.(\d+))?.*|\s*\(build.*)?", re.DOTALL)
"""As Arrow reads it. The name of a program may have several words, such as that of Databricks' Photon."""

_FIRST_ORDERED = {"parquet-mr": (1, 10), "parquet-cpp": (1, 3)}
"""The first versions of programs that order decimals as numbers; other programs always did."""


def has_usable_bounds(footer: Any, leaf: int) -> bool:
    """Whether the bounds of a column, where the footer has them, are in the order of its values.

    Args:
        footer: the footer, a ``pyarrow.parquet.FileMetaData``.
        leaf: the index of the column's chunks in a row group.
    """
    column = footer.schema.column(leaf)
    if column.physical_type not in ("BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY"):
        return True
    if column.logical_type.type != "DECIMAL":
        return True
    program, version = writer_of(footer)
    return bool(program) and version >= _FIRST_ORDERED.get(program, (0, 0))


def writer_of(footer: Any) -> tuple[str, tuple[int, int]]:
    """The program that has written a file, and its major and minor version; no name or 0.0 if unknown.

    Args:
        footer: the footer, a ``pyarrow.parquet.FileMetaData``.
    """
    found = _CREATED_BY.fullmatch(footer.created_by or "")
    assert found is not None  # Any text matches.
    program, major, minor = found.groups()
    return program, (int(major or 0), int(minor or 0))
