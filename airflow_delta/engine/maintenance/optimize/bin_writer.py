"""Write the new files of bins.

`BinWriter` takes bins one after the other, and returns `Rewritten`: bins that are complete, with their new
files. A bin whose row groups can be copied becomes a file at once. Other rows are decoded, and encoded
anew. If they take less space than before, the next bin of the partition continues the same file, so that
files reach the requested size. A sorted file that is the only one of its bin keeps its order and its marks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from airflow_delta.engine.arrow.statistics.parse import num_records
from airflow_delta.engine.maintenance.optimize.copying import CopiedFiles, plan_copy
from airflow_delta.engine.maintenance.optimize.new_files import NewFiles, Rewritten
from airflow_delta.engine.maintenance.optimize.output_file import OutputFile
from airflow_delta.engine.maintenance.optimize.source_files import (
    check_rows,
    check_rows_read,
    count_rows,
    data_files,
    first_file,
    float_bounds,
    kept_marks,
    live_bytes,
    new_directory,
    scan_rows,
)
from airflow_delta.engine.maintenance.optimize.target import FileTarget
from airflow_delta.engine.model.actions import AddFile
from airflow_delta.engine.storage.file_access import FileAccess

__all__ = ["BinWriter"]


@dataclass
class BinWriter:
    """Writes the new files of bins; not for several threads at once.

    Args:
        access: opens the files of the table.
        target: what new files look like.
        new_files: creates files.
        threads: how many files of a bin are read at once.
    """

    access: FileAccess
    target: FileTarget
    new_files: NewFiles
    threads: int = 1
    _open: OutputFile | None = None
    _full_at: int = 0
    _partition: Any = None
    _sources: list[pa.Table] = field(default_factory=list)
    _adds: list[AddFile] = field(default_factory=list)
    _bytes_read: int = 0

    def write(self, bins: Iterable[pa.Table]) -> Iterator[Rewritten]:
        """Write the new files of some bins, those of a partition one after the other.

        Args:
            bins: the files of each bin: all columns of ``add``.

        Raises:
            DataFileError: a file is damaged, or has another number of rows than in the log.
            MissingFilesError: a file doesn't exist.
            DeletionVectorError: a deletion vector can't be read.
            OutsidePathError: the table may not read a file.
            InvalidTableError: a partition value isn't one of its column's type, or a file lacks row ids.
            StorageError: the store failed.
        """
        try:
            for sources in bins:
                copied = self._planned_copy(sources)
                if copied is not None:
                    yield self._copy(copied, sources)
                    continue
                partition = sources["partitionValues"][0].as_py()
                if self._sources and (partition != self._partition or not self._has_space(sources)):
                    yield self._finish()
                self._partition = partition
                self._append(sources)
            if self._sources:
                yield self._finish()
        except BaseException as error:
            self._abandon(error)
            raise

    def _planned_copy(self, sources: pa.Table) -> CopiedFiles | None:
        if len(sources) < 2 or sources["deletionVector"].null_count < len(sources):
            return None
        return plan_copy(data_files(sources, self.access, self.target), self.target)

    def _copy(self, copied: CopiedFiles, sources: pa.Table) -> Rewritten:
        records = num_records(sources["stats"]).to_pylist()
        for file, stored, expected in zip(copied.files, copied.stored, records, strict=True):
            check_rows(file, sum(group.num_rows for group in stored.groups), expected)
        like = first_file(sources)
        path, context = self.new_files.create(new_directory(like["path"]))
        with context as new:
            stats = copied.write(new, float_bounds(sources, self.target.statistics))
        add = self.new_files.describe(path, like=like, stats=stats)
        return Rewritten(sources, (add,), num_copied=1)

    def _has_space(self, sources: pa.Table) -> bool:
        """Whether the rows of another bin fit into the open file, by the space that those before took."""
        if kept_marks(sources) or kept_marks(self._sources[-1]):
            return False
        if self._open is None or self._adds:
            return self._open is None and not self._adds
        # Of few rows nothing may be encoded yet. They take about as much space as before, then.
        written = self._open.expected_size or self._bytes_read
        ratio = written / max(1, self._bytes_read)
        return written + ratio * live_bytes(sources) <= self.target.max_file_size

    def _append(self, sources: pa.Table) -> None:
        """Write the rows of a bin."""
        self._sources.append(sources)
        size = live_bytes(sources)
        parts = max(1, round(size / self.target.max_file_size))
        full_at = size // parts if parts > 1 else 2 * self.target.max_file_size
        expected = count_rows(sources, self.access, self.target)
        marks = kept_marks(sources)
        # Several threads would mix the rows of a file.
        threads = 1 if marks else self.threads
        written = 0
        for rows in scan_rows(sources, self.access, self.target, threads=threads):
            if self._open is not None and self._open.size >= self._full_at:
                self._close()
            if self._open is None:
                like = first_file(sources)
                self._open = OutputFile.begin(self.new_files, self.target, like=like, marks=marks)
                self._full_at = full_at
            self._open.write(rows)
            written += rows.num_rows
        self._bytes_read += size
        check_rows_read(sources, self.access, self.target, written, expected)

    def _close(self) -> None:
        """Publish the open file."""
        assert self._open is not None
        done, self._open = self._open, None
        self._adds.append(done.close())

    def _finish(self) -> Rewritten:
        """Complete the bins since the last call."""
        if self._open is not None:
            self._close()
        done = Rewritten(pa.concat_tables(self._sources), tuple(self._adds))
        self._sources, self._adds, self._bytes_read = [], [], 0
        # Otherwise the memory of a bin stays with the process.
        pa.default_memory_pool().release_unused()
        return done

    def _abandon(self, error: BaseException) -> None:
        """Leave the open file, which isn't published."""
        if self._open is not None:
            left, self._open = self._open, None
            left.abandon(error)
