"""``airflow-delta alter CHANGE URI …``: change a table apart from its rows, each time by one commit.

The changes are the methods of ``TableAlteration``. A column inside another is named as in SQL
(``address.city``, with backticks where a part has other characters than letters, digits and ``_``).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from airflow_delta.cli.options import CommandGroup, PairType, exactly_one, json_option, subcommand
from airflow_delta.cli.reports import print_report
from airflow_delta.cli.target import Target, table_options

if TYPE_CHECKING:
    from airflow_delta.engine.model.schema import DataType
    from airflow_delta.engine.transaction.alter.table import TableAlteration
    from airflow_delta.engine.transaction.result import CommitResult

__all__ = ["alter"]


@click.group(
    "alter",
    cls=CommandGroup,
    help="Change columns, properties, constraints or clustering, by one commit. No data file is rewritten. "
    "A column inside another is named with dots, such as address.city.",
    short_help="Change columns, properties, constraints or clustering",
    context_settings={"help_option_names": ["-h", "--help"]},
)
def alter() -> None:
    """Change a table apart from its rows."""


_COLUMN = click.argument("column", metavar="COLUMN")
_IF_EXISTS = click.option(
    "--if-exists", is_flag=True, help="Don't fail if the table doesn't have it."
)
_FIRST = click.option("--first", is_flag=True, help="Put it first in the table or struct.")
_AFTER = click.option(
    "--after", metavar="NAME", help="Put it after this column of the table or struct."
)


def _change(name: str, help: str) -> Callable[[Callable[..., CommitResult]], click.Command]:  # noqa: A002
    """Make a function a change: it gets a `TableAlteration` and the arguments, and returns the commit.

    Args:
        name: the name of the change.
        help: what it does.
    """

    def decorate(function: Callable[..., CommitResult]) -> click.Command:
        """Add a subcommand of ``alter`` that calls the function."""

        @wraps(function)
        def run(target: Target, *, as_json: bool, **arguments: Any) -> None:
            """Change the table, print the commit, and write a checkpoint if one is due."""
            table = target.open()
            result = function(table.alter, **arguments)
            print_report(target.uri, result.to_dict(), as_json=as_json)
            if result.checkpoint_due:
                table.checkpoint(result.version, backfill_first=True)

        command = subcommand(name, help=help, is_long=True)(table_options()(json_option(run)))
        alter.add_command(command)
        return command

    return decorate


@_change("set-properties", "Set table properties.")
@click.argument("properties", metavar="NAME=VALUE...", type=PairType("="), nargs=-1, required=True)
def _set_properties(
    alteration: TableAlteration, properties: tuple[tuple[str, str], ...]
) -> CommitResult:
    return alteration.set_properties(dict(properties))


@_change("unset-properties", "Remove table properties.")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@_IF_EXISTS
def _unset_properties(
    alteration: TableAlteration, names: tuple[str, ...], *, if_exists: bool
) -> CommitResult:
    return alteration.unset_properties(names, if_exists=if_exists)


@_change("add-feature", "Add a table feature to the protocol.")
@click.argument("feature", metavar="FEATURE")
def _add_feature(alteration: TableAlteration, feature: str) -> CommitResult:
    return alteration.add_feature(feature)


@_change(
    "add-column", "Add a column, which is null in all existing rows. TYPE is as for change-type."
)
@_COLUMN
@click.argument("type_", metavar="TYPE")
@click.option("--comment", metavar="TEXT", help="A comment for the column.")
@_FIRST
@_AFTER
def _add_column(
    alteration: TableAlteration,
    column: str,
    type_: str,
    *,
    comment: str | None,
    first: bool,
    after: str | None,
) -> CommitResult:
    from airflow_delta.engine.model.schema import StructField

    *inside, name = _path(column)
    metadata = {} if comment is None else {"comment": comment}
    field = StructField(name, _data_type(type_), metadata=metadata)
    return alteration.add_columns([field], inside=tuple(inside), first=first, after=after)


@_change("rename-column", "Rename a column; this needs column mapping.")
@_COLUMN
@click.argument("new_name", metavar="NEW_NAME")
def _rename_column(alteration: TableAlteration, column: str, new_name: str) -> CommitResult:
    return alteration.rename_column(_path(column), new_name)


@_change("drop-columns", "Drop columns; this needs column mapping. The data files keep the values.")
@click.argument("columns", metavar="COLUMN...", nargs=-1, required=True)
def _drop_columns(alteration: TableAlteration, columns: tuple[str, ...]) -> CommitResult:
    return alteration.drop_columns([_path(column) for column in columns])


@_change(
    "change-type",
    "Widen the type of a column; this needs delta.enableTypeWidening. TYPE is a name such as long or "
    "decimal(10,2), or a nested type as JSON, as in the schema of the protocol.",
)
@_COLUMN
@click.argument("type_", metavar="TYPE")
def _change_type(alteration: TableAlteration, column: str, type_: str) -> CommitResult:
    return alteration.change_type(_path(column), _data_type(type_))


@_change("set-nullable", "Allow nulls in a column.")
@_COLUMN
def _set_nullable(alteration: TableAlteration, column: str) -> CommitResult:
    return alteration.set_nullable(_path(column))


@_change("set-not-null", "Forbid nulls in a column of a table without data.")
@_COLUMN
def _set_not_null(alteration: TableAlteration, column: str) -> CommitResult:
    return alteration.set_not_null(_path(column))


@_change("set-comment", "Set the comment of a column.")
@_COLUMN
@click.argument("comment", metavar="TEXT")
def _set_comment(alteration: TableAlteration, column: str, comment: str) -> CommitResult:
    return alteration.set_comment(_path(column), comment)


@_change("drop-comment", "Remove the comment of a column.")
@_COLUMN
def _drop_comment(alteration: TableAlteration, column: str) -> CommitResult:
    return alteration.set_comment(_path(column), None)


@_change(
    "set-default", "Set the default of a column, for rows that are later written without a value."
)
@_COLUMN
@click.argument("expression", metavar="EXPRESSION")
def _set_default(alteration: TableAlteration, column: str, expression: str) -> CommitResult:
    return alteration.set_default(_path(column), expression)


@_change("drop-default", "Remove the default of a column.")
@_COLUMN
def _drop_default(alteration: TableAlteration, column: str) -> CommitResult:
    return alteration.drop_default(_path(column))


@_change("move-column", "Move a column within its struct.")
@_COLUMN
@_FIRST
@_AFTER
def _move_column(
    alteration: TableAlteration, column: str, *, first: bool, after: str | None
) -> CommitResult:
    exactly_one(first=first, after=after)
    return alteration.move_column(_path(column), first=first, after=after)


@_change("add-constraint", "Add a CHECK constraint to a table without data.")
@click.argument("name", metavar="NAME")
@click.argument("expression", metavar="EXPRESSION")
def _add_constraint(alteration: TableAlteration, name: str, expression: str) -> CommitResult:
    return alteration.add_constraint(name, expression)


@_change("drop-constraint", "Drop a CHECK constraint.")
@click.argument("name", metavar="NAME")
@_IF_EXISTS
def _drop_constraint(alteration: TableAlteration, name: str, *, if_exists: bool) -> CommitResult:
    return alteration.drop_constraint(name, if_exists=if_exists)


@_change("cluster-by", "Cluster the table by other columns from now on; without COLUMN, by none.")
@click.argument("columns", metavar="[COLUMN...]", nargs=-1)
def _cluster_by(alteration: TableAlteration, columns: tuple[str, ...]) -> CommitResult:
    return alteration.cluster_by([_path(column) for column in columns])


@_change("set-name", "Set the name in the metadata; without NAME, remove it.")
@click.argument("name", metavar="[NAME]", required=False)
def _set_name(alteration: TableAlteration, name: str | None) -> CommitResult:
    return alteration.set_name(name)


@_change("set-description", "Set the description of the table; without TEXT, remove it.")
@click.argument("description", metavar="[TEXT]", required=False)
def _set_description(alteration: TableAlteration, description: str | None) -> CommitResult:
    return alteration.set_description(description)


def _path(column: str) -> tuple[str, ...]:
    """Parse the name of one column.

    Raises:
        InvalidArgumentError: it is none.
    """
    from airflow_delta.engine.errors import InvalidArgumentError
    from airflow_delta.engine.model.sql_names import listed_columns

    names = listed_columns(column, "COLUMN")
    if len(names) != 1:
        raise InvalidArgumentError(f"COLUMN: expected the name of one column, found {column!r}")
    return names[0]


def _data_type(text: str) -> DataType:
    """Parse a type.

    Raises:
        InvalidArgumentError: it is none.
    """
    from airflow_delta.engine.errors import InvalidArgumentError, InvalidTableError
    from airflow_delta.engine.model.schema_json import data_type_from_json

    try:
        if text.lstrip().startswith("{"):
            return data_type_from_json(json.loads(text), path="TYPE")
        name = text.strip().lower()
        return data_type_from_json(_SQL_TYPES.get(name, name), path="TYPE")
    except ValueError as error:
        raise InvalidArgumentError(f"TYPE: {text!r} is no JSON: {error}") from error
    except InvalidTableError as error:
        raise InvalidArgumentError(error.message) from error


_SQL_TYPES = {"tinyint": "byte", "smallint": "short", "int": "integer", "bigint": "long"}
"""The names of types in SQL that differ from those of the protocol."""
