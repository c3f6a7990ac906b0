"""Merge the schemas of files into that of the table, as the reference implementation does.

* A column that a file lacks is null in its rows. New columns come after the others, also inside structs.
* ``byte``, ``short`` and ``integer`` become the widest of them, because Parquet stores them in the same
  way.
* Any other difference of types is refused, because no reader reads both types as one column.
* Names that only differ in case are refused, because only some readers treat them as one column.
"""

from __future__ import annotations

from airflow_delta.engine.errors import InvalidTableError
from airflow_delta.engine.features.schema_walk import SchemaPath
from airflow_delta.engine.model.schema import (
    BYTE,
    INTEGER,
    SHORT,
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
)

__all__ = ["SchemaMerge"]

_WIDTHS: tuple[DataType, ...] = (BYTE, SHORT, INTEGER)


class SchemaMerge:
    """The schema of the files so far.

    Args:
        table: the table's location, for messages.

    Attributes:
        columns: the merged columns.
    """

    def __init__(self, *, table: str) -> None:
        self.columns = StructType(())
        self._table = table
        self._sources: dict[SchemaPath, str] = {}

    def add(self, columns: StructType, file: str) -> bool:
        """Add the columns of a file; returns whether that has changed the schema.

        Args:
            columns: from `read_file_schema`.
            file: the path of the file.

        Raises:
            InvalidTableError: a column has another type, or another spelling, than in an earlier file.
                Facts: path, column.
        """
        merged = self._structs(self.columns, columns, (), file)
        changed = merged != self.columns
        self.columns = merged
        return changed

    def _structs(
        self, ours: StructType, theirs: StructType, path: SchemaPath, file: str
    ) -> StructType:
        spellings = {field.name.lower(): field.name for field in ours}
        fields = {field.name: field for field in ours}
        for field in theirs:
            here = (*path, field.name)
            spelling = spellings.get(field.name.lower(), field.name)
            if spelling != field.name:
                raise self._spelled_differently((*path, spelling), field.name, file)
            known = fields.get(field.name)
            if known is None:
                self._sources[here] = file
                # Merged with nothing, so that the columns inside are recorded, too.
                merged = self._types(_nothing_of(field.data_type), field.data_type, here, file)
            else:
                merged = self._types(known.data_type, field.data_type, here, file)
            fields[field.name] = StructField(field.name, merged)
        return StructType(tuple(fields.values()))

    def _types(self, ours: DataType, theirs: DataType, path: SchemaPath, file: str) -> DataType:
        match ours, theirs:
            case StructType(), StructType():
                return self._structs(ours, theirs, path, file)
            case ArrayType(), ArrayType():
                inside = (*path, "element")
                return ArrayType(self._types(ours.element_type, theirs.element_type, inside, file))
            case MapType(), MapType():
                return MapType(
                    self._types(ours.key_type, theirs.key_type, (*path, "key"), file),
                    self._types(ours.value_type, theirs.value_type, (*path, "value"), file),
                )
        if ours == theirs:
            return ours
        if ours in _WIDTHS and theirs in _WIDTHS:
            if _WIDTHS.index(ours) >= _WIDTHS.index(theirs):
                return ours
            self._sources[path] = file
            return theirs
        raise self._of_other_type(path, ours, theirs, file)

    def _source(self, path: SchemaPath) -> str:
        """The file whose type of a column counts; one inside an array or a map has that of its column."""
        while path not in self._sources:
            path = path[:-1]
        return self._sources[path]

    def _of_other_type(
        self, path: SchemaPath, ours: DataType, theirs: DataType, file: str
    ) -> InvalidTableError:
        column = ".".join(path)
        return InvalidTableError(
            f"the column {column!r} is of the type {ours} in the file {self._source(path)!r}, and of the "
            f"type {theirs} in {file!r}: the files of a table must agree; write one of them anew, or leave "
            "it out with files=[…]",
            table=self._table,
            path=file,
            column=column,
        )

    def _spelled_differently(self, path: SchemaPath, name: str, file: str) -> InvalidTableError:
        return InvalidTableError(
            f"the column {'.'.join(path)!r} of the file {self._source(path)!r} is called {name!r} in "
            f"{file!r}: readers disagree whether the case of names counts; write one of them anew, or "
            "leave it out with files=[…]",
            table=self._table,
            path=file,
            column=".".join((*path[:-1], name)),
        )


def _nothing_of(data_type: DataType) -> DataType:
    """The type with empty structs, to be merged with the type itself."""
    match data_type:
        case StructType():
            return StructType(())
        case ArrayType():
            return ArrayType(_nothing_of(data_type.element_type))
        case MapType():
            return MapType(_nothing_of(data_type.key_type), _nothing_of(data_type.value_type))
        case _:
            return data_type
