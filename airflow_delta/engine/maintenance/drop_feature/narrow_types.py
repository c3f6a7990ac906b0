"""Find data files whose columns have narrower types than the table's, by their footers.

The log doesn't keep which version widened a column, or with which schema a file was written. So if the
schema records changes of types, the footer of each live file is read: one or two requests for each file,
many at a time. If it records none, there are no such files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_delta.engine.arrow.parallel import map_ordered
from airflow_delta.engine.errors import CorruptLogError
from airflow_delta.engine.features.column_mapping import field_id, mapping_mode, physical_schema
from airflow_delta.engine.features.type_widening import can_widen, changed_columns
from airflow_delta.engine.model.paths import resolve
from airflow_delta.engine.model.schema import (
    BYTE,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    SHORT,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    StructField,
    StructType,
)
from airflow_delta.engine.snapshot.snapshot import Snapshot
from airflow_delta.engine.storage.file_access import FileAccess

__all__ = ["find_files_with_narrow_types"]

_COLUMNS = ("path", "size")
_WORKERS = 32
_FIELD_ID = b"PARQUET:field_id"

_FROM_ARROW: Mapping[pa.DataType, DataType] = {
    pa.int8(): BYTE,
    pa.int16(): SHORT,
    pa.int32(): INTEGER,
    pa.int64(): LONG,
    pa.float32(): FLOAT,
    pa.float64(): DOUBLE,
    pa.date32(): DATE,
}


def find_files_with_narrow_types(snapshot: Snapshot, access: FileAccess) -> pa.Table:
    """Find the live files with a column whose type was widened since.

    Args:
        snapshot: the version.
        access: opens the table's files.

    Returns:
        Their ``path`` and ``size``.

    Raises:
        CorruptLogError: the live files can't be read, or a data file isn't Parquet.
        ObjectNotFoundError: a data file doesn't exist.
        OutsidePathError: the table may not read a file.
        StorageError: the store failed.
    """
    files = snapshot.files(columns=_COLUMNS)
    if not changed_columns(snapshot.schema) or not files.num_rows:
        return files.slice(0, 0)
    mode = mapping_mode(snapshot.protocol, snapshot.metadata, table=snapshot.table)
    check = partial(_has_narrow_types, access, _Expected.of(snapshot, mode))
    workers = _WORKERS if access.storage.capabilities.remote else None
    # A loop over files, since each has to be opened.
    narrow = map_ordered(check, files["path"].to_pylist(), workers=workers)
    return files.filter(pa.array(list(narrow), pa.bool_()))


@dataclass(frozen=True, slots=True)
class _Expected:
    """The columns that files should have.

    Attributes:
        schema: the table's schema, with physical names.
        by_id: whether columns are found by their ids.
    """

    schema: StructType
    by_id: bool

    @classmethod
    def of(cls, snapshot: Snapshot, mode: str) -> _Expected:
        """The columns of a version."""
        return cls(physical_schema(snapshot.schema, mode), mode == "id")


def _has_narrow_types(access: FileAccess, expected: _Expected, path: str) -> bool:
    table = access.storage.root
    storage, name = access.locate(resolve(table, path))
    try:
        with storage.open(name) as source:
            found = pq.read_schema(source)
    except pa.ArrowInvalid as error:
        raise CorruptLogError(
            f"the data file {path} can't be read as Parquet ({error}), so its types are unknown; put it "
            "back from a backup, or delete its rows",
            table=table,
            path=path,
        ) from error
    return _is_any_narrow([*found], expected.schema, by_id=expected.by_id)


def _is_any_narrow(fields: list[pa.Field], struct: StructType, *, by_id: bool) -> bool:
    found = {_find_key(field, by_id=by_id): field.type for field in fields}
    return any(
        _is_narrow(found[key], field.data_type, by_id=by_id)
        for field in struct
        if (key := _make_key(field, by_id=by_id)) in found
    )


def _find_key(field: pa.Field, *, by_id: bool) -> str | None:
    if not by_id:
        return str(field.name)
    number = (field.metadata or {}).get(_FIELD_ID)
    return None if number is None else number.decode()


def _make_key(field: StructField, *, by_id: bool) -> str:
    return str(field_id(field)) if by_id else field.name


def _is_narrow(found: pa.DataType, wanted: DataType, *, by_id: bool) -> bool:
    """Whether a column of a file, or a nested field of it, has a narrower type than in the table."""
    match wanted:
        case StructType():
            fields = [found.field(index) for index in range(found.num_fields)]
            return _is_any_narrow(fields, wanted, by_id=by_id)
        case ArrayType():
            return _is_narrow(found.value_type, wanted.element_type, by_id=by_id)
        case MapType():
            inside = ((found.key_type, wanted.key_type), (found.item_type, wanted.value_type))
            return any(_is_narrow(its, ours, by_id=by_id) for its, ours in inside)
        case _:
            pass
    if pa.types.is_decimal(found):
        own: DataType | None = DecimalType(found.precision, found.scale)
    else:
        own = _FROM_ARROW.get(found)
    return own is not None and own != wanted and can_widen(own, wanted)
