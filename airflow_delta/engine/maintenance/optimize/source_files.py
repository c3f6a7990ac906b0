"""What the new files of a bin take from the ``add`` actions of its files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from airflow_delta.engine.arrow.statistics.parse import num_records
from airflow_delta.engine.data_files.data_file import DataFile
from airflow_delta.engine.data_files.footer_statistics import IndexedColumn
from airflow_delta.engine.features.schema_walk import SchemaPath
from airflow_delta.engine.model.paths import decode_path, is_absolute
from airflow_delta.engine.model.schema import DOUBLE, FLOAT

__all__ = ["check_rows", "first_file", "float_bounds", "live_bytes", "new_directory"]


def first_file(sources: pa.Table) -> Mapping[str, Any]:
    """Path and partition values of the first file of a bin."""
    first: Mapping[str, Any] = (
        sources.select(["path", "partitionValues"]).slice(0, 1).to_pylist()[0]
    )
    return first


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
