"""Check the files in the table's directory: those that the log names, and others.

Spec: PROTOCOL.md, "Add File and Remove File", "Deletion Vector Descriptor Schema". One listing is compared
with the log's columns as a whole. What it lacks is looked up again by name, since a listing takes time.
Files outside the directory, such as those of shallow clones, are looked up one by one
(``table_files/missing_files.py``).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.numpy_arrays import bool_array
from airflow_delta.engine.arrow.python_arrays import array_of, scalar_of
from airflow_delta.engine.errors import CommitOwnerError, TableStateError, UnsupportedFeatureError
from airflow_delta.engine.maintenance.check.findings import (
    MAX_NAMED,
    VACUUM,
    Finding,
    error,
    info,
    join_names,
    plural,
    warning,
)
from airflow_delta.engine.maintenance.check.subject import Subject
from airflow_delta.engine.maintenance.rounded_statistics import find_rounded_statistics
from airflow_delta.engine.maintenance.table_files.deletion_vector_files import (
    locate_deletion_vectors,
)
from airflow_delta.engine.maintenance.table_files.listing import list_files
from airflow_delta.engine.maintenance.table_files.missing_files import (
    MAX_MISSING,
    find_absent,
    locate_readable_files,
)
from airflow_delta.engine.maintenance.vacuum.inventory import COLUMNS
from airflow_delta.engine.maintenance.vacuum.plan import plan_vacuum
from airflow_delta.engine.maintenance.vacuum.scope import DELETION_VECTORS, find_kinds
from airflow_delta.engine.model.sizes import size_text

__all__ = ["CHECKS"]

_AROUND = 8
"""Bytes around the content of a deletion vector: its size before it, its CRC-32 after it."""

_MUCH = 0.5


def _check_files(subject: Subject) -> Iterator[Finding]:
    """Whether all files exist, with the sizes in the log, and which other files do."""
    if subject.snapshot is None:
        return
    rows = subject.files  # opened before the listing, so that all of its files may be listed
    listed = list_files(subject.storage)
    yield from _check_missing(subject, rows, listed)
    yield from _check_sizes(subject, rows, listed)
    yield from _check_deletion_vectors(subject, rows, listed)
    yield from _check_orphans(subject, listed)


def _check_rounded(subject: Subject) -> Iterator[Finding]:
    """Whether bounds of decimals that may have been rounded agree with the files' footers."""
    if subject.snapshot is None or subject.schema is None:
        return
    wrong = find_rounded_statistics(subject.snapshot, subject.files)
    if not wrong:
        return
    columns = sorted({column for found in wrong for column in found.columns})
    paths = subject.files["path"].take(array_of([found.row for found in wrong], pa.int64()))
    yield error(
        "statistics-rounded",
        f"rounded minima or maxima of {join_names(columns)} in {plural(len(wrong), 'live file')} "
        f"({_join_paths(paths)}): by their footers, values lie beyond them, so readers skip files with "
        "rows that they look for",
        "DeltaTable.repair_statistics()",
    )


CHECKS = (_check_files, _check_rounded)


def _check_missing(subject: Subject, rows: pa.Table, listed: pa.Table) -> Iterator[Finding]:
    there = listed["path"].cast(pa.large_string())
    data = subject.locations
    vectors, absolute = locate_deletion_vectors(rows["deletionVector"], table=subject.table)
    outside = pc.or_(data.is_null(), absolute.is_valid())
    gone = pc.or_(_is_absent(data, there), _is_absent(vectors, there))
    suspects = rows.filter(pc.or_(gone, outside))
    far = pc.sum(outside).as_py() or 0
    if far:
        yield info(
            "files-outside",
            f"{plural(far, 'live file')} outside of the table's directory, as those of shallow clones: "
            "a vacuum of the table that they belong to may delete them",
        )
    if not suspects.num_rows:
        return
    openable, refused = locate_readable_files(suspects, subject.access)
    if refused:
        yield error(
            "path-refused",
            f"outside of what this table may read: {plural(len(refused), 'file')} of the newest version "
            f"({join_names(refused)}), which aren't opened: reading the rows in them fails here",
            "allow their locations (allowed_outside), if the table is a shallow clone or shares files; "
            "otherwise an attacker may want your worker to read them: DeltaTable.restore() or "
            "RestoreOperator",
        )
    lost = find_absent(openable, subject.access)
    kinds = find_kinds(pa.chunked_array([array_of(lost, pa.string())])).to_pylist() if lost else []
    # A loop over the first hundred at most.
    for is_vector, code, what in (
        (False, "data-file-missing", "data file"),
        (True, "deletion-vector-missing", "deletion vector file"),
    ):
        names = [
            n
            for n, kind in zip(lost, kinds, strict=True)
            if (kind == DELETION_VECTORS) == is_vector
        ]
        if names:
            more = " or more" if len(lost) >= MAX_MISSING else ""
            yield error(
                code,
                f"{plural(len(names), what)}{more} of the newest version can't be found "
                f"({join_names(names)}): reading the rows in them fails",
                "put them back from a backup; or DeltaTable.restore() or RestoreOperator to a version "
                "whose files exist; or commit their removal, which loses their rows "
                "(DeltaTable.transaction and remove_file)",
            )


def _is_absent(paths: pa.ChunkedArray, there: pa.ChunkedArray) -> pa.ChunkedArray:
    texts = paths.cast(pa.large_string())
    return pc.and_not(texts.is_valid(), pc.is_in(texts, value_set=there))


def _find_sizes(paths: pa.ChunkedArray, listed: pa.Table) -> pa.ChunkedArray:
    """Return the size of each file; null for one that isn't listed."""
    there = listed["path"].cast(pa.large_string())
    indexes = pc.index_in(paths.cast(pa.large_string()), value_set=there, skip_nulls=True)
    return listed["size"].take(indexes)


def _check_sizes(subject: Subject, rows: pa.Table, listed: pa.Table) -> Iterator[Finding]:
    found = _find_sizes(subject.locations, listed)
    differs = pc.coalesce(pc.not_equal(found, rows["size"]), scalar_of(False, pa.bool_()))
    wrong = rows.filter(differs)
    if wrong.num_rows:
        sizes = [column[0].as_py() for column in (found.filter(differs), wrong["size"])]
        first = f"{wrong['path'][0].as_py()} has {size_text(sizes[0])}, by the log {size_text(sizes[1])}"
        yield error(
            "file-size-differs",
            f"another size than in the log in {plural(wrong.num_rows, 'live file')} "
            f"({_join_paths(wrong['path'])}): {first}. Readers find the footer by the log's size",
            "put the files back as they were written; or DeltaTable.restore() or RestoreOperator",
        )


def _check_deletion_vectors(
    subject: Subject, rows: pa.Table, listed: pa.Table
) -> Iterator[Finding]:
    """Whether files of deletion vectors are long enough for their descriptors."""
    vectors = rows["deletionVector"]
    if vectors.null_count == len(vectors):
        return
    paths, _ = locate_deletion_vectors(vectors, table=subject.table)
    start = pc.coalesce(pc.struct_field(vectors, "offset"), scalar_of(1, pa.int32())).cast(
        pa.int64()
    )
    size = pc.struct_field(vectors, "sizeInBytes").cast(pa.int64())
    end = pc.add(pc.add(start, size), scalar_of(_AROUND, pa.int64()))
    cut = pc.coalesce(pc.less(_find_sizes(paths, listed), end), scalar_of(False, pa.bool_()))
    short = pc.unique(paths.filter(cut))
    if len(short):
        yield error(
            "deletion-vector-cut",
            f"shorter than in the log: {plural(len(short), 'deletion vector file')} "
            f"({_join_paths(short)}); reading the rows of their data files fails",
            "put the files back as they were written; or DeltaTable.restore() or RestoreOperator",
        )


def _check_orphans(subject: Subject, listed: pa.Table) -> Iterator[Finding]:
    """Report what a vacuum would delete."""
    is_dir = pa.chunked_array([bool_array(np.zeros(listed.num_rows, np.bool_))])
    columns = [listed["path"], listed["size"], is_dir, listed["modificationTime"]]
    inventory = pa.Table.from_arrays(columns, names=list(COLUMNS))
    try:
        plan = plan_vacuum(
            subject.storage, subject.owners, inventory=inventory, now_ms=subject.now_ms
        )
    except (UnsupportedFeatureError, TableStateError, CommitOwnerError):
        return  # a vacuum is refused, for reasons that `settings`, `managed` and `commits` report
    total = plan.total
    if not total.num_files:
        return
    message = (
        f"{plural(total.num_files, 'file')} of {size_text(total.size_in_bytes)}, older than the retention, "
        f"that the retention no longer protects; once they are deleted, versions before "
        f"{plan.oldest_restorable} can't be read"
    )
    live = pc.sum(subject.files["size"]).as_py() or 0
    if total.size_in_bytes > max(1 << 30, _MUCH * live):
        yield warning("vacuum-overdue", message, VACUUM)
    else:
        yield info("vacuum-due", message, VACUUM)


def _join_paths(paths: pa.ChunkedArray | pa.Array) -> str:
    return join_names(paths.slice(0, MAX_NAMED).to_pylist(), len(paths))
