"""Read partition values from names of directories, such as ``day=2026-01-31/region=eu/0.parquet``.

Hive, Spark and others write directories in this way. Some characters of names and values are escaped as
``%3A``; the bytes are UTF-8. ``__HIVE_DEFAULT_PARTITION__`` stands for null. Other directories are ignored.

The names don't show the types of the columns, because ``01`` may be a number or a text. So the caller
gives them. The values are normalised as a writer of the table writes them (PROTOCOL.md, "Partition Value
Serialization").
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import unquote_to_bytes

from airflow_delta.engine.errors import InvalidArgumentError, InvalidTableError
from airflow_delta.engine.model.arguments import check_mapping, check_type
from airflow_delta.engine.model.partition_values import (
    parse_partition_value,
    serialize_partition_value,
)
from airflow_delta.engine.model.schema import (
    VARIANT,
    VOID,
    DecimalType,
    PrimitiveType,
    StructField,
    StructType,
)
from airflow_delta.engine.model.schema_arguments import check_fields
from airflow_delta.engine.model.schema_json import data_type_from_json

__all__ = ["PartitionPaths", "as_partition_schema"]

_HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"


def as_partition_schema(given: StructType | Mapping[str, str] | None, *, table: str) -> StructType:
    """The partition columns that a caller gives, as a schema.

    Args:
        given: a schema; or the names of types by the names of columns, in order; None for no columns.
        table: the table's location, for messages.

    Raises:
        InvalidArgumentError: it is something else, or a column is of a type that can't partition a table.
    """
    expected = "a StructType, or types by columns such as {'day': 'date'}"
    if isinstance(given, Mapping):
        check_mapping("partition_schema", given, expected, table=table)
        try:
            schema = StructType(
                tuple(
                    StructField(name, data_type_from_json(kind, path=f"partition_schema: {name!r}"))
                    for name, kind in given.items()
                )
            )
        except InvalidTableError as error:
            raise InvalidArgumentError(error.message, table=table) from error
    else:
        schema = StructType(()) if given is None else given
        check_type("partition_schema", schema, StructType, expected, table=table)
        check_fields("partition_schema", schema.fields, table=table)
    for field in schema:
        kind = field.data_type
        if not isinstance(kind, DecimalType | PrimitiveType) or kind in (VOID, VARIANT):
            raise InvalidArgumentError(
                f"partition_schema: a {kind} can't partition a table; expected another type for "
                f"{field.name!r}",
                table=table,
            )
    return schema


class PartitionPaths:
    """Reads the partition values of files.

    Args:
        columns: the partition columns.
        table: the table's location, for messages.
    """

    def __init__(self, columns: StructType, *, table: str) -> None:
        self._columns = columns
        self._table = table
        # Files come by path, so those of a directory follow each other.
        self._last: tuple[str, tuple[str | None, ...]] | None = None

    def values_of(self, path: str) -> tuple[str | None, ...]:
        """The texts for ``partitionValues`` of a file, in the order of the columns; None for null.

        Args:
            path: the path below the table's root, decoded.

        Raises:
            InvalidArgumentError: the path lacks a partition column, has another one, has one twice, or has
                a value that isn't of the column's type. Facts: path.
        """
        directory = path.rpartition("/")[0]
        if self._last is None or self._last[0] != directory:
            self._last = directory, self._read(directory, path)
        return self._last[1]

    def _read(self, directory: str, path: str) -> tuple[str | None, ...]:
        found: dict[str, str] = {}
        for segment in directory.split("/"):
            name, equals, value = segment.partition("=")
            if equals:
                name = self._unescape(name, path)
                if name in found:
                    raise self._error(f"it has the partition column {name!r} twice", path)
                found[name] = self._unescape(value, path)
        self._check_names(found, path)
        return tuple(
            self._value(found[field.name], index, path) for index, field in enumerate(self._columns)
        )

    def _check_names(self, found: dict[str, str], path: str) -> None:
        names = set(self._columns.names)
        if found.keys() == names:
            return
        expected = ", ".join(self._columns.names) or "none"
        raise self._error(
            f"it has the partition columns {', '.join(found) or 'none'}, and partition_schema has "
            f"{expected}; give all columns of the directories with their types",
            path,
        )

    def _value(self, text: str, index: int, path: str) -> str | None:
        field = self._columns.fields[index]
        if text == _HIVE_NULL:
            return None
        if not text:
            problem = f"the value of {field.name!r} is empty; null is written as {_HIVE_NULL}"
            raise self._error(problem, path)
        try:
            value = parse_partition_value(text, field.data_type)
        except InvalidTableError as error:
            raise self._error(f"partition column {field.name!r}: {error.message}", path) from error
        return serialize_partition_value(value, field.data_type)

    def _unescape(self, text: str, path: str) -> str:
        if "%" not in text:
            return text
        try:
            return unquote_to_bytes(text).decode("utf-8")
        except UnicodeDecodeError as error:
            raise self._error(f"the escapes in {text!r} don't decode to UTF-8", path) from error

    def _error(self, problem: str, path: str) -> InvalidArgumentError:
        return InvalidArgumentError(f"the file {path!r}: {problem}", table=self._table, path=path)
