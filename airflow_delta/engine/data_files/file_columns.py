"""Find the columns of the table in a data file, and how to convert their values.

========  ===================================================================================
mode      a column of the file is that of the table if
========  ===================================================================================
``none``  it has its name. Without such a column, one name that only differs in case will do,
          because the table may have been converted by an engine that ignores the case
``name``  it has its physical name; likewise
``id``    it has its Parquet field id. A file without any ids is refused
========  ===================================================================================

This holds at any depth inside structs. A column that the file lacks is null (PROTOCOL.md, "Column
Mapping", "Add File and Remove File").
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from airflow_delta.engine.data_files.conversion import (
    Conversion,
    MismatchError,
    StructFields,
    converter,
    without_metadata,
)
from airflow_delta.engine.data_files.data_file import DataFile
from airflow_delta.engine.data_files.hybrid_calendar import HybridCalendar, OldTimeError
from airflow_delta.engine.data_files.request import TableLayout, stored_id, stored_name

__all__ = ["FileColumn", "FileColumns"]

_FIELD_ID = b"PARQUET:field_id"


@dataclass(frozen=True, slots=True)
class FileColumn:
    """A column of the table in a data file.

    Attributes:
        field: the name and the type in the table.
        stored: the name in the file; None if the file lacks the column.
        conversion: see `converter`.
    """

    field: pa.Field
    stored: str | None
    conversion: Conversion

    def convert(self, batch: pa.RecordBatch, file: DataFile) -> pa.Array:
        """The column of the table for the rows of a batch.

        Args:
            batch: the batch, as the file has it.
            file: the file, for errors.

        Raises:
            DataFileError: a value has no counterpart in the table's type.
            UnsupportedFeatureError: a time depends on a time zone; see `hybrid_calendar`.
        """
        if self.stored is None:
            return pa.nulls(batch.num_rows, self.field.type)
        array = batch.column(self.stored)
        if self.conversion is None:
            return array
        try:
            return self.conversion(array)
        except OldTimeError as error:
            raise file.old_time(self.field.name) from error
        except pa.ArrowException as error:
            raise file.error(
                f"its column {self.field.name!r} has a value that is no {self.field.type}: {error}"
            ) from error


class FileColumns:
    """The columns that a scan reads, found in each file.

    Files of one table mostly have one schema, so the last answer is kept. Several threads may use it.

    Args:
        layout: the table.
        columns: the columns, from `TableLayout.arrow_fields`; without partition columns.
    """

    def __init__(self, layout: TableLayout, columns: Sequence[pa.Field]) -> None:
        self._layout = layout
        self._columns = columns
        self._last: tuple[pa.Schema, HybridCalendar | None, tuple[FileColumn, ...]] | None = None

    def of(self, file: DataFile) -> tuple[FileColumn, ...]:
        """The columns in a file, in order.

        Raises:
            DataFileError: a column has another type; the file has two columns of one name, or, in mode
                ``id``, no ids.
        """
        schema, last = file.schema, self._last
        if (
            last is not None
            and last[1] == file.calendar
            and last[0].equals(schema, check_metadata=True)
        ):
            return last[2]
        find = _finder(self._layout.mapping_mode, file)
        stored = pa.struct(list(schema))
        wanted = pa.struct(list(self._columns))
        indexes = find(stored, wanted)
        found = tuple(
            _column(field, stored, indexes.get(field.name), find, file) for field in wanted
        )
        self._last = schema, file.calendar, found
        return found


def _column(
    field: pa.Field, stored: pa.StructType, index: int | None, find: StructFields, file: DataFile
) -> FileColumn:
    plain = pa.field(field.name, without_metadata(field.type))
    if index is None:
        return FileColumn(plain, None, None)
    own = stored[index]
    try:
        return FileColumn(plain, own.name, converter(own.type, field.type, find, file.calendar))
    except MismatchError as error:
        raise file.error(f"its column {field.name!r} can't be read: {error}") from error


def _finder(mode: str, file: DataFile) -> StructFields:
    """How to find the fields of a struct in a file."""
    if mode == "id":
        if not _has_ids(file.schema):
            raise file.error(
                "its columns have no field ids, by which the columns of the table are found "
                "(delta.columnMapping.mode is id)"
            )
        return _find_by_id

    def _find_by_name(stored: pa.StructType, wanted: pa.StructType) -> Mapping[str, int]:
        exact, folded = _names(stored)
        found = {}
        for field in wanted:
            name = stored_name(field)
            indexes = exact.get(name) or folded.get(name.lower(), [])
            if len(indexes) > 1:
                raise file.error(f"it has more than one column {name!r}")
            if indexes:
                found[field.name] = indexes[0]
        return found

    return _find_by_name


def _names(stored: pa.StructType) -> tuple[dict[str, list[int]], dict[str, list[int]]]:
    """The indexes of the fields by name, and by name regardless of case."""
    exact: dict[str, list[int]] = {}
    folded: dict[str, list[int]] = {}
    for index, field in enumerate(stored):
        exact.setdefault(field.name, []).append(index)
        folded.setdefault(field.name.lower(), []).append(index)
    return exact, folded


def _find_by_id(stored: pa.StructType, wanted: pa.StructType) -> Mapping[str, int]:
    by_id = {_id_in_file(field): index for index, field in enumerate(stored)}
    found = ((field.name, by_id.get(stored_id(field))) for field in wanted)
    return {name: index for name, index in found if index is not None}


def _id_in_file(field: pa.Field) -> int | None:
    text = (field.metadata or {}).get(_FIELD_ID)
    return None if text is None else int(text)


def _has_ids(fields: Iterable[pa.Field]) -> bool:
    return any(
        _id_in_file(field) is not None or _has_ids(_children(field.type)) for field in fields
    )


def _children(type_: pa.DataType) -> list[pa.Field]:
    return [type_.field(index) for index in range(type_.num_fields)]
