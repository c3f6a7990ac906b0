"""Names that a column can have.

The specification speaks of naming restrictions that column mapping lifts, without telling them; they
are those of the reference implementation's Parquet writer.
"""

from __future__ import annotations

from airflow_delta.engine.errors import InvalidTableError
from airflow_delta.engine.features.schema_walk import all_fields
from airflow_delta.engine.model.schema import StructType

__all__ = ["check_column_names", "check_names_not_empty"]

_UNFIT_CHARACTERS = frozenset(" ,;{}()\n\t=")


def check_names_not_empty(schema: StructType, *, table: str) -> None:
    """Make sure that every column has a name. The protocol doesn't say so; SQL has none for others.

    Raises:
        InvalidTableError: a column has none.
    """
    for path, field in all_fields(schema):
        if not field.name:
            raise InvalidTableError(
                f"a column has the empty name, {path} from the top down: expected a name",
                table=table,
                columns=(".".join(path),),
            )


def check_column_names(schema: StructType, *, table: str) -> None:
    """Make sure that files can call the columns by their names, as they do without column mapping.

    Raises:
        InvalidTableError: a name has an unfit character. Facts: columns.
    """
    unfit = [".".join(path) for path, f in all_fields(schema) if _UNFIT_CHARACTERS & {*f.name}]
    if unfit:
        raise InvalidTableError(
            f"the names of the columns {unfit} have a character of ' ,;{{}}()=', a tab or a line break; "
            "set delta.columnMapping.mode to name, so that files call them otherwise",
            table=table,
            columns=tuple(unfit),
        )
