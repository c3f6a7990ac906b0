"""The formats of copies, and which columns each of them can hold.

===========  =====================================================================================
format       a copy is
===========  =====================================================================================
``delta``    a clone: a Delta table of its own with the same schema, properties and files
``parquet``  a directory of Parquet files
``csv``      a directory of CSV files
``json``     a directory of files with a JSON object in each line
===========  =====================================================================================

Text copies preserve every value; `airflow_delta.spark.copy.text_files` has the texts. Columns of
other types are refused, by name, before any work is done:

==================================  =====================  ======================================
type                                ``csv``                ``json``
==================================  =====================  ======================================
struct, array, map                  refused                an object or a list; maps are refused
                                                           unless their keys are strings
binary                              refused                text in base64
void                                refused                null
variant                             refused                refused
==================================  =====================  ======================================

No PySpark here: the operator checks the columns before it starts Spark.
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
"""The formats of copies."""


_PART = re.compile(r"part-[^/]+")
_SUM = re.compile(r"\.[^/]+\.crc")


def is_part(path: str) -> bool:
    """Whether a path in a copy is the name of a file that Spark has written."""
    return _PART.fullmatch(path) is not None


def is_sum(path: str) -> bool:
    """Whether a path is that of a Hadoop checksum file; Hadoop's file systems write one for each file."""
    return _SUM.fullmatch(path) is not None


def check_format(name: str) -> None:
    """Check that a format is one of `FORMATS`.

    Raises:
        InvalidArgumentError: it isn't.
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
        columns = ", ".join(f"{column} ({data_type})" for column, data_type in found.items())
        other = "json, parquet or delta" if name == "csv" else "parquet or delta"
        raise InvalidArgumentError(
            f"a copy as {name} can't hold the columns {columns}; choose {other}",
            table=table,
            columns=tuple(found),
        )


def _unfit_in_csv(schema: StructType) -> Iterator[tuple[str, DataType]]:
    for field in schema:
        nested = isinstance(field.data_type, (StructType, ArrayType, MapType))
        if nested or field.data_type in (BINARY, VOID, VARIANT):
            yield field.name, field.data_type


def _unfit_in_json(data_type: DataType, path: str) -> Iterator[tuple[str, DataType]]:
    match data_type:
        case StructType():
            for field in data_type:
                name = f"{path}.{field.name}" if path else field.name
                yield from _unfit_in_json(field.data_type, name)
        case ArrayType(element):
            yield from _unfit_in_json(element, f"{path}.element")
        case MapType(key, value):
            if key != STRING:
                yield path, data_type
            yield from _unfit_in_json(value, f"{path}.value")
        case _ if data_type == VARIANT:
            yield path, data_type
