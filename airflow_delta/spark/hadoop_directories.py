"""Rename and delete directories through Hadoop, in whatever store Spark writes to.

The engine's storage has objects and no directories, and can't rename. Spark's own file systems can:
at once in file systems, by copying in object stores.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_delta.engine.errors import StorageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["HadoopDirectories"]


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
        """Whether there is a directory or file."""
        return bool(self._file_system.exists(self._path_type(path)))

    def delete(self, path: str) -> None:
        """Delete a directory with all that is in it; one that is not there is no error."""
        self._file_system.delete(self._path_type(path), True)

    def rename(self, path: str, new_path: str) -> None:
        """Rename a directory to a path where nothing is.

        Raises:
            StorageError: the file system didn't do it.
        """
        if self.exists(new_path) or not self._file_system.rename(
            self._path_type(path), self._path_type(new_path)
        ):
            raise StorageError(
                f"{path} can't be renamed to {new_path}; look whether something is there",
                path=path,
                operation="rename",
            )
