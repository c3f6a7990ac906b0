"""A new data file in the making: created, written, and described by its ``add``, or abandoned."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, BinaryIO

import pyarrow as pa

from airflow_delta.engine.data_files.file_writer import FileWriter
from airflow_delta.engine.data_files.footer_statistics import file_statistics
from airflow_delta.engine.maintenance.optimize.new_files import NewFiles
from airflow_delta.engine.maintenance.optimize.sorting.order import FileMarks
from airflow_delta.engine.maintenance.optimize.source_files import new_directory
from airflow_delta.engine.maintenance.optimize.target import FileTarget
from airflow_delta.engine.model.actions import AddFile

__all__ = ["OutputFile"]


@dataclass(frozen=True, slots=True)
class OutputFile:
    """A file that is being written. It is published when it is closed.

    Attributes:
        path: its path.
        context: the context in which it is written.
        writer: writes its rows.
        like: the ``add`` of a file of the same partition.
        marks: what its ``add`` says about the order of its rows; None for nothing.
        new_files: has created it.
        target: what it looks like.
    """

    path: str
    context: AbstractContextManager[BinaryIO]
    writer: FileWriter
    like: Mapping[str, Any]
    marks: FileMarks | None
    new_files: NewFiles
    target: FileTarget

    @classmethod
    def begin(
        cls,
        new_files: NewFiles,
        target: FileTarget,
        *,
        like: Mapping[str, Any],
        marks: FileMarks | None = None,
    ) -> OutputFile:
        """Create a file beside another one.

        Raises:
            StorageError: the store failed.
        """
        path, context = new_files.create(new_directory(like["path"]))
        writer = FileWriter(
            context.__enter__(),
            target.schema,
            compression=target.compression,
            max_file_size=target.max_file_size,
        )
        return cls(path, context, writer, like, marks, new_files, target)

    @property
    def size(self) -> int:
        """The bytes that were written so far; see `FileWriter.size`."""
        return self.writer.size

    @property
    def expected_size(self) -> int | None:
        """The bytes of the rows so far, about; see `FileWriter.expected_size`."""
        return self.writer.expected_size

    def write(self, rows: pa.RecordBatch) -> None:
        """Append rows; see `FileWriter.write`."""
        self.writer.write(rows)

    def close(self) -> AddFile:
        """Publish the file.

        Raises:
            StorageError: the store failed.
        """
        try:
            footer = self.writer.close()
        except BaseException as error:
            self.abandon(error)
            raise
        # If this fails, the file isn't published.
        self.context.__exit__(None, None, None)
        stats = file_statistics(
            footer,
            self.target.statistics,
            prefix=self.target.prefix,
            states_tight_bounds=self.target.states_tight_bounds,
            known_bounds=dict.fromkeys(self.writer.nan_columns),
        )
        return self.new_files.describe(self.path, like=self.like, stats=stats, marks=self.marks)

    def abandon(self, error: BaseException) -> None:
        """Leave the file, which isn't published.

        Args:
            error: why.
        """
        self.writer.abandon()
        self.context.__exit__(type(error), error, error.__traceback__)
