"""Explain why Spark couldn't read or write files, in one sentence instead of a Java stack trace.

Spark wraps the error of a file system many times. `storage_errors` looks for the innermost one, and raises
a `StorageError` with its message. Errors of the engine that come from executors are raised again first
(`executor_errors`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

from airflow_delta.engine.errors import StorageError
from airflow_delta.spark.runtime.executor_errors import errors_of_executors

__all__ = ["storage_errors"]

_OF_FILES = re.compile(
    r"\b(?:java\.io\.\w*Exception|java\.nio\.file\.\w*Exception|"
    r"org\.apache\.hadoop\.(?:\w+\.)*\w*Exception|"
    r"org\.apache\.spark\.SparkFileNotFoundException|"
    r"(?:software|com)\.amazonaws?\.(?:\w+\.)*\w*Exception|"
    r"com\.(?:microsoft|google|azure)\.(?:\w+\.)*\w*Exception)\b"
)
_CAUSE = re.compile(rf"(?:{_OF_FILES.pattern}): ([^\n]{{1,500}})")
_SPARK_FILE_ERRORS = ("FAILED_READ_FILE", "TASK_WRITE_FAILED", "PATH_NOT_FOUND", "FILE_NOT_EXIST")


@contextmanager
def storage_errors(table: str, operation: str) -> Iterator[None]:
    """Turn Spark's errors about files into the engine's.

    Args:
        table: the table's location, for errors.
        operation: what was done: ``read`` or ``write``.

    Raises:
        StorageError: a file couldn't be read or written.
        DeltaError: a task raised it.
        PySparkException: Spark's other errors.
    """
    try:
        with errors_of_executors():
            yield
    except (PySparkException, Py4JError) as error:
        cause = _cause(error)
        if cause is None:
            raise
        raise StorageError(
            f"Spark failed to {operation} files: {cause}; nothing was committed. See that the location "
            "exists and has room, and that Spark has the credentials for it",
            table=table,
            operation=operation,
        ) from error


def _cause(error: Exception) -> str | None:
    """The innermost error about files, as its class and message; None if there is none."""
    if isinstance(error, Py4JJavaError):
        found = _java_cause(error.java_exception)
        if found is not None:
            return found
    matches = _CAUSE.findall(str(error))
    if matches:
        return str(matches[-1]).strip()
    if any(name in str(error) for name in _SPARK_FILE_ERRORS):
        return str(error).strip().splitlines()[0][:500]
    return None


def _java_cause(exception: Any) -> str | None:
    found = None
    # Chains of causes are short; some refer to themselves.
    for _ in range(50):
        if exception is None:
            break
        name = str(exception.getClass().getName())
        if _OF_FILES.search(name):
            message = str(exception.getMessage() or "").strip()
            found = f"{name.rpartition('.')[2]}: {message.splitlines()[0][:500] if message else ''}"
        exception = exception.getCause()
    return found
