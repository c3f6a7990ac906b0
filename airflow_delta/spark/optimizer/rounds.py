"""Write the new files of a round with Spark, by several jobs at once.

* **Bins that are only rewritten** become one file each, or several become one (`grouping`). A job has one
  task: Spark reads the files of the bin one after the other, without a shuffle. Bins that are small
  together share a job, whose rows are sorted by the number of the bin.
* **Bins whose rows are sorted** have a job each, with a shuffle (`sorting`).

A job writes into a directory of its own. What it has written is checked by the footers: no row of a bin may
be missing.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Event
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import inheritable_thread_target
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.arrow.numpy_arrays import int64_array
from airflow_delta.engine.arrow.statistics.parse import num_records
from airflow_delta.engine.data_files.footer_statistics import file_statistics
from airflow_delta.engine.errors import InvalidTableError
from airflow_delta.engine.maintenance.optimize.new_files import Rewritten
from airflow_delta.engine.maintenance.optimize.rounds import Round
from airflow_delta.engine.maintenance.optimize.sorting.order import FileMarks, SortOrder
from airflow_delta.engine.maintenance.optimize.source_files import (
    first_file,
    kept_marks,
    live_bytes,
    scan_rows,
)
from airflow_delta.engine.maintenance.optimize.target import FileTarget
from airflow_delta.engine.maintenance.optimize.trial import count_files, estimate_size
from airflow_delta.engine.model.paths import encode_path, resolve
from airflow_delta.engine.progress import Reporter
from airflow_delta.spark.optimizer.grouping import are_of_one_partition, group_bins, join_bins
from airflow_delta.spark.optimizer.new_files import DirectoriesOfFiles
from airflow_delta.spark.optimizer.sorting import divide_rows, sorted_rows
from airflow_delta.spark.reader.data_files import DataFile, write_data_files
from airflow_delta.spark.reader.file_rows import FILE_ROW_INDEX
from airflow_delta.spark.rewrite.stored_rows import StoredRows
from airflow_delta.spark.runtime.java_errors import storage_errors
from airflow_delta.spark.runtime.locations import hadoop_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["SparkRounds"]

_FEWEST_JOBS, _MOST_JOBS = 16, 64
"""How many jobs run at once, at most: as many as Spark has cores, but between these."""

_TRIAL_FILES = 8
"""The files of a bin of which some rows are encoded to estimate the size of new files."""

_BIN = "bin_number"


class SparkRounds:
    """Writes the new files of rounds.

    Args:
        spark: a session of its own, with the settings for data files (`WRITE_SETTINGS`).
        table: the table.
        stored: reads the rows of its files.
        target: what new files look like.
        new_files: makes directories, and finds new files there.
        order: see `LocalRounds`.
    """

    def __init__(
        self,
        spark: SparkSession,
        table: DeltaTable,
        stored: StoredRows,
        target: FileTarget,
        new_files: DirectoriesOfFiles,
        order: SortOrder | None,
    ) -> None:
        self._spark = spark
        self._table = table
        self._stored = stored
        self._target = target
        self._new_files = new_files
        self._order = order

    def write(self, bins: Round, reporter: Reporter) -> list[Rewritten]:
        """Write the new files of a round; see `RoundWriter.write`.

        Raises:
            InvalidTableError: a file has another number of rows than in its statistics, or lacks row ids.
            UnsupportedFeatureError: Spark can't read a file because of its name.
            StorageError: Spark can't read or write a file, or the store failed.
            DeltaError: a deletion vector can't be read.
            PySparkException: Spark's other errors.
        """
        jobs: list[Callable[[], list[Rewritten]]] = []
        if self._order is not None:
            jobs += [partial(self._sort, self._order, each) for each in bins.to_sort]
        most = self._target.max_file_size
        groups = group_bins(self._files(bins.others), most=most, alone=_keeps_order)
        jobs += [partial(self._join, group) for group in groups]
        return self._in_threads(jobs, reporter)

    def _in_threads(
        self, jobs: Sequence[Callable[[], list[Rewritten]]], reporter: Reporter
    ) -> list[Rewritten]:
        stopped = Event()

        def _run(job: Callable[[], list[Rewritten]]) -> list[Rewritten]:
            if stopped.is_set():
                return []
            try:
                with storage_errors(self._target.layout.table, "write"):
                    return job()
            except BaseException:
                stopped.set()
                raise

        if not jobs:
            return []
        cores = self._spark.sparkContext.defaultParallelism
        threads = min(len(jobs), max(_FEWEST_JOBS, min(cores, _MOST_JOBS)))
        with ThreadPoolExecutor(threads, thread_name_prefix="delta-optimize") as pool:
            # With the local properties of this thread, such as the pool of Spark's scheduler.
            run = inheritable_thread_target(self._spark)(_run)
            submitted = [pool.submit(run, job) for job in jobs]
            found: list[Rewritten] = []
            for each in submitted:
                rewritten = each.result()
                found += rewritten
                reporter.advance(sum(bins.source_bytes for bins in rewritten))
            return found

    def _files(self, bins: Sequence[pa.Table]) -> list[pa.Table]:
        """The bins of each new file: several of a partition, if their rows take less space than before."""
        if not any(are_of_one_partition(*pair) for pair in itertools.pairwise(bins)):
            return list(bins)
        share = self._share(max(bins, key=live_bytes))
        return join_bins(bins, share=share, most=self._target.max_file_size, alone=_keeps_order)

    def _share(self, sources: pa.Table) -> float:
        """The part of the bytes of a bin that its rows take in a new file, about; at most 1."""
        num_rows, size = _known_rows(sources), live_bytes(sources)
        if not num_rows or not size:
            return 1.0
        return min(1.0, estimate_size(self._target, sources, num_rows, self._some(sources)) / size)

    def _some(self, sources: pa.Table) -> Iterator[pa.RecordBatch]:
        """The first rows of a bin, or all."""
        first = sources.slice(0, _TRIAL_FILES)
        scan = scan_rows(first, self._table.file_access, self._target, threads=1)
        return (rows for rows in scan if rows.num_rows)

    def _join(self, bins: Sequence[pa.Table]) -> list[Rewritten]:
        """Write one file for each of some bins."""
        if len(bins) == 1:
            marks = kept_marks(bins[0])
            rows, columns = self._stored.read(bins[0])
            whole = rows.coalesce(1)
            if marks is not None:
                whole = whole.sortWithinPartitions(FILE_ROW_INDEX)
            return [self._rewritten(bins[0], self._write(whole.select(*columns)), marks)]
        numbers = np.repeat(np.arange(len(bins)), [len(each) for each in bins])
        rows, columns = self._stored.read(
            pa.concat_tables(bins), more={_BIN: (T.LongType(), int64_array(numbers))}
        )
        name = self._stored.layout.unused("bin")
        chosen = rows.coalesce(1).select(*columns, F.col(_BIN).alias(name))
        by_bin: defaultdict[int, list[DataFile]] = defaultdict(list)
        for file in self._write(chosen, partition_by=(name,)):
            by_bin[int(file.info.path.split("/")[-2].partition("=")[2])].append(file)
        return [self._rewritten(each, by_bin[number]) for number, each in enumerate(bins)]

    def _sort(self, order: SortOrder, sources: pa.Table) -> list[Rewritten]:
        """Write sorted files with the rows of a bin."""
        rows, columns = self._stored.read(sources)
        known = _known_rows(sources)
        # If only the log says that there are none, or fewer, they are counted: wrong statistics mustn't
        # remove rows.
        num_rows = known if known is not None and known > 0 else rows.count()
        if num_rows == 0:
            return [self._rewritten(sources, ())]
        division = divide_rows(
            rows,
            order.physical,
            num_rows=num_rows,
            num_files=count_files(self._target, sources, num_rows, self._some(sources)),
            is_hilbert=order.is_clustering,
        )
        key = self._stored.layout.unused("sort_key")
        found = self._write(sorted_rows(rows, columns, division, key=key))
        return [self._rewritten(sources, found, order.new_marks())]

    def _write(self, rows: DataFrame, *, partition_by: tuple[str, ...] = ()) -> list[DataFile]:
        directory = self._new_files.new_directory()
        write_data_files(
            rows,
            hadoop_path(resolve(self._new_files.storage.root, encode_path(directory))),
            partition_by=partition_by,
            compression=self._target.compression,
        )
        return self._new_files.find(directory)

    def _rewritten(
        self, sources: pa.Table, written: Sequence[DataFile], marks: FileMarks | None = None
    ) -> Rewritten:
        self._check_rows(sources, written)
        like = first_file(sources)
        adds = tuple(
            self._new_files.describe_stored(
                file.info, like=like, stats=self._statistics(file), marks=marks
            )
            for file in written
        )
        return Rewritten(sources, adds)

    def _statistics(self, file: DataFile) -> str:
        return file_statistics(
            file.footer,
            self._stored.layout.statistics,
            prefix=self._target.prefix,
            states_tight_bounds=self._target.states_tight_bounds,
        )

    def _check_rows(self, sources: pa.Table, written: Sequence[DataFile]) -> None:
        expected, found = _known_rows(sources), sum(file.num_rows for file in written)
        if expected is not None and found != expected:
            path = sources["path"][0].as_py()
            raise InvalidTableError(
                f"the file {path!r} and {len(sources) - 1} others have {found} rows that aren't deleted, "
                f"and {expected} by their statistics and deletion vectors: nothing of them was committed; "
                "find out what is wrong with the files",
                table=self._target.layout.table,
                path=path,
            )


def _keeps_order(sources: pa.Table) -> bool:
    return kept_marks(sources) is not None


def _known_rows(sources: pa.Table) -> int | None:
    """The number of rows of a bin that aren't deleted, by the log; None if it isn't known."""
    records = num_records(sources["stats"])
    if records.null_count:
        return None
    deleted = pc.sum(pc.struct_field(sources["deletionVector"], "cardinality")).as_py() or 0
    return int(pc.sum(records).as_py() or 0) - int(deleted)
