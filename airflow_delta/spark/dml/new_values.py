"""Compute the new values of rows from the assignments of clauses, and keep their old ones.

Each expression is evaluated once for a row, and only for rows of its own clause, so that it can't fail for
others: first all assigned values, then their casts, then the generated columns that aren't assigned.

Spec: PROTOCOL.md, "Generated Columns", "Default Columns".
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from airflow_delta.engine.features.schema_walk import SchemaPath
from airflow_delta.engine.model.schema import STRING, DataType, StructField, StructType
from airflow_delta.engine.model.schema_json import parse_schema
from airflow_delta.spark.dml.assignments import Assignments, MissingMembers
from airflow_delta.spark.reader.char_columns import char_columns, has_char, padded_column
from airflow_delta.spark.reader.columns import quoted, spark_type
from airflow_delta.spark.reader.snapshot_reader import OWN_PREFIX
from airflow_delta.spark.rules.row_rules import GENERATION_EXPRESSION, without_empty
from airflow_delta.spark.writer.alignment import (
    absent_value,
    default_of,
    select_resolved,
    with_generated,
    without_collation,
)
from airflow_delta.spark.writer.casts import Cast

if TYPE_CHECKING:
    from airflow_delta.spark.writer.target import WriteTarget

__all__ = ["assign", "old_names", "old_values", "with_old_values"]

_NEW, _OLD = f"{OWN_PREFIX}new_", f"{OWN_PREFIX}old_"


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
    clauses: Mapping[int, Assignments],
    target: WriteTarget,
    *,
    clause: str,
    keep: Sequence[str],
    old: StructType | None,
    copies: bool = False,
    computed_later: Sequence[StructField] = (),
) -> DataFrame:
    """Give rows their new values.

    Args:
        rows: the rows, in which the values of the clauses can be resolved; of `with_old_values` unless they
            are new.
        clauses: the clauses, by number, with values that were checked (`Assignments.check`).
        target: the table.
        clause: the column with the number of a row's clause; rows with another number get null in all
            columns, or keep all their values with ``copies``.
        keep: further columns of ``rows`` to be kept.
        old: the table's columns that the rows have, which are the old values; None: the rows are new, and a
            column that isn't assigned gets its default, or null.
        copies: see ``clause``; needs old values.
        computed_later: generated columns that aren't computed here; see `AlignedRows`.

    Returns:
        The columns to be kept, and those of the table.

    Raises:
        ConstraintViolationError: values of a type can't be stored. Facts: columns.
        InvalidTableError: an expression of the table is no text, or Spark can't resolve it.
        InvalidArgumentError: Spark can't resolve it, and the session is case-sensitive. Facts: rule.
    """
    # Each is made once: of hundreds of columns, the calls into the JVM take seconds.
    applies = {number: F.col(clause) == number for number in clauses}
    assigner = _Assigner(clauses, target, clause, applies, copies=copies)
    raw = rows.select(
        *(F.col(quoted(name)) for name in keep),
        *(
            F.when(applies[number], value).alias(alias)
            for alias, number, value in assigner.raw_values()
        ),
        *(name for i in range(len(old.fields) if old else 0) if (name := f"{_OLD}{i}") not in keep),
    )
    chars = assigner.char_names(rows, old)
    columns: list[Column | str] = [*map(quoted, keep), *assigner.columns(raw, old, chars)]
    new = select_resolved(raw, columns, assigner.defaults(old), table=target.table)
    return assigner.with_generated(new, computed_later)


def old_names(schema: StructType) -> list[str]:
    """The names of the columns that `with_old_values` adds."""
    return [f"{_OLD}{i}" for i in range(len(schema.fields))]


@dataclass(frozen=True, slots=True)
class _Assigner:
    """Makes the columns of `assign`.

    Attributes:
        clauses: see there.
        target: see there.
        clause: see there.
        applies: for each clause, whether it is a row's.
        copies: see there.
    """

    clauses: Mapping[int, Assignments]
    target: WriteTarget
    clause: str
    applies: Mapping[int, Column]
    copies: bool

    def raw_values(self) -> Iterator[tuple[str, int, Column]]:
        """Every assigned value: a name for it, the number of its clause, and the column."""
        for number, assignments in self.clauses.items():
            for index, value in enumerate(assignments.values.values()):
                yield f"{_NEW}{number}_{index}", number, value

    def char_names(self, rows: DataFrame, old: StructType | None) -> frozenset[str]:
        """The ``CHAR`` columns of which some clause keeps the old value, or assigns a ``CHAR``.

        Spark has padded such a value, so it must also pad the texts with which rules compare the column. A
        column that only gets other texts is compared as it is, as in a write of these texts. So are members
        of structs, because Spark doesn't pad what is compared with them.
        """
        fields = [f for f in self.target.schema if f.data_type == STRING and has_char(f.metadata)]
        if not fields:
            return frozenset()
        given = char_columns(
            rows.select([value.alias(alias) for alias, _, value in self.raw_values()])
        )
        found = {
            path[0]
            for number, assignments in self.clauses.items()
            for i, path in enumerate(assignments.values)
            if f"{_NEW}{number}_{i}" in given
        }
        found |= {
            field.name
            for field in fields
            if old is not None
            and field.name in old.names
            # It is computed anew.
            and GENERATION_EXPRESSION not in field.metadata
            and not all(assignments.assigns(field.name) for assignments in self.clauses.values())
        }
        return frozenset(found).intersection(field.name for field in fields)

    def columns(
        self, raw: DataFrame, old: StructType | None, chars: Collection[str]
    ) -> list[Column]:
        """The columns of the table. Generated columns that aren't assigned have no values yet.

        Those of ``chars`` are ``CHAR`` for Spark, see `char_names`.
        """
        # Rules and generated columns compare texts byte by byte, whatever the collation of a value.
        given = {
            field.name: (without_collation(raw, field), field.data_type)
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
            value = self._value(field, given, former)
            found.append(
                padded_column(raw.sparkSession, value, field)
                if field.name in chars
                else value.alias(field.name)
            )
        return found

    def defaults(self, old: StructType | None) -> dict[str, Column]:
        """The defaults, or nulls, of columns that some rows lack, by the defaults' names in errors."""
        known = frozenset(old.names if old is not None else ())
        cast = Cast(self.target.table)
        return {
            default_of(field): absent_value(field, cast)
            for field in self.target.schema
            if field.name not in known
            and not all(assignments.assigns(field.name) for assignments in self.clauses.values())
        }

    def _value(
        self,
        field: StructField,
        given: Mapping[str, tuple[Column, DataType]],
        former: tuple[Column, DataType] | None,
    ) -> Column:
        """The value of a column, whatever the clause of the row."""
        other = None
        if self.copies:
            assert former is not None
            other = Cast(self.target.table).column(*former, field.data_type, field.name)
            if not any(assignments.assigns(field.name) for assignments in self.clauses.values()):
                return other
        value = None
        for number, assignments in self.clauses.items():
            new = self._new_value(field, number, assignments, given, former)
            applies = self.applies[number]
            value = F.when(applies, new) if value is None else value.when(applies, new)
        if value is None:
            return F.lit(None).cast(spark_type(field.data_type)) if other is None else other
        # Without another value, it is null.
        return value if other is None else value.otherwise(other)

    def _new_value(
        self,
        field: StructField,
        number: int,
        assignments: Assignments,
        given: Mapping[str, tuple[Column, DataType]],
        former: tuple[Column, DataType] | None,
    ) -> Column:
        refuses = assignments.missing_members is MissingMembers.REFUSED
        cast = Cast(self.target.table, missing_members=not refuses)
        values = {
            path: given[f"{_NEW}{number}_{i}"]
            for i, path in enumerate(assignments.values)
            if path[0] == field.name
        }
        value = _Value(cast, assignments, values).of((field.name,), field, former)
        return without_empty(value, field, self.target.partition_by)

    def with_generated(self, rows: DataFrame, computed_later: Sequence[StructField]) -> DataFrame:
        """Compute generated columns in the rows of clauses that don't assign them."""
        where = {
            field.name: F.col(self.clause).isin(missing)
            for field in self.target.schema
            if GENERATION_EXPRESSION in field.metadata
            and field not in computed_later
            and (missing := [n for n, c in self.clauses.items() if not c.assigns(field.name)])
        }
        fields = [field for field in self.target.schema if field.name in where]
        table, partition_by = self.target.table, self.target.partition_by
        return with_generated(rows, fields, partition_by, table=table, where=where)


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
            if self.assignments.missing_members is MissingMembers.KEPT and former is not None:
                return self._merged(column, found, former, field.data_type, name)
            return self.cast.column(column, found, field.data_type, name)
        if isinstance(field.data_type, StructType) and self.assignments.assigns_inside(path):
            # As in Delta Spark, a null struct becomes a struct whose other members are null.
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
        is_null = column.isNull()
        if _lacks_members(found, wanted):
            # As in Delta Spark, the members that only the table has outlive a null struct.
            is_null &= former[0].isNull()
        return F.when(~is_null, F.struct(*members))


def _lacks_members(found: StructType, wanted: StructType) -> bool:
    """Whether a struct lacks a member that another one has, also inside structs."""
    given = {field.name.lower(): field.data_type for field in found}
    for member in wanted:
        inner = given.get(member.name.lower())
        if inner is None:
            return True
        if (
            isinstance(inner, StructType)
            and isinstance(member.data_type, StructType)
            and _lacks_members(inner, member.data_type)
        ):
            return True
    return False


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
