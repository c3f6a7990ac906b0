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
from dataclasses import dataclass
from threading import Event
from typing import Any

import numpy as np
import pyarrow as pa

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
    """

    access: FileAccess
    target: FileTarget
    new_files: NewFiles
    order: SortOrder
    threads: int = 1

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
            yield Rewritten(sources, self._write_bin(sources, num_rows) if num_rows else ())
            # Otherwise the memory of a bin stays with the process.
            pa.default_memory_pool().release_unused()

    def _write_bin(self, sources: pa.Table, num_rows: int) -> tuple[AddFile, ...]:
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
            sort.read(
                scan_rows(
                    sources, self.access, self.target, threads=self.threads, batch_rows=_BATCH_ROWS
                )
            )
            check_rows_read(sources, self.access, self.target, sort.num_read, num_rows)
            return self._write_runs(sort, first_file(sources))

    def _write_runs(self, sort: ExternalSort, like: Mapping[str, Any]) -> tuple[AddFile, ...]:
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
            return tuple(add for run in runs for add in _write(run))
        with ThreadPoolExecutor(self.threads, thread_name_prefix="delta-sort") as pool:
            return tuple(add for found in pool.map(_write, runs) for add in found)

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
