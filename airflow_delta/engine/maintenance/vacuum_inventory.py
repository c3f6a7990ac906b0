"""An inventory in place of a listing: what object stores write of a bucket once a day.

Listing millions of objects takes long and costs requests. An inventory has been listed already; that it is
some hours old does no harm: what it says is old still is, and what the table refers to is looked up now.
It has the columns

====================  =====================================================================================
``path``              string: a path below the table's root, or a whole location; plain, not URI-encoded
``length``            integer: bytes; may be null
``isDir``             boolean
``modificationTime``  integer, in epoch milliseconds, or a timestamp
====================  =====================================================================================

the same as Delta Spark's ``VACUUM … USING INVENTORY``. Others are left alone, and so are directories and
files that aren't below the root. A file that is named twice is as young as its youngest row.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from airflow_delta.engine.arrow.python_arrays import scalar_of
from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.engine.maintenance.vacuum_candidates import FOUND, each_once
from airflow_delta.engine.maintenance.vacuum_locations import IRREGULAR, beginnings
from airflow_delta.engine.model.arguments import wrong_argument
from airflow_delta.engine.storage.location import open_storage

__all__ = ["COLUMNS", "Inventory", "inventory_files", "read_inventory"]

Inventory: TypeAlias = "pa.Table | str | os.PathLike[str]"
"""An Arrow table, or the path or URI of a Parquet file."""

COLUMNS = ("path", "length", "isDir", "modificationTime")
"""The columns that an inventory must have."""

_LOG = "_delta_log/"
_WHOLE = r"^(/|[A-Za-z][A-Za-z0-9+.\-]*:/)"


def read_inventory(
    inventory: Inventory, storage_options: Mapping[str, str], *, table: str
) -> pa.Table:
    """An inventory with just `COLUMNS`, whose types are still to be looked at.

    Args:
        inventory: the inventory.
        storage_options: of the store of the Parquet file.
        table: the table's location, for errors.

    Raises:
        InvalidArgumentError: it is something else, or lacks a column; or the file is no Parquet file.
        StorageError: the file can't be read.
    """
    if isinstance(inventory, pa.Table):
        found = inventory
    elif isinstance(inventory, str | os.PathLike):
        found = _read(os.fspath(inventory), storage_options, table)
    else:
        raise wrong_argument(
            "inventory", "an Arrow table, or the path of a Parquet file", inventory, table=table
        )
    missing = [name for name in COLUMNS if name not in found.column_names]
    if missing:
        raise InvalidArgumentError(
            f"the inventory lacks the columns {missing}: expected {', '.join(COLUMNS)}, found "
            f"{', '.join(found.column_names) or 'none'}",
            table=table,
        )
    return found.select(list(COLUMNS))


def inventory_files(inventory: pa.Table, *, root: str) -> pa.Table:
    """The files of an inventory that are below the root of a table, as `list_files` gives them.

    Args:
        inventory: with `COLUMNS`.
        root: the table's location.

    Raises:
        InvalidArgumentError: a column is of the wrong type, or has a null where there must be none.
    """
    paths = _places(_typed(inventory, "path", pa.string(), root), root)
    columns = {
        "path": paths,
        "size": _typed(inventory, "length", pa.int64(), root),
        "modificationTime": _times(inventory, root),
    }
    is_file = pc.invert(_typed(inventory, "isDir", pa.bool_(), root))
    ours = pc.invert(pc.starts_with(paths, _LOG))
    # A path without a place has no answer, and is left out.
    return each_once(pa.table(columns, FOUND).filter(pc.and_(is_file, ours)))


def _read(uri: str, storage_options: Mapping[str, str], table: str) -> pa.Table:
    folder, slash, name = uri.rpartition("/")
    storage = open_storage(folder or slash or ".", storage_options)
    with storage.open(name) as file:
        try:
            source = pq.ParquetFile(file)
            columns = [column for column in COLUMNS if column in source.schema_arrow.names]
            return source.read(columns=columns)
        except (pa.ArrowException, ValueError) as error:
            raise InvalidArgumentError(
                f"the inventory {uri} can't be read as a Parquet file: {error}", table=table
            ) from error


def _places(paths: pa.ChunkedArray, root: str) -> pa.ChunkedArray:
    """The paths below the root; null for what is somewhere else."""
    nothing = scalar_of(None, pa.string())
    places = pc.if_else(pc.match_substring_regex(paths, _WHOLE), nothing, paths)
    for base in beginnings(root):
        inside = pc.utf8_slice_codeunits(paths, len(base))
        places = pc.if_else(pc.starts_with(paths, base), inside, places)
    return pc.if_else(pc.match_substring_regex(places, IRREGULAR), nothing, places)


def _times(inventory: pa.Table, table: str) -> pa.ChunkedArray:
    column = inventory["modificationTime"]
    if pa.types.is_timestamp(column.type):
        # Finer times are cut off; those without a zone are taken for UTC.
        whole = column.cast(pa.timestamp("ms", column.type.tz), safe=False)
        inventory = inventory.set_column(
            inventory.schema.get_field_index("modificationTime"),
            "modificationTime",
            whole.cast(pa.int64()),
        )
    return _typed(inventory, "modificationTime", pa.int64(), table)


def _typed(inventory: pa.Table, name: str, type_: pa.DataType, table: str) -> pa.ChunkedArray:
    column = inventory[name]
    integers = pa.types.is_integer(type_) and pa.types.is_integer(column.type)
    texts = pa.types.is_string(type_) and pa.types.is_large_string(column.type)
    if not (column.type == type_ or integers or texts):
        raise InvalidArgumentError(
            f"the column {name} of the inventory is of type {column.type}: expected {type_}",
            table=table,
        )
    if column.null_count and name != "length":
        raise InvalidArgumentError(
            f"the column {name} of the inventory has {column.null_count} nulls: expected none, for "
            "without it nothing can be told of a file",
            table=table,
        )
    return column.cast(type_)
