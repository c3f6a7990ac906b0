"""Cast the values of rows to the types of a table, as Spark does for an ``INSERT``.

The rules are Spark's store assignment (``ANSI``), whatever the session's settings:

=========================================  ===========================================================
from                                       to
=========================================  ===========================================================
a number                                   any number; a value out of its range is refused
any type but arrays, maps and structs      ``string``; bytes only if they are UTF-8
date, timestamp, timestamp without zone    each other, in the session's time zone
void                                       any type, as null
struct                                     struct, member by member, by name in any case; a member that
                                           the rows lack is null
array, map                                 array, map, element by element; a map whose keys become equal is
                                           refused
=========================================  ===========================================================

All else is refused before anything is written, by the name of the column and the path in it. A value
that doesn't fit fails the job (`executor_errors`).
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from airflow_delta.engine.errors import ConstraintViolationError
from airflow_delta.engine.model.schema import (
    BINARY,
    BYTE,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    SHORT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VARIANT,
    VOID,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    StructField,
    StructType,
)
from airflow_delta.spark.reader.columns import spark_type
from airflow_delta.spark.runtime.executor_errors import error_text

__all__ = ["Cast"]

_INTEGERS = {BYTE: 3, SHORT: 5, INTEGER: 10, LONG: 19}
"""Integer types, narrowest first, with the decimal digits of their values."""

_FLOATS = (FLOAT, DOUBLE)
_TIMES = (DATE, TIMESTAMP, TIMESTAMP_NTZ)


@dataclass(frozen=True, slots=True)
class Cast:
    """Casts columns of rows to the types of a table.

    Attributes:
        table: the table's location, for errors.
        extra_members: whether members of structs that the table lacks are left out instead of refused.
        missing_members: whether members of structs that the rows lack become null instead of being refused.
    """

    table: str
    extra_members: bool = False
    missing_members: bool = True

    def column(self, column: Column, found: DataType, wanted: DataType, path: str) -> Column:
        """Cast a column.

        Args:
            column: the values.
            found: their type.
            wanted: the table's type.
            path: the name of the column, for errors.

        Raises:
            ConstraintViolationError: values of one type aren't stored in the other. Facts: columns.
        """
        if str(found) == str(wanted):
            return column
        match found, wanted:
            case StructType(), StructType():
                return self._struct(column, found, wanted, path)
            case ArrayType(), ArrayType():
                element, other = found.element_type, wanted.element_type
                return F.transform(
                    column, lambda item: self.column(item, element, other, f"{path}.element")
                )
            case MapType(), MapType():
                return self._map(column, found, wanted, path)
            case _:
                return self._value(column, found, wanted, path)

    def _struct(self, column: Column, found: StructType, wanted: StructType, path: str) -> Column:
        given = {field.name.lower(): field for field in found}
        known = {field.name.lower() for field in wanted}
        unknown = [field.name for field in found if field.name.lower() not in known]
        if unknown and not self.extra_members:
            raise self._refused(
                f"the rows have {path}.{unknown[0]}, which the table lacks: leave it out, or add it to the "
                "table by merge_schema=True",
                path,
            )
        missing = [field.name for field in wanted if field.name.lower() not in given]
        if missing and not self.missing_members:
            raise self._refused(
                f"the rows lack {path}.{missing[0]}, which the table has: add it to them, or assign the "
                "members of the struct one by one",
                path,
            )
        members = [
            self._member(column, given.get(field.name.lower()), field, path) for field in wanted
        ]
        return F.when(column.isNotNull(), F.struct(*members))

    def _member(
        self, column: Column, given: StructField | None, wanted: StructField, path: str
    ) -> Column:
        if given is None:
            value = F.lit(None).cast(spark_type(wanted.data_type))
        else:
            value = self.column(
                column.getField(given.name),
                given.data_type,
                wanted.data_type,
                f"{path}.{wanted.name}",
            )
        return value.alias(wanted.name)

    def _map(self, column: Column, found: MapType, wanted: MapType, path: str) -> Column:
        def _pair(entry: Column) -> Column:
            key = self.column(entry["key"], found.key_type, wanted.key_type, f"{path}.key")
            value = self.column(
                entry["value"], found.value_type, wanted.value_type, f"{path}.value"
            )
            return F.struct(key.alias("key"), value.alias("value"))

        cast = F.map_from_entries(F.transform(F.map_entries(column), _pair))
        if str(found.key_type) == str(wanted.key_type):
            return cast
        # Spark would refuse them without a name, or, by a setting of the session, lose all but one.
        keys = F.transform(
            F.map_keys(column),
            lambda key: self.column(key, found.key_type, wanted.key_type, f"{path}.key"),
        )
        return F.when(
            F.size(F.array_distinct(keys)) < F.size(keys),
            self._fails(
                f"the rows have a map in the column {path} in which keys become equal by the cast to "
                f"{wanted.key_type}",
                path,
                wanted,
            ),
        ).otherwise(cast)

    def _value(self, column: Column, found: DataType, wanted: DataType, path: str) -> Column:
        target = spark_type(wanted)
        if found == VOID:
            return F.lit(None).cast(target)
        if not _can_be_stored(found, wanted):
            raise self._refused(
                f"the column {path} of the rows is {found}, that of the table is {wanted}, and values of "
                "one aren't stored in the other: cast it in the rows",
                path,
            )
        if _always_fits(found, wanted):
            return column.cast(target)
        if found == BINARY:
            # Bytes that are no UTF-8 would become a text that other readers can't decode.
            text = column.cast(target)
            cast = F.when(F.is_valid_utf8(text), text)
        else:
            cast = column.try_cast(target)
        # `try_cast` is null for a value that the type can't hold, in ANSI sessions and others.
        fails = self._fails(
            f"the rows have a value in the column {path} that its type {wanted} can't hold",
            path,
            wanted,
        )
        return F.when(column.isNotNull() & cast.isNull(), fails).otherwise(cast)

    def _fails(self, message: str, path: str, wanted: DataType) -> Column:
        """A column that raises an error instead of returning a value."""
        error = self._refused(message, path)
        return F.raise_error(F.lit(error_text(error))).cast(spark_type(wanted))

    def _refused(self, message: str, path: str) -> ConstraintViolationError:
        return ConstraintViolationError(message, table=self.table, columns=(path,))


def _can_be_stored(found: DataType, wanted: DataType) -> bool:
    if any(isinstance(type_, (StructType, ArrayType, MapType)) for type_ in (found, wanted)):
        return False
    if VARIANT in (found, wanted):
        return False
    if wanted == STRING:
        return True
    return (_is_number(found) and _is_number(wanted)) or (found in _TIMES and wanted in _TIMES)


def _is_number(data_type: DataType) -> bool:
    return data_type in _INTEGERS or data_type in _FLOATS or isinstance(data_type, DecimalType)


def _always_fits(found: DataType, wanted: DataType) -> bool:
    """Whether the type can hold every value, so that no row needs a look."""
    if wanted == STRING:
        return found != BINARY
    if wanted in _FLOATS:
        return True
    if isinstance(wanted, DecimalType):
        digits = wanted.precision - wanted.scale
        if isinstance(found, DecimalType):
            # Digits behind the point are rounded, which may take one more before it.
            rounds = found.scale > wanted.scale
            return digits >= found.precision - found.scale + rounds
        return found in _INTEGERS and digits >= _INTEGERS[found]
    order = list(_INTEGERS)
    return found in order and wanted in order and order.index(found) <= order.index(wanted)
