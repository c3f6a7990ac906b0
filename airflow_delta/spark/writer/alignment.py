"""Give rows exactly the columns of a table: names, order, types, and the values that rows lack.

1. Columns are matched by name, ignoring case, and cast (`casts`).
2. A column that the rows lack gets its default, or null; an explicit null stays null.
3. Generated columns that the rows lack are computed. (Those that they have are checked by
   `airflow_delta.spark.rules`.)
4. Empty texts in partition columns become null, which is all that a partition value can say (edge
   case G5).

Identity columns are left to `identity`; until then they are null.

Spec: PROTOCOL.md, "Default Columns", "Generated Columns", "Identity Columns".
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from airflow_delta.engine.errors import ConstraintViolationError, InvalidTableError
from airflow_delta.engine.features.identity import IdentityColumn, identity_columns
from airflow_delta.engine.model.schema import BINARY, STRING, StructField, StructType
from airflow_delta.spark.reader.columns import quoted, spark_type
from airflow_delta.spark.writer.casts import Cast
from airflow_delta.spark.writer.rows_schema import rows_schema

__all__ = ["AlignedRows", "absent_value", "align_rows", "expression", "without_empty"]

_GENERATION = "delta.generationExpression"
_DEFAULT = "CURRENT_DEFAULT"


@dataclass(frozen=True, slots=True)
class AlignedRows:
    """Rows with the columns of a table.

    Attributes:
        rows: the rows: the table's columns, in its order and types.
        given: the names of the table's columns that the rows had.
        made_identities: the identity columns whose values must still be made.
        is_inserted: a further boolean column: whether the row is new, so that identities are made for it;
            None: all are.
        row_ids: a further column with the ids of rows that had one, null for others; None: all are new.
        checked: whether a row must keep the rules of the table, by further columns; None: all rows must.
    """

    rows: DataFrame
    given: frozenset[str]
    made_identities: tuple[IdentityColumn, ...]
    is_inserted: str | None = None
    row_ids: str | None = None
    checked: Column | None = None


def align_rows(
    rows: DataFrame, schema: StructType, partition_by: tuple[str, ...], *, table: str
) -> AlignedRows:
    """Give rows the columns of a table.

    Args:
        rows: the rows.
        schema: the table's schema, logical names.
        partition_by: its partition columns.
        table: its location, for errors.

    Raises:
        ConstraintViolationError: the rows have columns that the table lacks, or an identity column that
            takes no values of users; they lack a column that is NOT NULL or partitions the table; or
            values of a type can't be stored. Facts: columns.
        InvalidTableError: an expression of the table is no text, or an identity column can't be read.
        AnalysisException: Spark can't resolve an expression of the table.
    """
    given = {field.name.lower(): field for field in rows_schema(rows)}
    _check_names(given, schema, partition_by, table)
    identities = identity_columns(schema)
    _check_identities(given, identities, table)
    made = {column.name for column in identities if column.name.lower() not in given}
    cast = Cast(table)
    first, computed = [], []
    for field in schema:
        source = given.get(field.name.lower())
        if source is None and _GENERATION in field.metadata:
            computed.append(field)
            continue
        if source is None:
            value = absent_value(field, cast)
        else:
            value = cast.column(
                rows[quoted(source.name)], source.data_type, field.data_type, field.name
            )
        first.append(without_empty(value, field, partition_by).alias(field.name))
    aligned = rows.select(first)
    if computed:
        aligned = _with_generated(aligned, computed, partition_by, cast).select(
            [quoted(name) for name in schema.names]
        )
    return AlignedRows(
        aligned,
        frozenset(field.name for field in schema if field.name.lower() in given),
        tuple(column for column in identities if column.name in made),
    )


def _check_names(
    given: dict[str, StructField], schema: StructType, partition_by: tuple[str, ...], table: str
) -> None:
    known = {field.name.lower() for field in schema}
    unknown = [field.name for name, field in given.items() if name not in known]
    if unknown:
        raise ConstraintViolationError(
            f"the rows have the columns {unknown}, which the table lacks: leave them out, or add them to "
            f"the table by merge_schema=True; the table has {', '.join(schema.names)}",
            table=table,
            columns=tuple(unknown),
        )
    missing = [
        field.name
        for field in schema
        if field.name.lower() not in given
        and not _has_value(field)
        and (not field.nullable or field.name in partition_by)
    ]
    if missing:
        raise ConstraintViolationError(
            f"the rows lack the columns {missing}, which are NOT NULL or partition the table, and have no "
            "default: add them to the rows",
            table=table,
            columns=tuple(missing),
        )


def _has_value(field: StructField) -> bool:
    """Whether the table knows a value for rows that lack the column."""
    return any(key in field.metadata for key in (_GENERATION, _DEFAULT, "delta.identity.start"))


def _check_identities(
    given: dict[str, StructField], identities: tuple[IdentityColumn, ...], table: str
) -> None:
    refused = [
        column.name
        for column in identities
        if column.name.lower() in given and not column.allow_explicit_insert
    ]
    if refused:
        raise ConstraintViolationError(
            f"the rows have values of the identity columns {refused}, which are GENERATED ALWAYS: leave "
            "these columns out, and the writer makes their values",
            table=table,
            columns=tuple(refused),
        )


def absent_value(field: StructField, cast: Cast) -> Column:
    """The value of a column that the rows lack: its default, or null.

    Args:
        field: the column.
        cast: casts of the table.

    Raises:
        InvalidTableError: the default is no text.
    """
    null = F.lit(None).cast(spark_type(field.data_type))
    if field.metadata.get(_DEFAULT) is None or "delta.identity.start" in field.metadata:
        return null
    return expression(field, _DEFAULT, cast.table).cast(spark_type(field.data_type))


def _with_generated(
    rows: DataFrame, fields: list[StructField], partition_by: tuple[str, ...], cast: Cast
) -> DataFrame:
    """Rows with the generated columns that they lack.

    The type of an expression is known once Spark has resolved it with the other columns, and then cast.
    """
    raw = rows.select("*", *(expression(f, _GENERATION, cast.table).alias(f.name) for f in fields))
    types = {field.name: field.data_type for field in rows_schema(raw)}
    values = [
        without_empty(
            cast.column(raw[quoted(f.name)], types[f.name], f.data_type, f.name), f, partition_by
        ).alias(f.name)
        for f in fields
    ]
    return raw.select(*(raw[quoted(name)] for name in rows.columns), *values)


def expression(field: StructField, key: str, table: str) -> Column:
    """The SQL expression in a column's metadata.

    Args:
        field: the column.
        key: the key in its metadata.
        table: the table's location, for errors.

    Raises:
        InvalidTableError: the expression is no text.
    """
    text = field.metadata[key]
    if not isinstance(text, str):
        raise InvalidTableError(
            f"the column {field.name!r} has {key}={text!r} in its metadata: expected SQL as a text",
            table=table,
            column=field.name,
        )
    return F.expr(text)


def without_empty(column: Column, field: StructField, partition_by: tuple[str, ...]) -> Column:
    """The values of a column, with null for empty ones if it partitions the table."""
    if field.name not in partition_by or field.data_type not in (STRING, BINARY):
        return column
    return F.when(F.length(column) > 0, column)
