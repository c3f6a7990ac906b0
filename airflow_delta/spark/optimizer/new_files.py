"""The new files of an optimization that Spark writes: a directory for each job."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterable, Sequence

from airflow_delta.engine import AddFile
from airflow_delta.engine.maintenance.optimize.new_files import NewFiles
from airflow_delta.engine.maintenance.optimize.target import FileTarget
from airflow_delta.engine.model.paths import decode_path
from airflow_delta.engine.storage.base import Storage
from airflow_delta.spark.reader.data_files import DataFile, list_data_files

__all__ = ["DirectoriesOfFiles"]


class DirectoriesOfFiles(NewFiles):
    """The new files of a run, below a new directory of the table. Several threads may use it.

    Args:
        storage: the table's storage.
        target: what new files look like.
    """

    def __init__(self, storage: Storage, target: FileTarget) -> None:
        super().__init__(storage, target)
        self._root = f"optimize-{uuid.uuid4()}"
        # Whose ``next`` is one step for all threads.
        self._numbers = itertools.count()
        self._kept: set[str] = set()

    def new_directory(self) -> str:
        """The path of a new directory for the files of one job."""
        return f"{self._root}/{next(self._numbers)}"

    def find(self, directory: str) -> list[DataFile]:
        """Find the files that a job has written, and delete those without rows.

        Args:
            directory: the directory of the job.

        Raises:
            StorageError: the store failed.
        """
        written = list_data_files(self.storage, directory)
        self.delete_paths([file.info.path for file in written if not file.num_rows])
        return [file for file in written if file.num_rows]

    def keep(self, files: Iterable[AddFile]) -> None:
        """Record that files are, or may be, part of the table."""
        self._kept.update(decode_path(file.path) for file in files)

    def delete_paths(self, paths: Sequence[str]) -> None:
        """Delete files; in a local file system also the checksum file that Hadoop writes for each."""
        parts = [path.rpartition("/") for path in paths]
        others = [f"{folder}/.{name}.crc" for folder, _, name in parts]
        super().delete_paths(paths if self.storage.capabilities.remote else [*paths, *others])

    def delete_uncommitted(self) -> None:
        """Delete all files of the run that aren't kept, also those that failed jobs have left."""
        with self.only_warning():
            found = [info.path for info in self.storage.walk(self._root)]
            self.storage.delete([path for path in found if _described(path) not in self._kept])


def _described(path: str) -> str:
    """The file that a checksum file of Hadoop is about; any other path as it is."""
    folder, _, name = path.rpartition("/")
    is_checksum = name.startswith(".") and name.endswith(".crc")
    return f"{folder}/{name[1:-4]}" if is_checksum else path
