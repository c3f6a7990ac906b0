"""Pass the engine's errors from executors to the driver.

From a failed task the driver gets only the text of a traceback. So a task raises a `DeltaError` as
JSON after a marker, and the driver creates the error again, with its facts. It can then handle it
like an error of its own, for example recover from a damaged checkpoint.

If a task can't even start because of the executor's Python, the driver raises an
`ExecutorPythonError` with the reason.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from airflow_delta.engine import errors
from airflow_delta.engine.errors import DeltaError

__all__ = [
    "ExecutorError",
    "ExecutorPythonError",
    "error_text",
    "errors_for_driver",
    "errors_of_executors",
]

_MARK = "airflow-delta-error:"

_REMEDY = "see docs/how-to/spark-clusters.md, or ship an environment with spark.archives"
_UNFIT = {
    r"ModuleNotFoundError: No module named '([\w.]+)'": (
        "the Python of an executor has no module {!r}: install it there, or add it to spark.submit.pyFiles"
    ),
    r'Cannot run program "([^"]+)": error=': (
        "an executor can't run the Python {!r}, which PYSPARK_PYTHON or spark.pyspark.python names: "
        "name one that exists there; if it is in an archive, check the name after '#' in spark.archives, "
        "and that the Python to which the archive links exists on that machine"
    ),
    r"Python in worker has different version: ([\d.]+)": (
        "an executor has Python {}, another minor version than the driver: set PYSPARK_PYTHON or "
        "spark.pyspark.python to a Python of the driver's version"
    ),
}
"""Spark's messages about an unsuitable Python, and ours."""


class ExecutorError(Exception):
    """An error of the engine as text for the driver. Only executors raise it."""


class ExecutorPythonError(Exception):
    """An executor's Python can't run our tasks; they have read and written nothing."""


@contextmanager
def errors_for_driver() -> Iterator[None]:
    """In a task: convert the engine's errors to text that `errors_of_executors` parses.

    Raises:
        ExecutorError: instead of a `DeltaError`.
    """
    try:
        yield
    except DeltaError as error:
        raise ExecutorError(error_text(error)) from None


def error_text(error: DeltaError) -> str:
    """Convert an error of the engine to text that `errors_of_executors` finds in Spark's error."""
    parts = [type(error).__name__, error.message, error.table, error.facts]
    return f"{_MARK}{json.dumps(parts, default=str)}"


@contextmanager
def errors_of_executors() -> Iterator[None]:
    """In the driver: if an error of the engine has failed a job, raise that one.

    Raises:
        DeltaError: the error of the executor.
        ExecutorPythonError: the executor's Python can't run our tasks.
        PySparkException, Py4JError: Spark's own errors.
    """
    try:
        yield
    except (PySparkException, Py4JError) as error:
        _, found, rest = str(error).partition(_MARK)
        if not found:
            _raise_if_unfit(error)
            raise
        (kind, message, table, facts), _ = json.JSONDecoder().raw_decode(rest)
        # JSON has no tuples, and facts have no lists.
        facts = {name: tuple(v) if isinstance(v, list) else v for name, v in facts.items()}
        raise getattr(errors, kind)(message, table=table, **facts) from error


def _raise_if_unfit(error: Exception) -> None:
    text = str(error)
    for pattern, message in _UNFIT.items():
        if match := re.search(pattern, text):
            raise ExecutorPythonError(f"{message.format(match[1])}; {_REMEDY}") from error
