"""Check what the log records of the live files: each once, with the fields that features require.

Spec: PROTOCOL.md, "Add File and Remove File", "Per-file Statistics", "Row Tracking", "Partition Value
Serialization".
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.python_arrays import array_of, scalar_of
from airflow_delta.engine.features.column_mapping import mapping_mode, partition_fields
from airflow_delta.engine.maintenance.check.findings import (
    MAX_NAMED,
    OPTIMIZE,
    Finding,
    error,
    info,
    join_names,
    plural,
    warning,
)
from airflow_delta.engine.maintenance.check.subject import Subject

__all__ = ["CHECKS"]

_SMALL_BYTES = 16 << 20
_MANY_FILES = 1000
_MUCH_DELETED = 0.1


def _check_each_once(subject: Subject) -> Iterator[Finding]:
    """Whether a data file is live more than once."""
    if subject.snapshot is None:
        return
    paths = subject.files["path"]
    locations = pc.coalesce(subject.locations, paths)
    num_repeated = len(locations) - pc.count_distinct(locations).as_py()
    if num_repeated:
        counts = pc.value_counts(_combine(locations))
        repeated = counts.field("values").filter(
            pc.greater(counts.field("counts"), scalar_of(1, pa.int64()))
        )
        yield error(
            "file-twice",
            "live more than once, with different deletion vectors or spellings: "
            f"{plural(len(repeated), 'data file')} ({_join_paths(repeated)}), whose rows are read twice",
            "nothing here: find the writer that is at fault, then DeltaTable.restore() or "
            "RestoreOperator to an earlier version",
        )


def _check_partition_values(subject: Subject) -> Iterator[Finding]:
    """Whether each file has a value for each partition column, and for no other."""
    if subject.snapshot is None or subject.schema is None:
        return
    snapshot = subject.snapshot
    mode = mapping_mode(snapshot.protocol, snapshot.metadata, table=subject.table)
    columns = snapshot.metadata.partition_columns
    expected = set(partition_fields(snapshot.schema, columns, mode))
    values = subject.files["partitionValues"]
    found = {name for chunk in values.chunks for name in pc.unique(chunk.keys).to_pylist()}
    # `chunk.keys` may contain entries of other rows than those of the chunk.
    unknown = [
        name for name in sorted(found - expected) if pc.any(_have_entry(values, name)).as_py()
    ]
    if unknown:
        yield error(
            "partition-value-unknown",
            f"live files have partition values of {join_names(unknown)}, and the table is "
            f"partitioned by {join_names(sorted(expected)) or 'nothing'}",
            "nothing here: find the writer that is at fault",
        )
    for name in sorted(expected):
        lacking = pc.invert(_have_entry(values, name))
        count = pc.sum(lacking).as_py() or 0
        if count:
            yield warning(
                "partition-value-missing",
                f"no value for the partition column {name} in {plural(count, 'live file')} "
                f"({_join_paths(subject.files['path'].filter(lacking))}): engines read null",
                "nothing here: find the writer that is at fault",
            )


def _check_statistics(subject: Subject) -> Iterator[Finding]:
    """Whether files have statistics, at least their number of rows."""
    if subject.snapshot is None or not subject.files.num_rows:
        return
    counts = subject.row_counts
    without = counts.is_null()
    count, total = pc.sum(without).as_py(), subject.files.num_rows
    if not count:
        return
    vectors = pc.sum(pc.and_(without, subject.files["deletionVector"].is_valid())).as_py()
    if vectors:
        yield warning(
            "statistics-missing-beside-vector",
            f"no numRecords in {plural(vectors, 'live file')} with deletion vectors, though the protocol "
            "requires it for them",
            "rewrite them with an engine that counts their rows",
        )
    yield info(
        "statistics-missing",
        f"no numRecords in {count:,} of {plural(total, 'live file')}: queries can't skip them by "
        "statistics, and the number of rows in the table is unknown",
        "rewrite them with an engine that writes statistics",
    )


def _check_row_ids(subject: Subject) -> Iterator[Finding]:
    """Whether files have the row ids that row tracking requires, below the high water mark."""
    if subject.snapshot is None:
        return
    tracking = subject.snapshot.row_tracking
    if tracking is None or subject.snapshot.properties.row_tracking_suspended:
        return
    bases = subject.files["baseRowId"]
    if tracking.enabled and bases.null_count:
        yield error(
            "row-ids-missing",
            f"no baseRowId in {plural(bases.null_count, 'live file')} "
            f"({_join_paths(subject.files['path'].filter(bases.is_null()))}), though "
            "delta.enableRowTracking is true",
            "nothing here: find the writer that is at fault",
        )
    last = pc.max(pc.add(bases, subject.row_counts)).as_py()
    if last is not None and last - 1 > tracking.high_water_mark:
        yield error(
            "row-ids-above-mark",
            f"live files have row ids up to {last - 1:,}, but the high water mark is "
            f"{tracking.high_water_mark:,}: ids will be assigned twice",
            "nothing here: stop writers that know row tracking, and find the one at fault",
        )


def _check_sizes(subject: Subject) -> Iterator[Finding]:
    """Whether there are many files, and most of them are small."""
    if subject.snapshot is None:
        return
    column = subject.files["size"]
    small = pc.sum(pc.less(column, scalar_of(_SMALL_BYTES, pa.int64()))).as_py() or 0
    if small >= _MANY_FILES and 2 * small > len(column):
        average = (pc.sum(column).as_py() or 0) / len(column)
        yield info(
            "files-small",
            f"{small:,} of {plural(len(column), 'live file')} are smaller than {_SMALL_BYTES >> 20} MiB, "
            f"{average / (1 << 20):.1f} MiB on average: opening them takes longer than reading them",
            OPTIMIZE,
        )


def _check_deleted_rows(subject: Subject) -> Iterator[Finding]:
    """Whether deletion vectors delete many rows."""
    if subject.snapshot is None:
        return
    vectors = subject.files["deletionVector"]
    if vectors.null_count == len(vectors):
        return
    deleted = pc.sum(pc.struct_field(vectors, "cardinality")).as_py() or 0
    rows = pc.sum(subject.row_counts).as_py() or 0
    if rows and deleted > _MUCH_DELETED * rows:
        yield info(
            "rows-deleted",
            f"{deleted:,} of {plural(rows, 'row')} ({deleted / rows:.0%}) are deleted by deletion "
            "vectors, and still read and stored",
            OPTIMIZE,
        )


CHECKS = (
    _check_each_once,
    _check_partition_values,
    _check_statistics,
    _check_row_ids,
    _check_sizes,
    _check_deleted_rows,
)


def _combine(column: pa.ChunkedArray) -> pa.Array:
    chunks = column.cast(pa.large_string()).chunks
    return pa.concat_arrays(chunks) if chunks else array_of([], pa.large_string())


def _have_entry(maps: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    """Whether each map has an entry of a name, even if its value is null."""
    return pc.map_lookup(maps, scalar_of(name, pa.string()), "all").is_valid()


def _join_paths(paths: pa.ChunkedArray | pa.Array) -> str:
    return join_names(paths.slice(0, MAX_NAMED).to_pylist(), len(paths))
