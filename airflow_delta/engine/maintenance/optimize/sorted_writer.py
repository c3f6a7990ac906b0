"""Write the new files of bins whose rows are sorted.

1. A sample of all rows, of the sort columns alone, gives the ranks of values, and so the keys of rows.
2. All rows are read once, with their keys (`external_sort`).
3. The new files are written, several at once. Some rows are encoded first, to estimate the size of files,
   and so how many there should be.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from threading import Event
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.data_files.scan import Scan
from airflow_delta.engine.maintenance.optimize.new_files import NewFiles, Rewritten
from airflow_delta.engine.maintenance.optimize.output_file import OutputFile
from airflow_delta.engine.maintenance.optimize.sorting.external_sort import ExternalSort
from airflow_delta.engine.maintenance.optimize.sorting.keys import (
    SortKeys,
    sample_request,
    sample_rows,
)
from airflow_delta.engine.maintenance.optimize.sorting.order import FileMarks, SortOrder
from airflow_delta.engine.maintenance.optimize.source_files import (
    check_rows_read,
    count_rows,
    first_file,
    scan_rows,
)
from airflow_delta.engine.maintenance.optimize.target import FileTarget
from airflow_delta.engine.maintenance.optimize.trial import count_files
from airflow_delta.engine.model.actions import AddFile
from airflow_delta.engine.progress import Reporter
from airflow_delta.engine.storage.file_access import FileAccess

__all__ = ["SortedWriter"]

_BATCH_ROWS = 1 << 17
_WRITTEN_ROWS = 1 << 16


@dataclass(frozen=True, slots=True)
class SortedWriter:
    """Writes the new files of bins, sorted.

    Attributes:
        access: opens the files of the table.
        target: what new files look like.
        new_files: creates files.
        order: by which columns rows are sorted.
        threads: how many files are read, or written, at once.
        reporter: counts the bytes of the bins: half of them when their rows are read, the others when they
            are written. Only for a writer that is used in the thread of the reporter.
    """

    access: FileAccess
    target: FileTarget
    new_files: NewFiles
    order: SortOrder
    threads: int = 1
    reporter: Reporter = field(default_factory=Reporter)

    def write(self, bins: Iterable[pa.Table]) -> Iterator[Rewritten]:
        """Write the new files of some bins.

        Args:
            bins: the files of each bin: all columns of ``add``.

        Raises:
            DataFileError: a file is damaged, or has another number of rows than in the log.
            MissingFilesError: a file doesn't exist.
            DeletionVectorError: a deletion vector can't be read.
            OutsidePathError: the table may not read a file.
            InvalidTableError: a partition value isn't one of its column's type, or a file lacks row ids.
            StorageError: the store failed, or temporary files can't be written.
        """
        for sources in bins:
            num_rows = count_rows(sources, self.access, self.target)
            done = _BinProgress(self.reporter, pc.sum(sources["size"]).as_py())
            yield Rewritten(sources, self._write_bin(sources, num_rows, done))
            done.reach(1)
            # Otherwise the memory of a bin stays with the process.
            pa.default_memory_pool().release_unused()

    def _write_bin(
        self, sources: pa.Table, num_rows: int, done: _BinProgress
    ) -> tuple[AddFile, ...]:
        if num_rows == 0:
            # Only the log says so: a deletion vector that deletes fewer mustn't remove rows.
            rows = scan_rows(sources, self.access, self.target, threads=self.threads)
            found = sum(batch.num_rows for batch in rows)
            check_rows_read(sources, self.access, self.target, found, num_rows)
            return ()
        request = sample_request(self.order.physical)
        scan = Scan(self.target.layout, request, sources, self.access, threads=self.threads)
        sample = sample_rows(scan, self.order.physical, num_rows)
        keys = SortKeys.of(self.order.physical, sample, is_hilbert=self.order.is_clustering)
        with ExitStack() as stack:
            sort = ExternalSort(
                keys,
                np.sort(keys.of_columns(sample, np.random.default_rng(num_rows))),
                num_rows,
                lambda rows: count_files(
                    self.target,
                    sources,
                    num_rows,
                    (batch.remove_column(batch.num_columns - 1) for batch in rows),
                ),
                stack,
            )
            del sample
            rows = scan_rows(
                sources, self.access, self.target, threads=self.threads, batch_rows=_BATCH_ROWS
            )
            sort.read(done.of_read(rows, num_rows))
            check_rows_read(sources, self.access, self.target, sort.num_read, num_rows)
            return self._write_runs(sort, first_file(sources), done)

    def _write_runs(
        self, sort: ExternalSort, like: Mapping[str, Any], done: _BinProgress
    ) -> tuple[AddFile, ...]:
        """Write the files, several at once."""
        marks = self.order.new_marks()
        stopped = Event()

        def _write(run: int) -> list[AddFile]:
            found: list[AddFile] = []
            try:
                for tables in sort.files(run):
                    if stopped.is_set():
                        break
                    found += self._write_file(tables, like, marks)
            except BaseException:
                stopped.set()
                raise
            return found

        runs = range(sort.num_runs)
        if self.threads == 1 or len(runs) == 1:
            return done.of_written(map(_write, runs), len(runs))
        with ThreadPoolExecutor(self.threads, thread_name_prefix="delta-sort") as pool:
            return done.of_written(pool.map(_write, runs), len(runs))

    def _write_file(
        self, tables: Iterator[pa.Table], like: Mapping[str, Any], marks: FileMarks
    ) -> list[AddFile]:
        """Write one file; none if there are no rows."""
        file: OutputFile | None = None
        try:
            for table in tables:
                for rows in table.to_batches(max_chunksize=_WRITTEN_ROWS):
                    if file is None:
                        file = OutputFile.begin(self.new_files, self.target, like=like, marks=marks)
                    file.write(rows)
        except BaseException as error:
            if file is not None:
                file.abandon(error)
            raise
        return [] if file is None else [file.close()]


class _BinProgress:
    """How far a bin is.

    Args:
        reporter: counts the bytes.
        size: the bytes of the bin.
    """

    def __init__(self, reporter: Reporter, size: int) -> None:
        self._reporter = reporter
        self._size = size
        self._done = 0

    def reach(self, share: float) -> None:
        """Count the bytes up to a share of the bin."""
        done = max(self._done, int(self._size * min(share, 1)))
        self._reporter.advance(done - self._done)
        self._done = done

    def of_read(self, batches: Iterable[pa.RecordBatch], num_rows: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows that are read, and count them as the first half."""
        read = 0
        for batch in batches:
            yield batch
            read += batch.num_rows
            self.reach(read / num_rows / 2)

    def of_written(self, runs: Iterable[list[AddFile]], num_runs: int) -> tuple[AddFile, ...]:
        """Collect the new files of runs, and count them as the second half."""
        adds: list[AddFile] = []
        for number, found in enumerate(runs, 1):
            adds += found
            self.reach(0.5 + number / num_runs / 2)
        return tuple(adds)
