"""The engine's errors on their way from an executor to the driver.

Spark hands the driver the text of whatever a task has raised, in a traceback. So a `DeltaError`
travels as text: as JSON behind a mark, from which the driver makes the error again, with its facts.
A damaged checkpoint that an executor meets is an error like any other then, and what the engine does
about one can be done.

Tasks that don't even begin, because of the Python that executors have, end with an `ExecutorPythonError`
in place of a trace in which the reason is the last line.
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
        "the Python of an executor has no module {!r}: install it there"
    ),
    r'Cannot run program "([^"]+)": error=': (
        "an executor can't run the Python {!r}, which PYSPARK_PYTHON or spark.pyspark.python names: "
        "name one that is there; if it comes with an archive, the name behind '#' in spark.archives and "
        "the Python that the archive links to have to be right on that machine"
    ),
    r"Python in worker has different version: ([\d.]+)": (
        "an executor has Python {}, another minor version than the driver: let PYSPARK_PYTHON or "
        "spark.pyspark.python name one of the driver's version"
    ),
}
"""What Spark says of a Python that can't run our tasks, and what we say."""


class ExecutorError(Exception):
    """An error of the engine in the form that reaches the driver. Only executors raise it."""


class ExecutorPythonError(Exception):
    """The Python of an executor isn't fit for our tasks. Nothing of the table was read or written."""


@contextmanager
def errors_for_driver() -> Iterator[None]:
    """In a task: give the engine's errors the form that `errors_of_executors` understands.

    Raises:
        ExecutorError: instead of a `DeltaError`.
    """
    try:
        yield
    except DeltaError as error:
        raise ExecutorError(error_text(error)) from None


def error_text(error: DeltaError) -> str:
    """An error of the engine as text that `errors_of_executors` finds in an error of Spark's."""
    told = [type(error).__name__, error.message, error.table, error.facts]
    return f"{_MARK}{json.dumps(told, default=str)}"


@contextmanager
def errors_of_executors() -> Iterator[None]:
    """In the driver: raise the error of the engine that has ended a job, where it was one.

    Raises:
        DeltaError: what the executor met.
        ExecutorPythonError: its Python can't run tasks of ours.
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
        # JSON has no tuples, and the facts of errors no lists.
        facts = {name: tuple(v) if isinstance(v, list) else v for name, v in facts.items()}
        raise getattr(errors, kind)(message, table=table, **facts) from error


def _raise_if_unfit(error: Exception) -> None:
    text = str(error)
    for pattern, told in _UNFIT.items():
        if match := re.search(pattern, text):
            raise ExecutorPythonError(f"{told.format(match[1])}; {_REMEDY}") from error
