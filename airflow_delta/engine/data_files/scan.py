"""`Scan`: the rows of some files of a table, as Arrow record batches.

Arrow's other libraries take a scan without a copy, through ``__arrow_c_stream__``::

    scan = table.snapshot().scan(columns=["id", "day"], predicate="day >= '2026-01-01'")
    duckdb.sql("SELECT day, count(*) FROM scan GROUP BY day")
    polars.DataFrame(scan)
    for batch in scan: ...

The files are known when the scan is made, and read each time that it is iterated.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.data_files.file_rows import (
    ADD_COLUMNS,
    TRACKING_ADD_COLUMNS,
    FileRows,
)
from airflow_delta.engine.data_files.read_ahead import read_ahead
from airflow_delta.engine.data_files.request import (
    ScanRequest,
    TableLayout,
)
from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.engine.progress import report_progress
from airflow_delta.engine.storage.file_access import FileAccess

__all__ = ["Scan"]

_FEWEST_THREADS, _MOST_THREADS = 2, 4
_SMALL = 8 << 20
"""Files of so many bytes together are read without threads."""


class Scan:
    """The rows of some files of one version of a table. `Snapshot.scan` makes it.

    Every iteration reads the files again. Batches come as soon as they are ready, so their order differs
    from one iteration to the next; `to_table` has the rows in the order of the files.

    Args:
        layout: the table.
        request: what to return.
        adds: the files; see `FileRows`.
        access: opens the files of the table.
        threads: how many files are read at once; None for as many as the machine has processors, from 2 to
            4.

    Raises:
        InvalidArgumentError: the predicate can't be evaluated on the columns; the table has no row
            tracking, or a column with the name of a requested one.
        InvalidTableError: a column has no equivalent in Arrow, or lacks its physical name.
    """

    def __init__(
        self,
        layout: TableLayout,
        request: ScanRequest,
        adds: pa.Table,
        access: FileAccess,
        *,
        threads: int | None = None,
    ) -> None:
        if request.tracking_names is not None:
            _check_tracking(layout, request, request.tracking_names)
        wanted = ADD_COLUMNS + (TRACKING_ADD_COLUMNS if request.tracking_names else ())
        self._adds = adds.select(wanted)
        self._threads = threads or self._suitable_threads()
        self._rows = FileRows(layout, request, self._adds, access)

    @property
    def schema(self) -> pa.Schema:
        """The schema of the batches: the requested columns, then those of row tracking; all nullable."""
        return self._rows.schema

    @property
    def num_files(self) -> int:
        """The number of files that are read: those that the predicate doesn't exclude."""
        return len(self._adds)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Read the rows.

        Raises:
            MissingFilesError: a data file doesn't exist. Facts: path.
            DataFileError: a data file is damaged, or isn't as in the log. Facts: path.
            DeletionVectorError: a deletion vector can't be read, or doesn't fit its file.
            InvalidTableError: a partition value isn't one of its column's type; or a file lacks the ids of
                row tracking.
            InvalidArgumentError: the predicate can't be evaluated on a row.
            UnsupportedFeatureError: a data file has encrypted columns, or a time that depends on a zone.
            OutsidePathError: a file is at a location that the table isn't allowed to read.
            StorageError: the store failed.
        """
        for _, batch in self._read():
            yield batch

    def to_reader(self) -> pa.RecordBatchReader:
        """The rows as a reader, for functions that take one."""
        return pa.RecordBatchReader.from_batches(self.schema, iter(self))

    def to_table(self) -> pa.Table:
        """The rows as a table in memory, in the order of the files; see `__iter__` for the errors."""
        found = []
        with report_progress("read rows", "rows") as reporter:
            for item in self._read():
                found.append(item)
                reporter.advance(item[1].num_rows)
        found.sort(key=lambda item: item[0])
        return pa.Table.from_batches([batch for _, batch in found], self.schema)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """The rows as a stream of Arrow's C interface, which DuckDB, Polars and pandas read.

        https://arrow.apache.org/docs/format/CDataInterface/PyCapsuleInterface.html
        """
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def _read(self) -> Iterator[tuple[tuple[int, int], pa.RecordBatch]]:
        return read_ahead(self.num_files, self._rows.split, self._rows.run, threads=self._threads)

    def _suitable_threads(self) -> int:
        if (pc.sum(self._adds["size"]).as_py() or 0) <= _SMALL:
            return 1
        return min(max(os.cpu_count() or 1, _FEWEST_THREADS), _MOST_THREADS)


def _check_tracking(layout: TableLayout, request: ScanRequest, names: tuple[str, str]) -> None:
    if layout.tracking is None:
        raise InvalidArgumentError(
            f"with_row_tracking=True: the table has no row ids to rely on at version {layout.version}, "
            "where delta.enableRowTracking isn't true",
            table=layout.table,
        )
    taken = set(names).intersection(request.columns)
    if taken:
        raise InvalidArgumentError(
            f"with_row_tracking=True: the table has the columns {sorted(taken)} of its own; leave them out "
            "by columns",
            table=layout.table,
        )
