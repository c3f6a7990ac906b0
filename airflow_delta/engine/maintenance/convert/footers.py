"""Read the footers of all files in threads: the schema of the table, and the statistics of each file.

A footer is read once, and isn't kept after its statistics are computed. Each file leaves only a row in
Arrow columns. Files of the same program usually have the same schema, which is converted and merged once.

The statistics of a file cover the columns that the table's properties choose from the schema of the files
so far. Later files only add columns, so no chosen column is missing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_delta.engine.arrow.parallel import map_ordered
from airflow_delta.engine.arrow.python_arrays import array_of
from airflow_delta.engine.data_files.footer_statistics import (
    IndexedColumn,
    file_statistics,
    leaf_chunks,
)
from airflow_delta.engine.errors import DataFileError, DeltaError, UnsupportedFeatureError
from airflow_delta.engine.features.statistics_columns import columns_with_statistics, leaf_columns
from airflow_delta.engine.maintenance.convert.file_schema import (
    SCHEMA_KEYS,
    FileSchema,
    read_file_schema,
)
from airflow_delta.engine.maintenance.convert.merging import SchemaMerge
from airflow_delta.engine.maintenance.convert.partition_paths import PartitionPaths
from airflow_delta.engine.model.paths import encode_path, resolve
from airflow_delta.engine.model.properties import TableProperties
from airflow_delta.engine.model.schema import StructType
from airflow_delta.engine.parquet import PyarrowFallback, has_encrypted_columns, read_file_end
from airflow_delta.engine.progress import report_progress
from airflow_delta.engine.storage.file_access import FileAccess

__all__ = ["SourceFiles", "read_source_files"]

_BATCH = 4096
_REQUESTS = 32

# Arrow's errors for a file that isn't Parquet, or is damaged. Those of the storage have other types.
_DAMAGE = (
    pa.ArrowException,
    OSError,
    IndexError,
    KeyError,
    ValueError,
    RecursionError,
    PyarrowFallback,
)

_SchemaKey: TypeAlias = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class SourceFiles:
    """The files that become a table.

    Attributes:
        files: a row for each file, by path: ``path`` (decoded), ``size``, ``modificationTime``,
            ``numRecords``, ``stats`` (null without statistics), and ``partitionValues``: texts in the order
            of the partition columns.
        columns: the columns that the files hold.
    """

    files: pa.Table = field(repr=False)
    columns: StructType


_FILES_SCHEMA = pa.schema(
    [
        pa.field("path", pa.string()),
        pa.field("size", pa.int64()),
        pa.field("modificationTime", pa.int64()),
        pa.field("numRecords", pa.int64()),
        pa.field("stats", pa.string()),
        pa.field("partitionValues", pa.list_(pa.string())),
    ]
)


def read_source_files(
    access: FileAccess,
    listed: pa.Table,
    *,
    partition_schema: StructType,
    properties: TableProperties,
    collect_statistics: bool,
) -> SourceFiles:
    """Read the partition values, schemas and statistics of files.

    Args:
        access: opens the files.
        listed: the files, with the columns of `LISTED_SCHEMA`.
        partition_schema: the partition columns.
        properties: the requested properties, which choose the columns with statistics.
        collect_statistics: whether to make statistics.

    Raises:
        DataFileError: a file isn't Parquet, or is damaged, or has another size than listed. Facts: path.
        InvalidArgumentError: the partition values of a file aren't as in ``partition_schema``. Facts: path.
        InvalidTableError: the files have columns that don't fit together. Facts: path.
        UnsupportedFeatureError: a column is of a type that tables lack; or statistics of a file with
            encrypted columns are wanted. Facts: path, column.
        NotRegularFileError: a path goes through a link.
        StorageError: the store failed.
    """
    reader = _Reader(access, partition_schema, properties, collect_statistics=collect_statistics)
    batches = []
    with report_progress("read footers", "files", len(listed)) as reporter:
        rows = iter(reporter.count(reader.read(listed)))
        while some := list(islice(rows, _BATCH)):
            columns = zip(*some, strict=True)
            arrays = [array_of(c, f.type) for c, f in zip(columns, _FILES_SCHEMA, strict=True)]
            batches.append(pa.RecordBatch.from_arrays(arrays, schema=_FILES_SCHEMA))
    return SourceFiles(pa.Table.from_batches(batches, _FILES_SCHEMA), reader.columns)


_Listed: TypeAlias = tuple[str, int, int]
_Head: TypeAlias = tuple[_Listed, Any, pa.Schema]


class _Reader:
    def __init__(
        self,
        access: FileAccess,
        partition_schema: StructType,
        properties: TableProperties,
        *,
        collect_statistics: bool,
    ) -> None:
        self._access = access
        self._table = access.storage.root
        self._paths = PartitionPaths(partition_schema, table=self._table)
        self._partition_by = frozenset(partition_schema.names)
        self._properties = properties
        self._collects = collect_statistics
        self._merge = SchemaMerge(table=self._table)
        self._schemas: dict[_SchemaKey, FileSchema] = {}
        self._indexed: dict[_SchemaKey, tuple[IndexedColumn, ...]] = {}

    @property
    def columns(self) -> StructType:
        """The columns of the files so far."""
        return self._merge.columns

    def read(self, listed: pa.Table) -> Iterator[tuple[object, ...]]:
        """Yield the rows of `_FILES_SCHEMA`."""
        workers = _REQUESTS if self._access.storage.capabilities.remote else None
        # A loop over files in Python: each is opened, and its statistics become a text.
        for (path, size, time), footer, schema in map_ordered(
            self._open, _rows(listed), workers=workers
        ):
            values = self._paths.values_of(path)
            key = _schema_key(footer)
            known = self._schemas.get(key)
            if known is None:
                known = self._add_schema(key, footer, schema, path)
            stats = self._statistics(footer, known, key) if self._collects else None
            yield path, size, time, footer.num_rows, stats, values

    def _add_schema(self, key: _SchemaKey, footer: Any, schema: pa.Schema, path: str) -> FileSchema:
        with self._errors(path):
            found = read_file_schema(footer, schema, path=path, table=self._table)
        if self._merge.add(found.columns, path):
            self._indexed.clear()
        self._schemas[key] = found
        return found

    def _statistics(self, footer: Any, schema: FileSchema, key: _SchemaKey) -> str:
        columns = self._indexed.get(key)
        if columns is None:
            columns = self._indexed[key] = self._choose_columns(schema)
        return file_statistics(
            footer,
            columns,
            prefix=self._properties.data_skipping_string_prefix_length,
            states_tight_bounds=self._properties.deletion_vectors_enabled,
            known_bounds=dict.fromkeys(schema.unbounded),
        )

    def _choose_columns(self, schema: FileSchema) -> tuple[IndexedColumn, ...]:
        leaves = {
            path: kind
            for path, kind in leaf_columns(self._merge.columns).items()
            if path[0] not in self._partition_by
        }
        chosen = columns_with_statistics(leaves, self._properties)
        return tuple(leaf for leaf in leaf_chunks(schema.columns) if leaf.path in chosen)

    def _open(self, listed: _Listed) -> _Head:
        path, size, _ = listed
        storage, name = self._access.locate(resolve(self._table, encode_path(path)))
        with self._errors(path), storage.open(name, size=size) as source:
            # The listed size goes into the log. An object store takes it for the real one, and then has no
            # footer where it should be.
            if source.seek(0, os.SEEK_END) != size:
                raise DataFileError(
                    f"the file {path!r} has {source.tell()} bytes, and had {size} when it was listed: it "
                    "was changed during the conversion; stop its writer, and repeat the conversion",
                    table=self._table,
                    path=path,
                )
            end = read_file_end(source)
            file = pq.ParquetFile(
                pa.BufferReader(end),
                coerce_int96_timestamp_unit="us",
                arrow_extensions_enabled=False,
            )
            if self._collects and has_encrypted_columns(end, file.metadata.serialized_size):
                raise UnsupportedFeatureError(
                    f"the file {path!r} has encrypted columns, and the engine has no keys to make their "
                    "statistics: convert with collect_statistics=False, and read the table with Spark, "
                    "in a session that has the keys",
                    table=self._table,
                    path=path,
                )
            return listed, file.metadata, file.schema_arrow

    @contextmanager
    def _errors(self, path: str) -> Iterator[None]:
        """Turn the errors of Arrow inside the block into `DataFileError`."""
        try:
            yield
        except (DeltaError, MemoryError):
            raise
        except _DAMAGE as error:
            raise DataFileError(
                f"the file {path!r} can't be read as Parquet: {error}; remove it, or give it a name that "
                "begins with '_', or leave it out with files=[…]",
                table=self._table,
                path=path,
            ) from error


def _rows(listed: pa.Table) -> Iterator[_Listed]:
    for batch in listed.to_batches(max_chunksize=_BATCH):
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _schema_key(footer: Any) -> _SchemaKey:
    """A key that is equal for files with the same schema."""
    known: Mapping[bytes, bytes] = footer.metadata or {}
    # The text without the first line, which has the address of the object.
    text = repr(footer.schema).partition("\n")[2]
    return (text, footer.created_by, *(known.get(name) for name in SCHEMA_KEYS))
