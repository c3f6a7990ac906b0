"""What to read: the layout of a table's data files, and the rows and columns that a scan returns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from airflow_delta.engine.arrow.types import to_arrow_schema
from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.engine.features.column_mapping import field_id, physical_name
from airflow_delta.engine.features.schema_walk import map_fields
from airflow_delta.engine.model.nullable import nullable
from airflow_delta.engine.model.schema import StructField, StructType
from airflow_delta.engine.scan.expressions import Node, read_predicate

__all__ = [
    "ROW_COMMIT_VERSION",
    "ROW_ID",
    "ScanPredicate",
    "ScanRequest",
    "TableLayout",
    "TrackingColumns",
    "checked_columns",
    "stored_id",
    "stored_name",
]

ROW_ID = "_row_id"
"""The column with a row's stable id."""

ROW_COMMIT_VERSION = "_row_commit_version"
"""The column with the version that last inserted or updated a row."""

_NAME, _ID = "stored name", "stored id"
# Arrow's metadata is text, and `to_arrow_schema` quotes a text that could be JSON, which this never is.
_MARK = "name "


@dataclass(frozen=True, slots=True)
class TrackingColumns:
    """The hidden columns of data files with row ids and row commit versions; None without one."""

    row_id: str | None
    row_commit_version: str | None


@dataclass(frozen=True, slots=True)
class TableLayout:
    """How the rows of a table are laid out in its data files.

    Attributes:
        table: the table's location, for messages.
        version: its version, for messages.
        schema: its schema, with logical names.
        mapping_mode: its column mapping mode.
        partition_columns: its partition columns, whose values are in the log.
        tracking: where row ids are; None unless ``delta.enableRowTracking`` is true.
    """

    table: str
    version: int
    schema: StructType
    mapping_mode: str
    partition_columns: tuple[str, ...]
    tracking: TrackingColumns | None = None

    def arrow_fields(self, names: Sequence[str]) -> list[pa.Field]:
        """Columns in Arrow's types, nullable, with the metadata by which files are searched for them.

        Raises:
            InvalidTableError: a column lacks its physical name or id; or its type has no equivalent in
                Arrow.
        """
        fields = {field.name: field for field in self.schema}
        mode = self.mapping_mode

        def _marked(field: StructField) -> StructField:
            metadata: dict[str, Any] = {_NAME: f"{_MARK}{physical_name(field, mode)}"}
            if mode == "id":
                metadata[_ID] = field_id(field)
            return replace(field, metadata=metadata)

        # In this order, because `nullable` drops metadata.
        wanted = StructType(tuple(fields[name] for name in names))
        marked = nullable(map_fields(wanted, _marked), kept_metadata=(_NAME, _ID))
        return list(to_arrow_schema(marked))


@dataclass(frozen=True, slots=True)
class ScanRequest:
    """What a scan returns.

    Attributes:
        columns: the columns of the table, by their logical names, in order.
        predicate: is true for the rows to return; None for all rows.
        tracking_names: the names of the columns with row ids and row commit versions; None to leave them
            out.
        batch_rows: the most rows in a batch.
    """

    columns: tuple[str, ...]
    predicate: ScanPredicate | None = None
    tracking_names: tuple[str, str] | None = None
    batch_rows: int = 65_536


@dataclass(frozen=True, slots=True)
class ScanPredicate:
    """A predicate, parsed once.

    Attributes:
        expression: the `pyarrow.compute.Expression`.
        root: its tree.
        columns: the columns of the table that it names, sorted.
    """

    expression: Any
    root: Node
    columns: tuple[str, ...]

    @classmethod
    def of(cls, expression: Any) -> ScanPredicate:
        """Parse an expression over the logical columns of a table.

        Raises:
            InvalidArgumentError: it is no pyarrow expression.
        """
        read = read_predicate(expression)
        return cls(expression, read.root, tuple(sorted({path[0] for path in read.columns})))


def checked_columns(columns: Sequence[str] | None, layout: TableLayout) -> tuple[str, ...]:
    """The columns that a caller has requested, in order.

    Args:
        columns: the names; None for all.
        layout: the table.

    Raises:
        InvalidArgumentError: one isn't in the schema or is named twice, or there are none.
    """
    if columns is None:
        return layout.schema.names
    if isinstance(columns, str) or not columns:
        raise InvalidArgumentError(
            f"columns={columns!r}: expected a list of at least one name, or None for all columns",
            table=layout.table,
        )
    unknown = [name for name in columns if layout.schema.field(name) is None]
    if unknown:
        raise InvalidArgumentError(
            f"unknown columns {unknown}: the table has {', '.join(layout.schema.names)}",
            table=layout.table,
        )
    if len(set(columns)) < len(columns):
        raise InvalidArgumentError(
            f"columns={list(columns)!r}: a column is named twice", table=layout.table
        )
    return tuple(columns)


def stored_name(field: pa.Field) -> str:
    """The name that a field of `TableLayout.arrow_fields` has in data files."""
    text: str = field.metadata[_NAME.encode()].decode()
    return text.removeprefix(_MARK)


def stored_id(field: pa.Field) -> int:
    """The id that a field of `TableLayout.arrow_fields` has in data files, in mode ``id``."""
    return int(field.metadata[_ID.encode()])
