"""Write the new files of bins.

`BinWriter` takes bins one after the other, and returns `Rewritten`: bins that are complete, with their new
files. A bin whose row groups can be copied becomes a file at once. Other rows are decoded, and encoded
anew. If they take less space than before, the next bin of the partition continues the same file, so that
files reach the requested size.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.statistics.parse import num_records
from airflow_delta.engine.data_files.data_file import DataFile
from airflow_delta.engine.data_files.file_rows import ADD_COLUMNS, TRACKING_ADD_COLUMNS
from airflow_delta.engine.data_files.file_writer import FileWriter
from airflow_delta.engine.data_files.footer_statistics import file_statistics
from airflow_delta.engine.data_files.request import ScanRequest
from airflow_delta.engine.data_files.scan import Scan
from airflow_delta.engine.maintenance.optimize.copying import CopiedFiles, plan_copy
from airflow_delta.engine.maintenance.optimize.new_files import NewFiles, Rewritten
from airflow_delta.engine.maintenance.optimize.source_files import (
    check_rows,
    first_file,
    float_bounds,
    live_bytes,
    new_directory,
)
from airflow_delta.engine.maintenance.optimize.target import FileTarget
from airflow_delta.engine.model.actions import AddFile
from airflow_delta.engine.storage.file_access import FileAccess

__all__ = ["BinWriter"]


@dataclass
class _OpenFile:
    """A file that is being written.

    Attributes:
        path: its path.
        context: the context in which it is written.
        writer: writes its rows.
        like: the ``add`` of a file of the same partition.
        full_at: the bytes from which on it takes no more rows.
    """

    path: str
    context: AbstractContextManager[BinaryIO]
    writer: FileWriter
    like: Mapping[str, Any]
    full_at: int


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
    _open: _OpenFile | None = None
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
        return plan_copy(self._data_files(sources), self.target)

    def _data_files(self, sources: pa.Table) -> list[DataFile]:
        # A loop over the files of a bin, which are about to be read.
        paths, sizes = sources["path"].to_pylist(), sources["size"].to_pylist()
        version = self.target.layout.version
        return [
            DataFile(path, size, self.access, version=version)
            for path, size in zip(paths, sizes, strict=True)
        ]

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
        if self._open is None or self._adds:
            return self._open is None and not self._adds
        written = self._open.writer.size
        ratio = written / max(1, self._bytes_read)
        return written + ratio * live_bytes(sources) <= self.target.max_file_size

    def _append(self, sources: pa.Table) -> None:
        """Write the rows of a bin."""
        self._sources.append(sources)
        size = live_bytes(sources)
        parts = max(1, round(size / self.target.max_file_size))
        full_at = size // parts if parts > 1 else 2 * self.target.max_file_size
        expected = self._check_counts(sources)
        written = 0
        for rows in self._scan(sources):
            if self._open is not None and self._open.writer.size >= self._open.full_at:
                self._close()
            if self._open is None:
                self._open = self._begin(first_file(sources), full_at)
            self._open.writer.write(rows)
            written += rows.num_rows
        self._bytes_read += size
        if written != expected:
            raise self._data_files(sources)[0].error(
                f"this and {len(sources) - 1} other files have {written} rows that aren't deleted, and "
                f"{expected} by their footers and deletion vectors"
            )

    def _scan(self, sources: pa.Table) -> Scan:
        wanted = ADD_COLUMNS + (TRACKING_ADD_COLUMNS if self.target.hidden else ())
        request = ScanRequest(self.target.columns, tracking_names=self.target.hidden)
        return Scan(
            self.target.layout, request, sources.select(wanted), self.access, threads=self.threads
        )

    def _check_counts(self, sources: pa.Table) -> int:
        """Check the number of rows of each file, and return how many of them aren't deleted."""
        records = num_records(sources["stats"]).to_pylist()
        total = 0
        for file, expected in zip(self._data_files(sources), records, strict=True):
            rows = file.footer.num_rows
            check_rows(file, rows, expected)
            total += rows
        deleted = pc.sum(pc.struct_field(sources["deletionVector"], "cardinality")).as_py() or 0
        return total - int(deleted)

    def _begin(self, like: Mapping[str, Any], full_at: int) -> _OpenFile:
        path, context = self.new_files.create(new_directory(like["path"]))
        file = context.__enter__()
        writer = FileWriter(file, self.target.schema, compression=self.target.compression)
        return _OpenFile(path, context, writer, like, full_at)

    def _close(self) -> None:
        """Publish the open file."""
        assert self._open is not None
        done = self._open
        footer = done.writer.close()
        self._open = None
        # If this fails, the file isn't published.
        done.context.__exit__(None, None, None)
        stats = file_statistics(
            footer,
            self.target.statistics,
            prefix=self.target.prefix,
            states_tight_bounds=self.target.states_tight_bounds,
            known_bounds=dict.fromkeys(done.writer.nan_columns),
        )
        self._adds.append(self.new_files.describe(done.path, like=done.like, stats=stats))

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
            left.writer.abandon()
            left.context.__exit__(type(error), error, error.__traceback__)
