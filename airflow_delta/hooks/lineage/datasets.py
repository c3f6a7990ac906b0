"""The datasets of a task, as plain values, and their names in OpenLineage.

`airflow_delta.operators.lineage.rules` finds them in the results of tasks, `columns` adds the columns of
tables, and `facets` makes the objects of the OpenLineage client from them. This module imports neither that
client nor the engine, because DAG files are parsed with it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias
from urllib.parse import unquote

from airflow_delta.hooks.table_locations import canonical_uri

__all__ = [
    "Column",
    "ColumnOrigin",
    "Lineage",
    "LineageDataset",
    "NewValues",
    "RowChanges",
    "StateChange",
    "WrittenData",
    "dataset_name",
]

StateChange: TypeAlias = Literal["ALTER", "CREATE", "DROP", "OVERWRITE", "TRUNCATE"]
"""The lifecycle changes of OpenLineage that tasks make."""

_URI = re.compile(r"([A-Za-z][\w+.-]+)://([^/]*)/*(.*)", re.DOTALL)
_OBJECT_STORES = ("s3", "gs", "abfss", "wasb", "wasbs")
_WEB = ("http", "https")


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a dataset.

    Attributes:
        name: its name.
        type: its type, as the log names it.
        comment: its comment; None for none.
        fields: the fields of a struct.
        is_generated: whether the table computes its values from other columns.
    """

    name: str
    type: str
    comment: str | None = None
    fields: tuple[Column, ...] = ()
    is_generated: bool = False


@dataclass(frozen=True, slots=True)
class ColumnOrigin:
    """A column that values of a column come from.

    Attributes:
        name: the column.
        uri: the dataset of the other column.
        origin: the name of the other column.
        is_unchanged: whether these values are taken as they are.
    """

    name: str
    uri: str
    origin: str
    is_unchanged: bool = True


@dataclass(frozen=True, slots=True)
class WrittenData:
    """The data that a task has written to a dataset; None for what isn't known.

    Attributes:
        rows: the number of rows.
        size: the bytes of the files.
        files: the number of files.
    """

    rows: int | None = None
    size: int | None = None
    files: int | None = None


@dataclass(frozen=True, slots=True)
class NewValues:
    """The new values that some rows of a table get.

    Attributes:
        values: SQL, or constants, by the names of columns; None: each column gets the value of the source's
            column of its name.
        sees_table: whether the SQL is over the columns of the table.
        sees_source: whether it is over those of the source.
    """

    values: Mapping[str, Any] | None
    sees_table: bool = True
    sees_source: bool = False


@dataclass(frozen=True, slots=True)
class RowChanges:
    """The changes of rows that make a version of a table from the version before.

    Attributes:
        clauses: the new values.
        source: the dataset of the rows that are merged into the table; None for none, or if its columns
            can't be known.
        source_alias: its name in the SQL.
        table_alias: the name of the table there; None for none.
        keeps_rows: whether all columns of the table have values of the version before.
        is_of_all_rows: whether all rows get the new values.
    """

    clauses: tuple[NewValues, ...] = ()
    source: LineageDataset | None = None
    source_alias: str | None = None
    table_alias: str | None = None
    keeps_rows: bool = True
    is_of_all_rows: bool = False


@dataclass(frozen=True, slots=True)
class LineageDataset:
    """A table, or a directory of files, that a task reads or writes.

    Attributes:
        uri: the path or URI.
        version: the version of the table; None if it isn't known, or this is no table.
        is_table: whether it is a Delta table.
        change: the change of its lifecycle; None for none.
        written: what has been written to it; None if that isn't known.
        copied_from: the dataset that its columns of the same names come from, unchanged; None if that isn't
            certain.
        columns: its columns; none if they aren't known.
        file_format: of files that are no table, the format, in lower case; None if it isn't known.
        row_changes: the changes of its rows; None if they aren't known.
        origins: the columns that its columns come from according to these changes, if that is certain.
    """

    uri: str
    version: int | None = None
    is_table: bool = True
    change: StateChange | None = None
    written: WrittenData | None = None
    copied_from: LineageDataset | None = None
    columns: tuple[Column, ...] = ()
    file_format: str | None = None
    row_changes: RowChanges | None = None
    origins: tuple[ColumnOrigin, ...] = ()


@dataclass(frozen=True, slots=True)
class Lineage:
    """The datasets that a task reads, and those that it writes."""

    inputs: tuple[LineageDataset, ...] = ()
    outputs: tuple[LineageDataset, ...] = ()


def dataset_name(uri: str) -> tuple[str, str]:
    """The namespace and the name of a dataset, by OpenLineage's naming conventions.

    ``s3a://lake/sales/`` is ``sales`` in ``s3://lake``, ``/data/sales`` is ``/data/sales`` in ``file``. No
    credentials are part of it: neither the connection in front of a bucket, nor a user, nor a query, which
    may be a signature.

    :param uri: the path or URI of the dataset.
    :raises TableFailure: the part in front of the bucket isn't a connection id.
    """
    canonical = canonical_uri(uri)
    match = _URI.fullmatch(canonical)
    if match is None:
        return "file", canonical
    scheme, authority, path = match.groups()
    if scheme == "file":
        return (f"file://{authority}" if authority else "file"), f"/{unquote(path)}"
    if scheme in _WEB:
        path = re.split(r"[?#]", path, maxsplit=1)[0]
    # The key of an object may have a question mark; a signature is no part of it.
    path = re.split(r"\?(?=[\w.-]+=)", path, maxsplit=1)[0]
    if scheme in _OBJECT_STORES:
        # In Azure's locations the container is in front of the account.
        container, at, host = authority.rpartition("@")
        return f"{scheme}://{container.partition(':')[0]}{at}{host}", path or "/"
    return f"{scheme}://{authority.rpartition('@')[2]}", f"/{path}"
