"""Plan a conversion: read the directory, and decide what the table will be. Nothing is written.

The table has the columns of the files and the partition columns. A partition column that the files contain
too keeps its position; the others come last. All columns are nullable.

The model is CONVERT TO DELTA of the reference implementation, with two differences: the case of column
names and the escapes in names of directories matter, and empty files stay in the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.engine.features.column_names import check_column_names
from airflow_delta.engine.features.requests.new_table import NewTable, new_table
from airflow_delta.engine.features.requests.requested_properties import parse_requested_properties
from airflow_delta.engine.maintenance.convert.footers import SourceFiles, read_source_files
from airflow_delta.engine.maintenance.convert.partition_paths import as_partition_schema
from airflow_delta.engine.maintenance.convert.source_files import (
    list_source_files,
    look_up_source_files,
)
from airflow_delta.engine.model.arguments import check_type
from airflow_delta.engine.model.properties import TableProperties
from airflow_delta.engine.model.schema import StructType
from airflow_delta.engine.storage.file_access import FileAccess
from airflow_delta.engine.transaction.unique import unique_text

__all__ = ["ConvertPlan", "ConvertRequest", "plan_conversion"]


@dataclass(frozen=True, slots=True)
class ConvertRequest:
    """The arguments of `DeltaTable.convert`.

    Attributes:
        partition_schema: the partition columns and their types; see `as_partition_schema`.
        files: the paths of the files; None for all in the directory.
        properties: the properties of the table; None for none.
        collect_statistics: whether to make statistics.
    """

    partition_schema: StructType | Mapping[str, str] | None = None
    files: Iterable[str] | None = None
    properties: Mapping[str, str] | None = None
    collect_statistics: bool = True


@dataclass(frozen=True, slots=True)
class ConvertPlan:
    """The plan of a conversion.

    Attributes:
        table: the directory.
        definition: the protocol, schema and properties of the table.
        files: its files; see `SourceFiles`.
        collects_statistics: whether the files have statistics.
    """

    table: str
    definition: NewTable
    files: pa.Table = field(repr=False)
    collects_statistics: bool

    @property
    def size_in_bytes(self) -> int:
        """The bytes of the files."""
        return int(pc.sum(self.files["size"]).as_py() or 0)

    @property
    def num_rows(self) -> int:
        """The rows of the files."""
        return int(pc.sum(self.files["numRecords"]).as_py() or 0)

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain JSON values.

        Returns:
            ``files``, ``bytes`` and ``rows`` of the table, its ``columns`` (a type by each name) and its
            ``partition_columns``.
        """
        return {
            "files": len(self.files),
            "bytes": self.size_in_bytes,
            "rows": self.num_rows,
            "columns": {field.name: str(field.data_type) for field in self.definition.schema},
            "partition_columns": list(self.definition.partition_columns),
        }


def plan_conversion(access: FileAccess, request: ConvertRequest) -> ConvertPlan:
    """Plan a conversion.

    Args:
        access: opens the files of the directory, which is no table yet.
        request: the caller's arguments.

    Raises:
        InvalidArgumentError: an argument makes no sense; there are no files; or the partition values of a
            file aren't as in ``partition_schema``.
        DataFileError: a file isn't Parquet, or is damaged. Facts: path.
        InvalidTableError: the files have columns that don't fit together (facts: path), or names of columns
            that need column mapping (facts: columns).
        UnsupportedFeatureError: a column is of a type that tables lack, or the properties request a feature
            that the engine can't write.
        MissingFilesError: a listed file doesn't exist. Facts: path.
        NotRegularFileError: there is a link.
        StorageError: the store failed.
    """
    table = access.storage.root
    check_type("collect_statistics", request.collect_statistics, bool, "True or False", table=table)
    partition_schema = as_partition_schema(request.partition_schema, table=table)
    properties = _properties(request, table)
    if request.files is None:
        listed = list_source_files(access)
    else:
        listed = look_up_source_files(access.storage, request.files)
    if not len(listed):
        raise InvalidArgumentError(
            "there is no Parquet file to convert; DeltaTable.create() creates an empty table",
            table=table,
        )
    source = read_source_files(
        access,
        listed,
        partition_schema=partition_schema,
        properties=properties,
        collect_statistics=request.collect_statistics,
    )
    check_column_names(
        StructType(tuple(c for c in source.columns if c.name not in partition_schema.names)),
        table=table,
        remedy="only tables with column mapping may have them, and no converted table has it; write the "
        "files anew with other names",
    )
    definition = new_table(
        _with_partition_columns(source, partition_schema),
        dict(request.properties or {}),
        partition_by=partition_schema.names,
        unique=unique_text,
        table=table,
    )
    return ConvertPlan(table, definition, source.files, request.collect_statistics)


def _properties(request: ConvertRequest, table: str) -> TableProperties:
    """The requested properties, checked before any file is read."""
    requested = parse_requested_properties(request.properties or {}, table=table)
    properties = TableProperties(requested.properties, table)
    problem = None
    if properties.column_mapping_mode != "none":
        problem = "its files would have to hold columns by physical names"
    elif properties.iceberg_compat_v1_enabled or properties.iceberg_compat_v2_enabled:
        problem = "its files would have to hold the ids of columns"
    elif properties.constraints:
        problem = "nobody has checked the rows; add constraints to the table afterwards"
    elif properties.row_tracking_enabled and not request.collect_statistics:
        problem = "row tracking needs the number of records of each file: collect_statistics=True"
    if problem:
        raise InvalidArgumentError(
            f"properties: a converted table can't have these: {problem}", table=table
        )
    return properties


def _with_partition_columns(source: SourceFiles, partition_schema: StructType) -> StructType:
    partition = {column.name: column for column in partition_schema}
    kept = tuple(partition.pop(column.name, column) for column in source.columns)
    return StructType((*kept, *partition.values()))
