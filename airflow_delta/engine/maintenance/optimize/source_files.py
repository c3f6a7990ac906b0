"""The files of a bin: their rows, and what new files take from their ``add`` actions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.statistics.parse import num_records
from airflow_delta.engine.data_files.data_file import DataFile
from airflow_delta.engine.data_files.file_rows import ADD_COLUMNS, TRACKING_ADD_COLUMNS
from airflow_delta.engine.data_files.footer_statistics import IndexedColumn
from airflow_delta.engine.data_files.request import ScanRequest
from airflow_delta.engine.data_files.scan import Scan
from airflow_delta.engine.features.schema_walk import SchemaPath
from airflow_delta.engine.maintenance.optimize.plan import TARGET_SIZE_TAG
from airflow_delta.engine.maintenance.optimize.sorting.order import (
    CUBE_TAG,
    Z_ORDER_TAG,
    FileMarks,
)
from airflow_delta.engine.maintenance.optimize.target import FileTarget
from airflow_delta.engine.model.paths import decode_path, is_absolute
from airflow_delta.engine.model.schema import DOUBLE, FLOAT
from airflow_delta.engine.storage.file_access import FileAccess

__all__ = [
    "check_rows",
    "check_rows_read",
    "count_rows",
    "data_files",
    "first_file",
    "float_bounds",
    "kept_marks",
    "live_bytes",
    "new_directory",
    "scan_rows",
]


def first_file(sources: pa.Table) -> Mapping[str, Any]:
    """Path and partition values of the first file of a bin."""
    first: Mapping[str, Any] = (
        sources.select(["path", "partitionValues"]).slice(0, 1).to_pylist()[0]
    )
    return first


def kept_marks(sources: pa.Table) -> FileMarks | None:
    """What the only file of a bin says about the order of its rows, for a new file in the same order.

    None if it says nothing, or the bin has several files.
    """
    if len(sources) > 1:
        return None
    add = sources.select(["tags", "clusteringProvider"]).to_pylist()[0]
    tags, provider = dict(add["tags"] or ()), add["clusteringProvider"]
    if provider is None and tags.keys().isdisjoint((CUBE_TAG, Z_ORDER_TAG)):
        return None
    # The others may describe the order, too.
    return FileMarks({name: tags[name] for name in tags if name != TARGET_SIZE_TAG}, provider)


def new_directory(log_path: str) -> str:
    """The directory for a new file beside a file of the table, with a slash at its end."""
    if is_absolute(log_path):
        return ""
    directory, slash, _ = decode_path(log_path).rpartition("/")
    return f"{directory}{slash}"


def live_bytes(sources: pa.Table) -> int:
    """The bytes of the rows of a bin that aren't deleted, about."""
    # A loop over the files of a bin, which are about to be read.
    total = 0.0
    columns = (sources["size"], sources["deletionVector"], num_records(sources["stats"]))
    for size, vector, records in zip(*(column.to_pylist() for column in columns), strict=True):
        share = vector["cardinality"] / records if vector and records else 0
        total += size * (1 - min(share, 1))
    return int(total)


def data_files(sources: pa.Table, access: FileAccess, target: FileTarget) -> list[DataFile]:
    """The files of a bin."""
    # A loop over the files of a bin, which are about to be read.
    paths, sizes = sources["path"].to_pylist(), sources["size"].to_pylist()
    return [
        DataFile(path, size, access, version=target.layout.version)
        for path, size in zip(paths, sizes, strict=True)
    ]


def scan_rows(
    sources: pa.Table,
    access: FileAccess,
    target: FileTarget,
    *,
    threads: int,
    batch_rows: int = 1 << 16,
) -> Scan:
    """Make a scan of the rows of a bin, with the columns of new files in order.

    Args:
        sources: the files.
        access: opens them.
        target: what new files look like.
        threads: how many files are read at once.
        batch_rows: the most rows in a batch.
    """
    wanted = ADD_COLUMNS + (TRACKING_ADD_COLUMNS if target.hidden else ())
    request = ScanRequest(target.columns, tracking_names=target.hidden, batch_rows=batch_rows)
    return Scan(target.layout, request, sources.select(wanted), access, threads=threads)


def count_rows(sources: pa.Table, access: FileAccess, target: FileTarget) -> int:
    """Check the number of rows of each file of a bin, and return how many of them aren't deleted.

    That many are expected: the deletion vectors aren't read.

    Raises:
        DataFileError: a file has another number of rows than in the log, or fewer than are deleted.
        MissingFilesError, OutsidePathError, StorageError: a file can't be read.
    """
    records = num_records(sources["stats"]).to_pylist()
    cardinalities = pc.struct_field(sources["deletionVector"], "cardinality").to_pylist()
    files = data_files(sources, access, target)
    total = 0
    for file, expected, deleted in zip(files, records, cardinalities, strict=True):
        rows = file.footer.num_rows
        check_rows(file, rows, expected)
        if rows < (deleted or 0):
            raise file.error(
                f"it has {rows} rows, and its deletion vector deletes {deleted} by the log (cardinality)"
            )
        total += rows - (deleted or 0)
    return total


def check_rows_read(
    sources: pa.Table, access: FileAccess, target: FileTarget, found: int, expected: int
) -> None:
    """Check that as many rows of a bin were read as `count_rows` has counted.

    Raises:
        DataFileError: they weren't.
    """
    if found != expected:
        raise data_files(sources, access, target)[0].error(
            f"this and {len(sources) - 1} other files have {found} rows that aren't deleted, and "
            f"{expected} by their footers and deletion vectors"
        )


def check_rows(file: DataFile, found: int, expected: int | None) -> None:
    """Check the number of rows of a file.

    Raises:
        DataFileError: it isn't that of the log.
    """
    if expected is not None and found != expected:
        raise file.error(f"it has {found} rows, and {expected} in the log (numRecords)")


def float_bounds(
    sources: pa.Table, columns: Sequence[IndexedColumn]
) -> Mapping[SchemaPath, tuple[float, float] | None]:
    """The bounds of the columns of floats in a bin, by the statistics of its files.

    Those of footers may leave out NaN.

    Args:
        sources: the files, none with a deletion vector.
        columns: the columns with statistics.
    """
    paths = [column.path for column in columns if column.data_type in (FLOAT, DOUBLE)]
    if not paths:
        return {}
    parsed = [json.loads(text) if text else {} for text in sources["stats"].to_pylist()]
    return {path: _merged(path, parsed) for path in paths}


def _merged(path: SchemaPath, parsed: Sequence[Any]) -> tuple[float, float] | None:
    pairs = []
    for statistics in parsed:
        low, high, nulls = (
            _value(statistics, name, path) for name in ("minValues", "maxValues", "nullCount")
        )
        if nulls is not None and nulls == statistics.get("numRecords"):
            continue
        is_tight = isinstance(statistics, dict) and statistics.get("tightBounds") is not False
        if not (is_tight and type(low) in (int, float) and type(high) in (int, float)):
            return None
        pairs.append((float(low), float(high)))
    return (min(low for low, _ in pairs), max(high for _, high in pairs)) if pairs else None


def _value(statistics: Any, name: str, path: SchemaPath) -> Any:
    found = statistics.get(name) if isinstance(statistics, dict) else None
    for part in path:
        found = found.get(part) if isinstance(found, dict) else None
    return found
