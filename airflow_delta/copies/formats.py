"""The formats of copies, and which columns each of them can hold.

===========  =====================================================================================
format       a copy is
===========  =====================================================================================
``delta``    a clone: a Delta table of its own with the same schema, properties and files
``parquet``  a directory of Parquet files
``csv``      a directory of CSV files
``json``     a directory of files with a JSON object in each line
===========  =====================================================================================

Copies as text hold every value so that it can be told from all others; see `text_files` for how. What
that can't be said of is refused before any work is done, by the columns' names:

==================================  =====================  ======================================
type                                ``csv``                ``json``
==================================  =====================  ======================================
struct, array, map                  refused                an object, or a list; of maps those
                                                           with texts as keys, others are refused
binary                              refused                text in base64
void                                refused                null
variant                             refused                refused
==================================  =====================  ======================================

No PySpark here: whoever submits a copy looks at the columns first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.engine.model.schema import (
    BINARY,
    STRING,
    VARIANT,
    VOID,
    ArrayType,
    DataType,
    MapType,
    StructType,
)

__all__ = ["DELTA", "FORMATS", "TEXT_FORMATS", "check_columns", "check_format", "is_part", "is_sum"]

DELTA = "delta"
"""The format of copies that are Delta tables; all others are directories of files."""

TEXT_FORMATS = ("csv", "json")
"""The formats that hold values as text."""

FORMATS = ("parquet", DELTA, *TEXT_FORMATS)
"""What a copy can be."""


_PART = re.compile(r"part-[^/]+")
_SUM = re.compile(r"\.[^/]+\.crc")


def is_part(path: str) -> bool:
    """Whether a file in a copy that is a directory is called as those are that Spark has written."""
    return _PART.fullmatch(path) is not None


def is_sum(path: str) -> bool:
    """Whether a file is a checksum: Hadoop's own file systems leave one beside each file."""
    return _SUM.fullmatch(path) is not None


def check_format(name: str) -> None:
    """Check that copies of a format can be made.

    Raises:
        InvalidArgumentError: they can't.
    """
    if name not in FORMATS:
        raise InvalidArgumentError(
            f"unknown format {name!r} of a copy: expected one of {', '.join(FORMATS)}"
        )


def check_columns(name: str, schema: StructType, *, table: str) -> None:
    """Check that a format can hold the columns of a table.

    Args:
        name: the format.
        schema: the table's columns.
        table: the table's location, for messages.

    Raises:
        InvalidArgumentError: it can't hold all of them. Facts: columns.
    """
    if name not in TEXT_FORMATS:
        return
    unfit = _unfit_in_csv(schema) if name == "csv" else _unfit_in_json(schema, "")
    found = dict(unfit)
    if found:
        told = ", ".join(f"{column} ({data_type})" for column, data_type in found.items())
        other = "json, parquet or delta" if name == "csv" else "parquet or delta"
        raise InvalidArgumentError(
            f"a copy as {name} can't hold the columns {told}; choose {other}",
            table=table,
            columns=tuple(found),
        )


def _unfit_in_csv(schema: StructType) -> Iterator[tuple[str, DataType]]:
    for field in schema:
        nested = isinstance(field.data_type, (StructType, ArrayType, MapType))
        if nested or field.data_type in (BINARY, VOID, VARIANT):
            yield field.name, field.data_type


def _unfit_in_json(data_type: DataType, place: str) -> Iterator[tuple[str, DataType]]:
    match data_type:
        case StructType():
            for field in data_type:
                name = f"{place}.{field.name}" if place else field.name
                yield from _unfit_in_json(field.data_type, name)
        case ArrayType(element):
            yield from _unfit_in_json(element, f"{place}.element")
        case MapType(key, value):
            if key != STRING:
                yield place, data_type
            yield from _unfit_in_json(value, f"{place}.value")
        case _ if data_type == VARIANT:
            yield place, data_type
