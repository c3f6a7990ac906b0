"""Read an inventory of a bucket, which a vacuum may use instead of a listing.

Object stores write inventories, such as one a day. A listing of millions of objects takes long and costs
requests. That an inventory is some hours old does no harm: a file that is old in it still is, and the
table's references are read now. The columns are those of Delta Spark's ``VACUUM … USING INVENTORY``:

====================  =====================================================================================
``path``              string: a path below the table's root, or a whole location; plain, not URI-encoded
``length``            integer: bytes; may be null
``isDir``             boolean
``modificationTime``  integer, in epoch milliseconds, or a timestamp
====================  =====================================================================================

Other columns, directories, and files that aren't below the root are ignored. If a file has several rows,
the youngest one counts.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from airflow_delta.engine import clock
from airflow_delta.engine.arrow.python_arrays import scalar_of
from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.engine.maintenance.table_files.listing import LISTED_SCHEMA, drop_duplicates
from airflow_delta.engine.maintenance.table_files.locations import IRREGULAR, list_root_prefixes
from airflow_delta.engine.model.arguments import wrong_argument
from airflow_delta.engine.model.times import utc_text
from airflow_delta.engine.storage.local import LocalStorage
from airflow_delta.engine.storage.location import open_storage

__all__ = ["COLUMNS", "Inventory", "check_times", "read_inventory", "select_inventory_files"]

Inventory: TypeAlias = "pa.Table | str | os.PathLike[str]"
"""An Arrow table, or the path or URI of a Parquet file."""

COLUMNS = ("path", "length", "isDir", "modificationTime")
"""The columns that an inventory must have."""

_LOG = "_delta_log/"
_DAY_MS = 24 * 60 * 60 * 1000
_YEAR_2000_MS = 946_684_800_000
_UNITS = (("seconds", 1000, 1), ("microseconds", 1, 1000), ("nanoseconds", 1, 1_000_000))
"""Other units that times may be in, with factor and divisor to get milliseconds."""

_CHUNK_ROWS = 1 << 18
_WHOLE = r"^(/|[A-Za-z][A-Za-z0-9+.\-]*:/)"


def read_inventory(
    inventory: Inventory, storage_options: Mapping[str, object], *, table: str
) -> pa.Table:
    """Read an inventory and check it. The result has just `COLUMNS`, of the right types.

    Args:
        inventory: the inventory.
        storage_options: for the store of the Parquet file.
        table: the table's location, for errors.

    Raises:
        InvalidArgumentError: it is something else, or lacks a column; or the file is no Parquet file; or
            see `select_inventory_files` and `check_times`.
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
    rows = found.select(list(COLUMNS))
    check_times(select_inventory_files(rows, root=table), table=table)
    return rows


def select_inventory_files(inventory: pa.Table, *, root: str) -> pa.Table:
    """Select the files of an inventory below the root of a table, with the columns of `list_files`.

    Args:
        inventory: with `COLUMNS`.
        root: the table's location.

    Raises:
        InvalidArgumentError: a column is of the wrong type, or has a null where there must be none.
    """
    paths = _locate(_cast_column(inventory, "path", pa.string(), root), root)
    columns = {
        "path": paths,
        "size": _cast_column(inventory, "length", pa.int64(), root),
        "modificationTime": _read_times(inventory, root),
    }
    is_file = pc.invert(_cast_column(inventory, "isDir", pa.bool_(), root))
    ours = pc.invert(pc.starts_with(paths, _LOG))
    # A path without a location is null in the mask, so the filter drops it.
    return drop_duplicates(pa.table(columns, LISTED_SCHEMA).filter(pc.and_(is_file, ours)))


def _read(uri: str, storage_options: Mapping[str, object], table: str) -> pa.Table:
    folder, slash, name = uri.rpartition("/")
    storage = open_storage(folder or slash or ".", storage_options)
    if isinstance(storage, LocalStorage):
        # The user names the file itself. Like the root of a table, it may be a link.
        folder, name = os.path.split(os.path.realpath(f"{storage.root.rstrip('/')}/{name}"))
        storage = LocalStorage(folder)
    with storage.open(name) as file:
        try:
            source = pq.ParquetFile(file)
            columns = [column for column in COLUMNS if column in source.schema_arrow.names]
            return source.read(columns=columns)
        except (pa.ArrowException, ValueError) as error:
            raise InvalidArgumentError(
                f"the inventory {uri} can't be read as a Parquet file: {error}", table=table
            ) from error


def _locate(paths: pa.ChunkedArray, root: str) -> pa.ChunkedArray:
    """Return the paths below the root; null for those outside."""
    nothing = scalar_of(None, pa.string())
    locations = pc.if_else(pc.match_substring_regex(paths, _WHOLE), nothing, paths)
    for base in list_root_prefixes(root):
        inside = pc.utf8_slice_codeunits(paths, len(base))
        locations = pc.if_else(pc.starts_with(paths, base), inside, locations)
    return pc.if_else(pc.match_substring_regex(locations, IRREGULAR), nothing, locations)


def _read_times(inventory: pa.Table, table: str) -> pa.ChunkedArray:
    column = inventory["modificationTime"]
    if pa.types.is_timestamp(column.type):
        # Finer times are truncated; times without a zone count as UTC.
        whole = column.cast(pa.timestamp("ms", column.type.tz), safe=False)
        inventory = inventory.set_column(
            inventory.schema.get_field_index("modificationTime"),
            "modificationTime",
            whole.cast(pa.int64()),
        )
    return _cast_column(inventory, "modificationTime", pa.int64(), table)


def check_times(files: pa.Table, *, table: str, now_ms: int | None = None) -> None:
    """Refuse an inventory with implausible times.

    Times in seconds would all be of 1970 if read as milliseconds, so that a vacuum would delete every file.

    Args:
        files: the files of an inventory, by `select_inventory_files`.
        table: the table's location.
        now_ms: the time, in epoch ms; by the clock unless given.

    Raises:
        InvalidArgumentError: a time is before the year 2000, or more than a day in the future.
    """
    ends = pc.min_max(files["modificationTime"])
    latest_ms = (clock.now_ms() if now_ms is None else now_ms) + _DAY_MS
    for found in (ends["min"].as_py(), ends["max"].as_py()):
        if found is None or _YEAR_2000_MS <= found <= latest_ms:
            continue
        unit = next(
            (
                f", as if it were {name}"
                for name, factor, divisor in _UNITS
                if _YEAR_2000_MS <= found * factor // divisor <= latest_ms
            ),
            "",
        )
        raise InvalidArgumentError(
            f"the inventory has the modificationTime {found}{unit}: expected epoch milliseconds, or a "
            f"timestamp, after {_YEAR_2000_MS} ({utc_text(_YEAR_2000_MS)}) and not after {latest_ms} "
            f"({utc_text(latest_ms)}, tomorrow); with times of another unit a vacuum would delete files "
            "that are too young",
            table=table,
        )


def _cast_column(inventory: pa.Table, name: str, type_: pa.DataType, table: str) -> pa.ChunkedArray:
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
            f"the column {name} of the inventory has {column.null_count} nulls: expected none, since a "
            "vacuum can't judge a file without it",
            table=table,
        )
    if not texts:
        return column.cast(type_)
    # Some rows at a time: an array of plain strings has no more than 2 GB.
    starts = ((chunk, at) for chunk in column.chunks for at in range(0, len(chunk), _CHUNK_ROWS))
    return pa.chunked_array(
        [chunk.slice(at, _CHUNK_ROWS).cast(type_) for chunk, at in starts], type_
    )
