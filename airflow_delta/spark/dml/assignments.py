"""Assign new values to the columns of rows, such as ``{"price": "price * 2", "address.city": "'Rome'"}``.

A column that isn't assigned keeps its value. A generated column that isn't assigned is computed anew from
the new values. Values are cast as a write casts them (`airflow_delta.spark.writer.casts`). Expressions use
the old values, whatever the order of the assignments.

Spec: PROTOCOL.md, "Generated Columns", "Default Columns", "Identity Columns".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any

from pyspark.errors import ParseException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from airflow_delta.engine.errors import ConstraintViolationError, InvalidArgumentError
from airflow_delta.engine.features.column_changes.column_paths import column_path, display_path
from airflow_delta.engine.features.identity import identity_columns
from airflow_delta.engine.features.schema_walk import SchemaPath
from airflow_delta.engine.model.schema import DataType, StructField, StructType
from airflow_delta.spark.dml.expressions import check_values
from airflow_delta.spark.reader.catalyst import catalyst, resolved_column
from airflow_delta.spark.writer.alignment import absent_value
from airflow_delta.spark.writer.casts import Cast

if TYPE_CHECKING:
    from airflow_delta.spark.writer.target import WriteTarget

__all__ = ["Assignments", "MissingMembers", "find_column", "parse_assignments", "spellings"]


class MissingMembers(Enum):
    """What is done if a new value of a struct lacks some of its members."""

    REFUSED = "refused"
    NULL = "null"
    KEPT = "kept"


@dataclass(frozen=True, slots=True)
class Assignments:
    """The assignments of one clause.

    Attributes:
        values: the new values, by the path of the column in the table's spelling.
        missing_members: what is done if a new value lacks members of a struct.
    """

    values: Mapping[SchemaPath, Column]
    missing_members: MissingMembers = MissingMembers.REFUSED

    def check(self, rows: DataFrame, of: str, *, table: str) -> None:
        """Check the values before anything is done; the message of an error names the column.

        Args:
            rows: rows with the columns that the values may name; they aren't evaluated.
            of: whose columns they are, for errors.
            table: the table's location, for errors.

        Raises:
            InvalidArgumentError: see `check_values`.
        """
        values = {f"the new value of {display_path(p)}": value for p, value in self.values.items()}
        check_values(rows, values, of, table=table)

    def resolved_on(self, rows: DataFrame) -> Assignments:
        """The same assignments, whose values are resolved; see `airflow_delta.spark.reader.catalyst`.

        Args:
            rows: the rows with the columns that the values may name.
        """
        values = {path: resolved_column(rows, value) for path, value in self.values.items()}
        return replace(self, values=values)

    def use_python(self, rows: DataFrame) -> bool:
        """Whether a value is a function in Python, which Spark calls for the rows of other clauses too.

        Args:
            rows: rows with the columns that the values may name; they aren't evaluated.
        """
        named = [value.alias(f"value_{i}") for i, value in enumerate(self.values.values())]
        plan = rows.select(named)._jdf.queryExecution().analyzed()  # noqa: SLF001
        pattern = catalyst(rows.sparkSession).trees.TreePattern
        return bool(plan.containsPattern(pattern.PYTHON_UDF()))

    def assigns(self, name: str) -> bool:
        """Whether a column, or a part of it, is assigned."""
        return any(path[0] == name for path in self.values)

    def assigns_inside(self, path: SchemaPath) -> bool:
        """Whether a member of a column is assigned on its own."""
        return any(other[: len(path)] == path and other != path for other in self.values)


def parse_assignments(
    spark: SparkSession,
    given: Any,
    target: WriteTarget,
    *,
    argument: str,
    alias: str | None = None,
    inserts: bool = False,
) -> Assignments:
    """Parse the assignments of a user.

    Args:
        spark: the session.
        given: the values by column. A column is a name in any case; a member of a struct is a text with
            dots, as in SQL, or a list of names. ``DEFAULT`` is the column's default.
        target: the table.
        argument: the name of the user's argument, for errors.
        alias: a name of the table that may stand before a column.
        inserts: whether the values are those of new rows, which have no old values.

    Raises:
        InvalidArgumentError: a column is unknown, assigned twice or inside an array or a map; or there is
            no assignment, or a value of another type.
        ConstraintViolationError: an identity column takes no values of users. Facts: columns.
    """
    if not isinstance(given, Mapping) or not given:
        raise InvalidArgumentError(
            f"{argument}={given!r}: expected a dictionary of columns and their new values",
            table=target.table,
        )
    cast = Cast(target.table)
    values: dict[SchemaPath, Column] = {}
    for name, value in given.items():
        path, field = _resolved(spark, name, target, argument, alias)
        if inserts and len(path) > 1:
            raise _refused(
                target, argument, name, "a new row needs whole columns, not parts of them"
            )
        for other in values:
            if other[: len(path)] == path[: len(other)]:
                reason = f"it is assigned twice, also as {display_path(other)}"
                raise _refused(target, argument, name, reason)
        values[path] = _value(value, field, cast, argument)
    _check_identities(values, target, inserts=inserts)
    return Assignments(values)


def _value(value: Any, field: StructField, cast: Cast, argument: str) -> Column:
    if isinstance(value, Column):
        return value
    if isinstance(value, str):
        if value.strip().upper() == "DEFAULT":
            return absent_value(field, cast)
        return F.expr(value)
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        raise InvalidArgumentError(
            f"{argument}: the value of {field.name!r} needs more than 64 bits: give it as SQL, a text",
            table=cast.table,
        )
    if value is None or isinstance(value, bool | int | float):
        return F.lit(value)
    raise InvalidArgumentError(
        f"{argument}: the value of {field.name!r} is a {type(value).__name__}: expected SQL as a text, a "
        "Column, or a number",
        table=cast.table,
    )


def spellings(
    spark: SparkSession, name: Any, argument: str, alias: str | None
) -> Iterator[SchemaPath]:
    """The paths that a user's name of a column may mean, the likeliest first.

    Args:
        spark: the session.
        name: a text, maybe with dots, or a list of names.
        argument: the name of the user's argument, for errors.
        alias: a name of the table that may stand before a column.

    Raises:
        InvalidArgumentError: this is no name.
    """
    path = column_path(name, argument)
    yield path
    if len(path) > 1:
        return
    state: Any = spark._jsparkSession.sessionState()  # noqa: SLF001
    try:
        parts = state.sqlParser().parseMultipartIdentifier(path[0])
    except ParseException:
        return
    dotted = tuple(str(parts.apply(i)) for i in range(parts.size()))
    if alias is not None and dotted[0].lower() == alias.lower():
        # As in an expression, where it also comes before a struct of the same name.
        yield dotted[1:]
    yield dotted


def find_column(schema: StructType, path: SchemaPath) -> tuple[SchemaPath, StructField] | None:
    """Find a column, or a member of a struct, by its path in any case.

    Args:
        schema: the schema.
        path: the path.

    Returns:
        The path in the schema's spelling, and the column; None if there is none.
    """
    spelled: list[str] = []
    current: DataType = schema
    found = None
    for part in path:
        if not isinstance(current, StructType):
            return None
        found = next((f for f in current if f.name.lower() == part.lower()), None)
        if found is None:
            return None
        spelled.append(found.name)
        current = found.data_type
    return None if found is None else (tuple(spelled), found)


def _resolved(
    spark: SparkSession, name: Any, target: WriteTarget, argument: str, alias: str | None
) -> tuple[SchemaPath, StructField]:
    """The path of a column in the table's spelling, and the column."""
    for parts in spellings(spark, name, argument, alias):
        found = find_column(target.schema, parts)
        if found is not None:
            return found
    raise _refused(
        target,
        argument,
        name,
        "the table has no such column outside of arrays and maps; it has "
        f"{', '.join(target.schema.names)}",
    )


def _check_identities(
    values: Mapping[SchemaPath, Column], target: WriteTarget, *, inserts: bool
) -> None:
    refused = [
        column.name
        for column in identity_columns(target.schema)
        if (column.name,) in values and not (inserts and column.allow_explicit_insert)
    ]
    if refused:
        raise ConstraintViolationError(
            f"values are assigned to the identity columns {refused}: leave them out, "
            + ("and the writer makes their values" if inserts else "an update can't change them"),
            table=target.table,
            columns=tuple(refused),
        )


def _refused(target: WriteTarget, argument: str, name: Any, reason: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"{argument}: {name!r}: {reason}", table=target.table)
