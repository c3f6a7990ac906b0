"""The engine's errors on their way from an executor to the driver.

Spark hands the driver the text of whatever a task has raised, in a traceback. So a `DeltaError`
travels as text: as JSON behind a mark, from which the driver makes the error again, with its facts.
A damaged checkpoint that an executor meets is an error like any other then, and what the engine does
about one can be done.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from airflow_delta.engine import errors
from airflow_delta.engine.errors import DeltaError

__all__ = ["ExecutorError", "errors_for_driver", "errors_of_executors"]

_MARK = "airflow-delta-error:"


class ExecutorError(Exception):
    """An error of the engine in the form that reaches the driver. Only executors raise it."""


@contextmanager
def errors_for_driver() -> Iterator[None]:
    """In a task: give the engine's errors the form that `errors_of_executors` understands.

    Raises:
        ExecutorError: instead of a `DeltaError`.
    """
    try:
        yield
    except DeltaError as error:
        told = [type(error).__name__, error.message, error.table, error.facts]
        raise ExecutorError(f"{_MARK}{json.dumps(told, default=str)}") from None


@contextmanager
def errors_of_executors() -> Iterator[None]:
    """In the driver: raise the error of the engine that has ended a job, where it was one.

    Raises:
        DeltaError: what the executor met.
        PySparkException, Py4JError: Spark's own errors.
    """
    try:
        yield
    except (PySparkException, Py4JError) as error:
        _, found, rest = str(error).partition(_MARK)
        if not found:
            raise
        (kind, message, table, facts), _ = json.JSONDecoder().raw_decode(rest)
        raise getattr(errors, kind)(message, table=table, **facts) from error
