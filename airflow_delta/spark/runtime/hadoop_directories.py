"""Rename and delete directories through Hadoop, in whatever store Spark writes to.

The engine's storage has objects and no directories, and can't rename. Spark's own file systems can:
at once in file systems, by copying in object stores.

None of Hadoop's own ways to rename says on every store, and in one step, that something has come to the
new path: most look first, and then move the directory *into* the one that came behind their look. So on
local paths the operating system renames, which never does that; elsewhere it is looked at afterwards.
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
    """The directories of the store that a path is in. Paths are literal Hadoop paths.

    Args:
        spark: the session, with the store's credentials in its configuration.
        path: any path in the store.
    """

    def __init__(self, spark: SparkSession, path: str) -> None:
        context = spark.sparkContext
        # PySpark has no public way to Hadoop's file systems; this one has been stable for years.
        self._path_type: Any = context._jvm.org.apache.hadoop.fs.Path  # type: ignore[union-attr]  # noqa: SLF001
        configuration = context._jsc.hadoopConfiguration()  # noqa: SLF001
        self._file_system: Any = self._path_type(path).getFileSystem(configuration)

    def exists(self, path: str) -> bool:
        """Whether there is a directory or file.

        Raises:
            StorageError: the store failed.
        """
        with _failures("exists", path):
            return bool(self._file_system.exists(self._path_type(path)))

    def is_file(self, path: str) -> bool:
        """Whether there is a file.

        Raises:
            StorageError: the store failed.
        """
        with _failures("exists", path):
            status = self._file_system.getFileStatus
            return self.exists(path) and not status(self._path_type(path)).isDirectory()

    def delete(self, path: str) -> None:
        """Delete a directory with all that is in it; one that is not there is no error.

        Raises:
            StorageError: the store failed.
        """
        with _failures("delete", path):
            self._file_system.delete(self._path_type(path), True)

    def rename(self, path: str, new_path: str) -> None:
        """Rename a directory to a path where nothing is, or an empty directory.

        What comes to the new path meanwhile stays as it is, and so does the directory. An object store
        that copies may have both at the new path then, one among the other.

        Raises:
            StorageError: it isn't renamed: it isn't there, something is at the new path, or the store
                failed.
        """
        with _failures("rename", path):
            if path.startswith(_LOCAL):
                Path(path.removeprefix(_LOCAL)).rename(new_path.removeprefix(_LOCAL))
            elif not self._renamed(path, new_path):
                raise FileExistsError(f"{new_path} isn't free, or the store refused")

    def _renamed(self, path: str, new_path: str) -> bool:
        """Whether Hadoop could; where it has put the directory into another one, it is taken out."""
        name = path.rpartition("/")[2]
        nested, own = f"{new_path}/{name}", f"{path}/{name}"
        if self.exists(new_path) or self.exists(own):
            # With a directory of its own name in it, nobody could tell afterwards where it has come to.
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
            f"{operation} {path!r} failed: {reason}; another run may have changed what is there, so look, "
            "and try again",
            path=path,
            operation=operation,
        ) from error
