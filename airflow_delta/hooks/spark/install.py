"""Check that the packages for Spark tasks (the extra ``spark``) are installed.

PySpark takes half a gigabyte, and a worker that only waits, pins and checkpoints doesn't need it. A
task that certainly needs Spark fails when its DAG is parsed.
"""

from __future__ import annotations

from importlib.util import find_spec

from airflow_delta.hooks.failures import ArgumentError, TableFailure

__all__ = ["REMEDY", "check_spark_for_argument", "check_spark_installed", "missing_for_spark"]

REMEDY = "pip install 'airflow-delta[spark]'"
"""The command that installs the missing packages."""

# Imported modules and their distributions.
_NEEDED = {
    "airflow.providers.apache.spark.hooks.spark_submit": "apache-airflow-providers-apache-spark",
    "pyspark": "pyspark",
}


def missing_for_spark() -> list[str]:
    """The distributions that Spark tasks need and that aren't installed; imports none of them."""
    return [name for module, name in _NEEDED.items() if not _is_installed(module)]


def check_spark_for_argument(argument: str) -> None:
    """Check that Spark is installed, for a task with an argument that needs Spark.

    :param argument: the argument as written, such as ``engine='spark'``.
    :raises ArgumentError: it isn't.
    """
    missing = missing_for_spark()
    if missing:
        raise ArgumentError(f"{argument} needs Spark, and {_lacks(missing)}")


def check_spark_installed() -> None:
    """Check that Spark is installed, for a task that turns out to need it at run time.

    :raises TableFailure: it isn't.
    """
    missing = missing_for_spark()
    if missing:
        raise TableFailure(f"this task needs Spark, and {_lacks(missing)}")


def _lacks(missing: list[str]) -> str:
    verb = "is" if len(missing) == 1 else "are"
    return (
        f"{' and '.join(missing)} {verb} not installed here; install the extra where DAGs are parsed and "
        f"where such tasks run: {REMEDY}"
    )


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):
        return False  # a package above it is missing
