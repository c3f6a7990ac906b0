"""Give rows exactly the columns of a table: names, order, types, and the values that rows lack.

1. Columns are matched by name, ignoring case, and cast (`casts`).
2. A column that the rows lack gets its default, or null; an explicit null stays null.
3. Generated columns that the rows lack are computed. (Those that they have are checked by
   `airflow_delta.spark.rules`.) If one depends on an identity column whose value isn't made yet, it is
   computed later (`AlignedRows.computed_later`).
4. Empty texts in partition columns become null, which is all that a partition value can say (edge
   case G5).

Identity columns are left to `identity`; until then they are null.

Spec: PROTOCOL.md, "Default Columns", "Generated Columns", "Identity Columns".
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from airflow_delta.engine.errors import ConstraintViolationError, InvalidTableError
from airflow_delta.engine.features.column_changes.sql_columns import columns_in_sql
from airflow_delta.engine.features.identity import IdentityColumn, identity_columns
from airflow_delta.engine.model.schema import STRING, StructField, StructType
from airflow_delta.engine.model.schema_json import parse_schema
from airflow_delta.spark.reader.char_columns import CHAR_METADATA, has_char
from airflow_delta.spark.reader.columns import quoted, spark_type
from airflow_delta.spark.reader.snapshot_reader import OWN_PREFIX
from airflow_delta.spark.rules.row_rules import table_expression, unresolved_rule, without_empty
from airflow_delta.spark.writer.casts import Cast
from airflow_delta.spark.writer.rows_schema import rows_schema

__all__ = [
    "AlignedRows",
    "absent_value",
    "align_rows",
    "default_of",
    "depending_on",
    "select_resolved",
    "with_generated",
]

_GENERATION = "delta.generationExpression"
_DEFAULT = "CURRENT_DEFAULT"
_COMPUTED = f"{OWN_PREFIX}computed_"


@dataclass(frozen=True, slots=True)
class AlignedRows:
    """Rows with the columns of a table.

    Attributes:
        rows: the rows: the table's columns, in its order and types.
        given: the names of the table's columns that the rows had.
        made_identities: the identity columns whose values must still be made.
        computed_later: the generated columns that must be computed from them; see `depending_on`.
        made_where: which rows get the value of such a column, by its name and by further columns; a column
            that isn't in it gets its value in all rows.
        row_ids: a further column with the ids of rows that had one, null for others; None: all are new.
        checked: whether a row must keep the rules of the table, by further columns; None: all rows must.
    """

    rows: DataFrame
    given: frozenset[str]
    made_identities: tuple[IdentityColumn, ...]
    computed_later: tuple[StructField, ...] = ()
    made_where: Mapping[str, Column] = field(default_factory=dict)
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
        InvalidTableError: an expression of the table is no text, or Spark can't resolve it; or an identity
            column can't be read.
    """
    given = {field.name.lower(): field for field in rows_schema(rows)}
    _check_names(given, schema, partition_by, table)
    identities = identity_columns(schema)
    _check_identities(given, identities, table)
    made = {column.name for column in identities if column.name.lower() not in given}
    cast = Cast(table)
    columns, computed = [], []
    absent: dict[str, Column] = {}
    for column in schema:
        source = given.get(column.name.lower())
        if source is None:
            value = absent[default_of(column)] = absent_value(column, cast)
            if _GENERATION in column.metadata:
                computed.append(column)
        else:
            given_value = without_collation(rows, source)
            value = cast.column(given_value, source.data_type, column.data_type, column.name)
        value = without_empty(value, column, partition_by)
        columns.append(_named(value, column.name, source))
    later = depending_on(computed, made, table=table)
    now = [column for column in computed if column not in later]
    aligned = select_resolved(rows, columns, absent, table=table)
    return AlignedRows(
        with_generated(aligned, now, partition_by, table=table),
        frozenset(column.name for column in schema if column.name.lower() in given),
        tuple(column for column in identities if column.name in made),
        later,
    )


def _named(column: Column, name: str, source: StructField | None) -> Column:
    """A column under its name. One that is declared as ``CHAR`` stays so, for comparisons with texts."""
    if source is None or source.data_type != STRING or not has_char(source.metadata):
        return column.alias(name)
    return column.alias(name, metadata={CHAR_METADATA: source.metadata[CHAR_METADATA]})


def without_collation(rows: DataFrame, field: StructField) -> Column:
    """A column of rows whose texts are compared byte by byte, as those of the table.

    Args:
        rows: the rows.
        field: the column, in the engine's types, which have no collations.
    """
    # Not `rows[…]`, which takes a quoted name for a regular expression if the session says so.
    column = F.col(quoted(field.name))
    plain = spark_type(field.data_type)
    if rows.schema[field.name].dataType.simpleString() == plain.simpleString():
        return column
    return column.cast(plain)


def depending_on(
    columns: Iterable[StructField], identities: Collection[str], *, table: str
) -> tuple[StructField, ...]:
    """The generated columns that may depend on some identity columns, to be computed after these are made.

    Args:
        columns: generated columns.
        identities: the names of identity columns.
        table: the table's location, for errors.

    Raises:
        InvalidTableError: a generation expression is no text.
    """
    made = {name.lower() for name in identities}
    return tuple(
        column
        for column in columns
        if made & {path[0].lower() for path in columns_in_sql(_sql(column, _GENERATION, table))}
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
        InvalidTableError: the default is no text, Spark can't parse it, or it needs other columns. Facts:
            rule.
        InvalidArgumentError: see `airflow_delta.spark.rules.row_rules.unresolved_rule`.
    """
    null = F.lit(None).cast(spark_type(field.data_type))
    if field.metadata.get(_DEFAULT) is None or "delta.identity.start" in field.metadata:
        return null
    text, rule = _sql(field, _DEFAULT, cast.table), default_of(field)
    value = table_expression(text, rule, table=cast.table)
    if columns_in_sql(text):
        _check_without_columns(value, rule, table=cast.table)
    return value.cast(spark_type(field.data_type))


def _check_without_columns(value: Column, rule: str, *, table: str) -> None:
    """Check that an expression can be resolved where there are no columns.

    The rows may have columns of the names in it, which aren't meant.
    """
    try:
        SparkSession.active().range(1).select().select(value)
    except AnalysisException as error:
        raise unresolved_rule(rule, error, table=table) from error


def default_of(field: StructField) -> str:
    """The name of a column's default in errors."""
    return f"default of {field.name}"


def select_resolved(
    rows: DataFrame, columns: Sequence[Column | str], rules: Mapping[str, Column], *, table: str
) -> DataFrame:
    """Select columns; an error about one of the table's expressions names it.

    Args:
        rows: the rows.
        columns: the columns.
        rules: the expressions of the table among them, by what they are in it.
        table: the table's location, for errors.

    Raises:
        InvalidTableError: Spark can't resolve one of the expressions. Facts: rule.
        InvalidArgumentError: the same, and the session is case-sensitive. Facts: rule.
        AnalysisException: it can't resolve something else.
    """
    try:
        return rows.select(*columns)
    except AnalysisException:
        for rule, expression in rules.items():
            try:
                rows.select(expression)
            except AnalysisException as error:
                raise unresolved_rule(rule, error, table=table) from error
        raise


def with_generated(
    rows: DataFrame,
    columns: Sequence[StructField],
    partition_by: tuple[str, ...],
    *,
    table: str,
    where: Mapping[str, Column] | None = None,
) -> DataFrame:
    """Compute generated columns.

    The type of an expression is known once Spark has resolved it with the other columns, and then cast.

    Args:
        rows: the rows, with all columns of the table.
        columns: the generated columns.
        partition_by: the table's partition columns.
        table: its location, for errors.
        where: the rows in which a column is computed, by its name; in others it keeps its value, and its
            expression isn't evaluated. A column that isn't in it is computed in all rows.

    Returns:
        The rows, with the same columns.

    Raises:
        InvalidTableError: an expression is no text, Spark can't resolve it, or it has a type outside of the
            protocol.
        ConstraintViolationError: the column can't store values of the expression's type. Facts: columns.
    """
    if not columns:
        return rows
    chosen = where or {}
    rules = [f"generated column {column.name}" for column in columns]
    computed = [
        table_expression(_sql(column, _GENERATION, table), rule, table=table)
        for column, rule in zip(columns, rules, strict=True)
    ]
    prefix = _COMPUTED
    while any(name.lower().startswith(prefix) for name in rows.columns):
        prefix += "_"
    names = [f"{prefix}{i}" for i in range(len(columns))]
    values = [
        (F.when(chosen[column.name], value) if column.name in chosen else value).alias(name)
        for column, value, name in zip(columns, computed, names, strict=True)
    ]
    raw = select_resolved(
        rows, ["*", *values], dict(zip(rules, computed, strict=True)), table=table
    )
    types = parse_schema(raw.select(names).schema.json(), table)
    cast, made = Cast(table), {}
    for column, name, found in zip(columns, names, types, strict=True):
        value = cast.column(F.col(name), found.data_type, column.data_type, column.name)
        value = without_empty(value, column, partition_by)
        if column.name in chosen:
            value = F.when(chosen[column.name], value).otherwise(F.col(quoted(column.name)))
        made[column.name] = value.alias(column.name)
    return raw.select([made.get(name, F.col(quoted(name))) for name in rows.columns])


def _sql(column: StructField, key: str, table: str) -> str:
    """The SQL in a column's metadata."""
    text = column.metadata[key]
    if not isinstance(text, str):
        raise InvalidTableError(
            f"the column {column.name!r} has {key}={text!r} in its metadata: expected SQL as a text",
            table=table,
            column=column.name,
        )
    return text
