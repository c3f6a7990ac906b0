from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.errors import PySparkException, PySparkRuntimeError, PythonException

from airflow_delta.engine.errors import CorruptLogError
from airflow_delta.spark.runtime.executor_errors import (
    ExecutorError,
    ExecutorPythonError,
    errors_for_driver,
    errors_of_executors,
)

PAGE = Path(__file__).resolve().parents[3] / "docs" / "how-to" / "spark-clusters.md"


def of_spark(error: BaseException) -> PySparkException:
    """What the driver hears: the trace of a task as text."""
    return PythonException(f"An exception was thrown:\n  {type(error).__name__}: {error}\n\tat org")


def test_an_error_of_the_engine_arrives_with_its_facts() -> None:
    with pytest.raises(ExecutorError) as told, errors_for_driver():
        raise CorruptLogError("commit 7 is broken", table="/t", version=7)
    with pytest.raises(CorruptLogError) as caught, errors_of_executors():
        raise of_spark(told.value)
    assert (str(caught.value), caught.value.version) == ("/t: commit 7 is broken", 7)


# What PySpark itself says of another version, see `pyspark.worker_util.check_python_version`.
OTHER_VERSION = PySparkRuntimeError(
    errorClass="PYTHON_VERSION_MISMATCH",
    messageParameters={"worker_version": "3.9", "driver_version": "3.11"},
)


@pytest.mark.parametrize(
    ("cause", "message"),
    [
        (
            ModuleNotFoundError("No module named 'pyarrow'"),
            "the Python of an executor has no module 'pyarrow'",
        ),
        (OTHER_VERSION, "an executor has Python 3.9, another minor version than the driver"),
        (
            OSError('Cannot run program "./environment/bin/python": error=2, No such file'),
            "an executor can't run the Python './environment/bin/python'",
        ),
    ],
)
def test_a_python_that_is_not_fit_is_told_and_the_guide_has_it(
    cause: Exception, message: str
) -> None:
    expected = pytest.raises(ExecutorPythonError, match=re.escape(message))
    with expected as caught, errors_of_executors():
        raise of_spark(cause)
    assert isinstance(caught.value.__cause__, PythonException)
    assert f"`ExecutorPythonError: {message}`" in PAGE.read_text(encoding="utf-8")


def test_other_errors_of_spark_stay_as_they_are() -> None:
    error = of_spark(ValueError("no such luck"))
    with pytest.raises(PythonException) as caught, errors_of_executors():
        raise error
    assert caught.value is error
