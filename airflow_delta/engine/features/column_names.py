"""Check the names of columns.

The specification mentions naming restrictions that column mapping lifts, but doesn't list them. The rules
here are those of the reference implementation's Parquet writer.
"""

from __future__ import annotations

from airflow_delta.engine.errors import InvalidTableError
from airflow_delta.engine.features.schema_walk import all_fields
from airflow_delta.engine.model.schema import StructType

__all__ = ["check_column_names", "check_names_not_empty"]

_UNFIT_CHARACTERS = frozenset(" ,;{}()\n\t=")
_BY_MAPPING = "set delta.columnMapping.mode to name, so that files use other names"


def check_names_not_empty(schema: StructType, *, table: str) -> None:
    """Check that no column has an empty name. The protocol allows it, but SQL can't refer to such a column.

    Raises:
        InvalidTableError: a name is empty.
    """
    for path, field in all_fields(schema):
        if not field.name:
            raise InvalidTableError(
                f"the column at {path} has an empty name: expected a name",
                table=table,
                columns=(".".join(path),),
            )


def check_column_names(schema: StructType, *, table: str, remedy: str = _BY_MAPPING) -> None:
    """Check that data files can use the names of the columns, as they do without column mapping.

    Args:
        schema: the columns.
        table: the table, for errors.
        remedy: what the error says to do.

    Raises:
        InvalidTableError: a name has a character that files can't have. Facts: columns.
    """
    unfit = [".".join(path) for path, f in all_fields(schema) if _UNFIT_CHARACTERS & {*f.name}]
    if unfit:
        raise InvalidTableError(
            f"the names of the columns {unfit} have a character of ' ,;{{}}()=', a tab or a line "
            f"break; {remedy}",
            table=table,
            columns=tuple(unfit),
        )
