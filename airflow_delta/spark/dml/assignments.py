"""Assign new values to the columns of rows, such as ``{"price": "price * 2", "address.city": "'Rome'"}``.

A column that isn't assigned keeps its value. A generated column that isn't assigned is computed anew from
the new values. Values are cast as a write casts them (`airflow_delta.spark.writer.casts`).

Expressions see the old values, whatever the order of the assignments. Each is evaluated once for a row,
and only for rows of its own clause, so that it can't fail for others.

Spec: PROTOCOL.md, "Generated Columns", "Default Columns", "Identity Columns".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from airflow_delta.engine.errors import ConstraintViolationError, InvalidArgumentError
from airflow_delta.engine.features.column_changes.column_paths import column_path, display_path
from airflow_delta.engine.features.identity import identity_columns
from airflow_delta.engine.features.schema_walk import SchemaPath
from airflow_delta.engine.model.schema import DataType, StructField, StructType
from airflow_delta.engine.model.schema_json import parse_schema
from airflow_delta.spark.reader.columns import quoted, spark_type
from airflow_delta.spark.reader.snapshot_reader import OWN_PREFIX
from airflow_delta.spark.rules.row_rules import GENERATION_EXPRESSION
from airflow_delta.spark.writer.alignment import absent_value, expression, without_empty
from airflow_delta.spark.writer.casts import Cast

if TYPE_CHECKING:
    from airflow_delta.spark.writer.target import WriteTarget

__all__ = [
    "Assignments",
    "assign",
    "check_resolved",
    "old_values",
    "parse_assignments",
    "with_old_values",
]

_NEW, _OLD, _COMPUTED = f"{OWN_PREFIX}new_", f"{OWN_PREFIX}old_", f"{OWN_PREFIX}computed_"


@dataclass(frozen=True, slots=True)
class Assignments:
    """The assignments of one clause.

    Attributes:
        values: the new values, by the path of the column in the table's spelling.
        keeps_members: whether members of structs that a new value lacks keep their old values.
    """

    values: Mapping[SchemaPath, Column]
    keeps_members: bool = False

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


def with_old_values(rows: DataFrame, schema: StructType) -> DataFrame:
    """Add the values of a table's columns to rows once more, under names that no other table has.

    Args:
        rows: the rows, with the columns of the table.
        schema: these columns.
    """
    return rows.select(
        "*", *(F.col(quoted(field.name)).alias(f"{_OLD}{i}") for i, field in enumerate(schema))
    )


def old_values(rows: DataFrame, old: StructType, target: WriteTarget) -> DataFrame:
    """The old values of rows, as columns of the table after the commit.

    Args:
        rows: rows of `with_old_values`.
        old: the columns that were added there.
        target: the table.
    """
    cast, index_of = Cast(target.table), {field.name: i for i, field in enumerate(old)}
    return rows.select(
        [
            cast.column(
                F.col(f"{_OLD}{i}"), old.fields[i].data_type, field.data_type, field.name
            ).alias(field.name)
            if (i := index_of.get(field.name)) is not None
            else F.lit(None).cast(spark_type(field.data_type)).alias(field.name)
            for field in target.schema
        ]
    )


def assign(
    rows: DataFrame,
    clauses: Sequence[Assignments],
    target: WriteTarget,
    *,
    clause: str,
    keep: Sequence[str],
    old: StructType | None,
) -> DataFrame:
    """Give rows their new values.

    Args:
        rows: the rows, in which the values of the clauses can be resolved; of `with_old_values` unless they
            are new.
        clauses: the clauses.
        target: the table.
        clause: the column with the index of a row's clause; rows with another number get null in all
            columns.
        keep: further columns of ``rows`` to be kept.
        old: the table's columns that the rows have, which are the old values; None: the rows are new, and a
            column that isn't assigned gets its default, or null.

    Returns:
        The columns to be kept, and those of the table.

    Raises:
        InvalidArgumentError: Spark can't resolve a value.
        ConstraintViolationError: values of a type can't be stored. Facts: columns.
        InvalidTableError: an expression of the table is no text.
    """
    assigner = _Assigner(clauses, target, clause)
    raw = rows.select(
        *(F.col(quoted(name)) for name in keep),
        *(
            _when(clause, number, value).alias(alias)
            for alias, number, value in assigner.raw_values()
        ),
        *(f"{_OLD}{i}" for i in range(len(old.fields) if old else 0)),
    )
    new = raw.select(*(quoted(name) for name in keep), *assigner.columns(raw, old))
    return assigner.with_generated(new, keep)


def check_resolved(rows: DataFrame, clauses: Sequence[Assignments], table: str) -> None:
    """Check that Spark can resolve the values of clauses.

    Raises:
        InvalidArgumentError: it can't; the message names the column.
    """
    for assignments in clauses:
        for path, value in assignments.values.items():
            try:
                rows.select(value)
            except AnalysisException as error:
                raise InvalidArgumentError(
                    f"Spark can't resolve the new value of {display_path(path)}: "
                    f"{str(error).strip().partition(chr(10))[0]}",
                    table=table,
                ) from error


@dataclass(frozen=True, slots=True)
class _Assigner:
    clauses: Sequence[Assignments]
    target: WriteTarget
    clause: str

    def raw_values(self) -> Iterator[tuple[str, int, Column]]:
        """Every assigned value: a name for it, the number of its clause, and the column."""
        for number, assignments in enumerate(self.clauses):
            for index, value in enumerate(assignments.values.values()):
                yield f"{_NEW}{number}_{index}", number, value

    def columns(self, raw: DataFrame, old: StructType | None) -> list[Column]:
        """The columns of the table, those that must be computed still without their values."""
        types = {
            field.name: field.data_type
            for field in parse_schema(
                raw.select([c for c in raw.columns if c.startswith(_NEW)]).schema.json(),
                "the new values",
            )
        }
        index_of = {field.name: i for i, field in enumerate(old or ())}
        found = []
        for field in self.target.schema:
            former = None
            if old is not None and (i := index_of.get(field.name)) is not None:
                former = (F.col(f"{_OLD}{i}"), old.fields[i].data_type)
            value = None
            for number, assignments in enumerate(self.clauses):
                new = self._new_value(field, number, assignments, types, former)
                applies = F.col(self.clause) == number
                value = F.when(applies, new) if value is None else value.when(applies, new)
            null = F.lit(None).cast(spark_type(field.data_type))
            found.append((null if value is None else value).alias(field.name))
        return found

    def _new_value(
        self,
        field: StructField,
        number: int,
        assignments: Assignments,
        types: Mapping[str, DataType],
        former: tuple[Column, DataType] | None,
    ) -> Column:
        cast = Cast(self.target.table, missing_members=False)
        values = {
            path: (F.col(f"{_NEW}{number}_{i}"), types[f"{_NEW}{number}_{i}"])
            for i, path in enumerate(assignments.values)
            if path[0] == field.name
        }
        value = _Value(cast, assignments, values).of((field.name,), field, former)
        return without_empty(value, field, self.target.partition_by)

    def with_generated(self, rows: DataFrame, keep: Sequence[str]) -> DataFrame:
        """Compute generated columns in the rows of clauses that don't assign them."""
        table = self.target.table
        fields = [
            (field, missing)
            for field in self.target.schema
            if GENERATION_EXPRESSION in field.metadata
            and (missing := [n for n, c in enumerate(self.clauses) if not c.assigns(field.name)])
        ]
        if not fields:
            return rows
        computed = [
            _when(self.clause, missing, expression(field, GENERATION_EXPRESSION, table)).alias(
                f"{_COMPUTED}{i}"
            )
            for i, (field, missing) in enumerate(fields)
        ]
        raw = rows.select("*", *computed)
        types = {
            field.name: field.data_type
            for field in parse_schema(
                raw.select([f"{_COMPUTED}{i}" for i in range(len(fields))]).schema.json(), table
            )
        }
        made = {}
        for i, (field, missing) in enumerate(fields):
            name = f"{_COMPUTED}{i}"
            value = Cast(table).column(F.col(name), types[name], field.data_type, field.name)
            value = without_empty(value, field, self.target.partition_by)
            is_computed = F.col(self.clause).isin(missing)
            made[field.name] = F.when(is_computed, value).otherwise(F.col(quoted(field.name)))
        columns = [*keep, *self.target.schema.names]
        return raw.select([made[n].alias(n) if n in made else F.col(quoted(n)) for n in columns])


@dataclass(frozen=True, slots=True)
class _Value:
    """Makes the new value of one column in the rows of one clause.

    Attributes:
        cast: casts of the table.
        assignments: those of the clause.
        values: the assigned values and their types, by path.
    """

    cast: Cast
    assignments: Assignments
    values: Mapping[SchemaPath, tuple[Column, DataType]]

    def of(
        self, path: SchemaPath, field: StructField, former: tuple[Column, DataType] | None
    ) -> Column:
        """The value of a column, or of a member of a struct.

        Args:
            path: its path.
            field: the table's column or member.
            former: the old value and its type; None if there is none.
        """
        name = ".".join(path)
        if path in self.values:
            column, found = self.values[path]
            if self.assignments.keeps_members and former is not None:
                return self._merged(column, found, former, field.data_type, name)
            return self.cast.column(column, found, field.data_type, name)
        if isinstance(field.data_type, StructType) and self.assignments.assigns_inside(path):
            # As in Delta Spark, a struct that was null becomes one whose other members are null.
            return F.struct(
                *(
                    self.of((*path, member.name), member, _member(former, member)).alias(
                        member.name
                    )
                    for member in field.data_type
                )
            )
        if former is None:
            return absent_value(field, self.cast)
        return Cast(self.cast.table).column(*former, field.data_type, name)

    def _merged(
        self,
        column: Column,
        found: DataType,
        former: tuple[Column, DataType],
        wanted: DataType,
        path: str,
    ) -> Column:
        """A new value, in whose structs members that it lacks are the old ones."""
        if not isinstance(found, StructType) or not isinstance(wanted, StructType):
            return Cast(self.cast.table).column(column, found, wanted, path)
        given = {field.name.lower(): field for field in found}
        members = []
        for member in wanted:
            old, new = _member(former, member), given.get(member.name.lower())
            name = f"{path}.{member.name}"
            if new is None:
                null = F.lit(None).cast(spark_type(member.data_type))
                value = (
                    null
                    if old is None
                    else Cast(self.cast.table).column(*old, member.data_type, name)
                )
            elif old is None:
                value = Cast(self.cast.table).column(
                    column.getField(new.name), new.data_type, member.data_type, name
                )
            else:
                value = self._merged(
                    column.getField(new.name), new.data_type, old, member.data_type, name
                )
            members.append(value.alias(member.name))
        has_old = any(member.name.lower() not in given for member in wanted)
        is_null = column.isNull() & former[0].isNull() if has_old else column.isNull()
        return F.when(~is_null, F.struct(*members))


def _member(
    former: tuple[Column, DataType] | None, member: StructField
) -> tuple[Column, DataType] | None:
    """The old value of a struct's member, and its type; None if the struct had no such member."""
    if former is None or not isinstance(former[1], StructType):
        return None
    for field in former[1]:
        if field.name.lower() == member.name.lower():
            return former[0].getField(field.name), field.data_type
    return None


def _when(clause: str, numbers: int | Sequence[int], value: Column) -> Column:
    wanted = [numbers] if isinstance(numbers, int) else list(numbers)
    return F.when(F.col(clause).isin(wanted), value)


def _value(value: Any, field: StructField, cast: Cast, argument: str) -> Column:
    if isinstance(value, Column):
        return value
    if isinstance(value, str):
        if value.strip().upper() == "DEFAULT":
            return absent_value(field, cast)
        try:
            return F.expr(value)
        except ParseException as error:
            raise InvalidArgumentError(
                f"{argument}: Spark can't parse the value of {field.name!r}: "
                f"{str(error).strip().partition(chr(10))[0]}",
                table=cast.table,
            ) from error
    if value is None or isinstance(value, bool | int | float):
        return F.lit(value)
    raise InvalidArgumentError(
        f"{argument}: the value of {field.name!r} is a {type(value).__name__}: expected SQL as a text, a "
        "Column, or a number",
        table=cast.table,
    )


def _resolved(
    spark: SparkSession, name: Any, target: WriteTarget, argument: str, alias: str | None
) -> tuple[SchemaPath, StructField]:
    """The path of a column in the table's spelling, and the column."""
    for parts in _spellings(spark, name, argument, alias):
        found = _walk(target.schema, parts)
        if found is not None:
            return found
    raise _refused(
        target,
        argument,
        name,
        "the table has no such column outside of arrays and maps; it has "
        f"{', '.join(target.schema.names)}",
    )


def _spellings(
    spark: SparkSession, name: Any, argument: str, alias: str | None
) -> Iterator[SchemaPath]:
    """The paths that a user's name may mean, the likeliest first."""
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
    yield dotted
    if alias is not None and dotted[0].lower() == alias.lower():
        yield dotted[1:]


def _walk(schema: StructType, parts: SchemaPath) -> tuple[SchemaPath, StructField] | None:
    path: list[str] = []
    current: DataType = schema
    found = None
    for part in parts:
        if not isinstance(current, StructType):
            return None
        found = next((f for f in current if f.name.lower() == part.lower()), None)
        if found is None:
            return None
        path.append(found.name)
        current = found.data_type
    return None if found is None else (tuple(path), found)


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
