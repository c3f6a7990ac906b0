"""Profile a version of a table: count its rows and aggregate its columns in one pass over the data.

All figures are one aggregation with small partial results. Spark reads only the requested columns,
and only the files that the predicate doesn't exclude. `airflow_delta.profiles.profile` defines the
figures.

If only the number of rows is requested, it is usually in the log, and no Spark job runs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from airflow_delta.engine import DeltaTable, Snapshot
from airflow_delta.engine.model.schema import DataType, DecimalType
from airflow_delta.profiles.profile import (
    BY_SCAN,
    MOST_CHARACTERS,
    ColumnProfile,
    LeafColumn,
    TableProfile,
    Value,
    checked_leaves,
    count_partitions,
    profile_by_statistics,
)
from airflow_delta.spark.reader.columns import quoted
from airflow_delta.spark.reader.read import read_snapshot

if TYPE_CHECKING:
    from airflow_delta.engine.commit.owner import CommitOwner

__all__ = ["profile_snapshot"]

_INTEGERS = frozenset({"byte", "short", "integer", "long"})
_FLOATS = frozenset({"float", "double"})
_ORDERED = frozenset({"boolean", "date", "timestamp", "timestamp_ntz"})


def profile_snapshot(
    spark: SparkSession,
    uri: str,
    version: int | None = None,
    *,
    timestamp: datetime | str | int | None = None,
    columns: Sequence[str] | None = None,
    predicate: Column | str | None = None,
    storage_options: Mapping[str, str] | None = None,
    commit_owners: Mapping[str, CommitOwner] | None = None,
    allowed_outside: Sequence[str] = (),
) -> TableProfile:
    """Count the rows of a version of a Delta table, and profile its columns.

    Args:
        spark: the session; Spark reads data files with the credentials of its own configuration.
        uri: the table's path or URI.
        version: the version; without version and timestamp it is the newest.
        timestamp: an aware datetime, ISO-8601 with an offset, or epoch milliseconds.
        columns: the columns to profile, named as in `airflow_delta.profiles.profile`; the name of a struct
            means all of its fields. None for all; an empty list for the number of rows only.
        predicate: a Spark condition that selects the rows.
        storage_options: credentials and settings with which the engine reads the log.
        commit_owners: commit owners of managed tables by name, beside those that are installed.
        allowed_outside: locations outside of the table below which it may read files; see `DeltaTable`.

    Raises:
        InvalidArgumentError: there is no such column; or see `read_snapshot`.
        DeltaError: the version can't be read; see `read_snapshot`.
        AnalysisException: Spark can't resolve the condition with these columns.
        PySparkException: Spark's own errors, such as for a missing data file.
    """
    snapshot = DeltaTable(uri, storage_options, commit_owners).snapshot(version, timestamp)
    leaves = checked_leaves(columns, snapshot.schema, table=uri)
    if not leaves and predicate is None:
        profile = profile_by_statistics(snapshot)
        if profile is not None:
            return profile
    rows = read_snapshot(
        spark,
        uri,
        snapshot.version,
        columns=list(dict.fromkeys(leaf.path[0] for leaf in leaves)) or None,
        predicate=predicate,
        storage_options=storage_options,
        commit_owners=commit_owners,
        allowed_outside=allowed_outside,
    )
    figures = [
        F.struct(*[figure.alias(name) for name, figure in _figures(leaf).items()]).alias(
            str(number)
        )
        for number, leaf in enumerate(leaves)
    ]
    # Through Arrow, which has exact values whatever the session's time zone.
    found = rows.agg(F.count(F.lit(1)).alias("rows"), *figures).toArrow()
    return _profile(snapshot, leaves, found)


def _figures(leaf: LeafColumn) -> dict[str, Column]:
    """The aggregates of a column, named as in `ColumnProfile`, and the number of non-null values."""
    column, kind = F.col(".".join(quoted(part) for part in leaf.path)), _kind(leaf.data_type)
    figures = {"present": F.count(column)}
    number = column
    if kind in _FLOATS:
        figures["nans"] = F.count_if(F.isnan(column))
        number = F.when(~F.isnan(column), column)
    is_number = kind in _INTEGERS | _FLOATS or kind == "decimal"
    if is_number or kind in _ORDERED or kind in ("string", "binary"):
        figures["distinct"] = F.approx_count_distinct(column)
    if is_number or kind in _ORDERED or kind == "string":
        figures["min"], figures["max"] = F.min(number), F.max(number)
    if is_number:
        # For decimals as well, because sums of decimals may overflow.
        doubles = number.cast("double")
        figures["mean"], figures["stddev"] = F.avg(doubles), F.stddev_samp(doubles)
    if kind in ("string", "binary"):
        length = F.length(column)
        figures["min_length"], figures["max_length"] = F.min(length), F.max(length)
    return figures


def _kind(data_type: DataType) -> str:
    if isinstance(data_type, DecimalType):
        return "decimal"
    name = str(data_type)
    # The name may be followed by a collation; Spark compares by it.
    return "string" if name.startswith("string") else name


def _profile(snapshot: Snapshot, leaves: Sequence[LeafColumn], found: pa.Table) -> TableProfile:
    num_rows = found["rows"][0].as_py()
    columns = []
    for number, leaf in enumerate(leaves):
        row = found[str(number)][0]
        figures: dict[str, Any] = {name: _value(row[name]) for name in row}
        nulls = num_rows - figures.pop("present")
        columns.append(ColumnProfile(leaf.name, str(leaf.data_type), nulls, **figures))
    return TableProfile(
        snapshot.version,
        num_rows,
        BY_SCAN,
        snapshot.num_files,
        count_partitions(snapshot),
        tuple(columns),
    )


def _value(scalar: Any) -> Value | None:
    """Convert a figure to a JSON value; see `Value`."""
    if not scalar.is_valid:
        return None
    kind = scalar.type
    if pa.types.is_timestamp(kind):
        return f"{_date_text(scalar.value, 'us')}{'Z' if kind.tz else ''}"
    if pa.types.is_date(kind):
        return _date_text(scalar.value, "D")
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return str(scalar.as_buffer().to_pybytes().decode(errors="replace")[:MOST_CHARACTERS])
    value: Value = scalar.as_py()
    if pa.types.is_decimal(kind):
        return f"{value:f}"
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def _date_text(count: int, unit: Literal["D", "us"]) -> str:
    """Format a count since 1970 as ISO-8601, for any year: Python's own dates end with 9999."""
    text = str(np.datetime64(count, unit))
    year, dash, rest = text.removeprefix("-").partition("-")
    sign = "-" if text.startswith("-") else "+" if len(year) > len("9999") else ""
    return f"{sign}{year:0>4}{dash}{rest}"
