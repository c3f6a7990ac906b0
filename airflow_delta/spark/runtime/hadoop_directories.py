"""Rename and delete directories with Hadoop's file systems.

The engine's storage has objects only, and can't rename. Hadoop can: in one step in file systems, by
copying in object stores.

No rename of Hadoop's reports on every store, atomically, that the new path exists. Most check
first; if a directory is created after the check, they move the other one *into* it. So local paths
are renamed by the operating system, which never does that. For other stores the result is checked
afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError

from airflow_delta.engine.errors import StorageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["HadoopDirectories"]

_LOCAL = "file:"


class HadoopDirectories:
    """The directories of one store. Paths are literal Hadoop paths.

    Args:
        spark: the session, with the store's credentials in its configuration.
        path: any path in the store.
    """

    def __init__(self, spark: SparkSession, path: str) -> None:
        context = spark.sparkContext
        # PySpark has no public API for Hadoop's file systems; this one has been stable for years.
        self._path_type: Any = context._jvm.org.apache.hadoop.fs.Path  # type: ignore[union-attr]  # noqa: SLF001
        configuration = context._jsc.hadoopConfiguration()  # noqa: SLF001
        self._file_system: Any = self._path_type(path).getFileSystem(configuration)

    def exists(self, path: str) -> bool:
        """Whether a directory or file exists.

        Raises:
            StorageError: the store failed.
        """
        with _failures("exists", path):
            return bool(self._file_system.exists(self._path_type(path)))

    def is_file(self, path: str) -> bool:
        """Whether a path is a file.

        Raises:
            StorageError: the store failed.
        """
        with _failures("exists", path):
            status = self._file_system.getFileStatus
            return self.exists(path) and not status(self._path_type(path)).isDirectory()

    def delete(self, path: str) -> None:
        """Delete a directory with its content; it needn't exist.

        Raises:
            StorageError: the store failed.
        """
        with _failures("delete", path):
            self._file_system.delete(self._path_type(path), True)

    def rename(self, path: str, new_path: str) -> None:
        """Rename a directory to a path that doesn't exist or is an empty directory.

        If something is created at the new path concurrently, nothing is renamed. An object store that
        copies may then have files of both at the new path.

        Raises:
            StorageError: it isn't renamed: it doesn't exist, something is at the new path, or the store
                failed.
        """
        with _failures("rename", path):
            if path.startswith(_LOCAL):
                Path(path.removeprefix(_LOCAL)).rename(new_path.removeprefix(_LOCAL))
            elif not self._renamed(path, new_path):
                raise FileExistsError(f"{new_path} isn't free, or the store refused")

    def _renamed(self, path: str, new_path: str) -> bool:
        """Rename with Hadoop; if it moved the directory into another one, move it back and return False."""
        name = path.rpartition("/")[2]
        nested, own = f"{new_path}/{name}", f"{path}/{name}"
        if self.exists(new_path) or self.exists(own):
            # If it contains a directory of its own name, the check afterwards couldn't work.
            return False
        paths = self._path_type(path), self._path_type(new_path)
        if not self._file_system.rename(*paths):
            return False
        if self.exists(nested):
            self._file_system.rename(self._path_type(nested), paths[0])
            return False
        return True


@contextmanager
def _failures(operation: str, path: str) -> Iterator[None]:
    try:
        yield
    except (OSError, Py4JJavaError) as error:
        reason = error.java_exception.toString() if isinstance(error, Py4JJavaError) else error
        raise StorageError(
            f"{operation} {path!r} failed: {reason}; another run may have changed it, so check what is "
            "there, and try again",
            path=path,
            operation=operation,
        ) from error
