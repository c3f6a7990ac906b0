"""Run a job as the driver of a YARN application: the program that deploy mode ``cluster`` submits.

    spark-submit --deploy-mode cluster … driver_program.py <job> <name>

The working directory of the container has two files that spark-submit has shipped: `PARAMETERS_FILE`, and
`SECRETS_FILE` with the environment variables that a driver beside the worker would inherit. The result goes
to the file ``<name>`` beside the application's staging directory, where `client_program` reads it. Only the
application's user can read that file.

For YARN a driver that ends without having started a session has failed. Every job that succeeds starts one.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from importlib import import_module
from pathlib import Path

from airflow_delta.job_files import FOLDER_VARIABLE, PARAMETERS_FILE, RESULT_FILE, SECRETS_FILE

__all__ = ["main"]

_STAGING_VARIABLE = "SPARK_YARN_STAGING_DIR"
"""Spark sets it in the containers of an application."""


def main() -> int:
    """Run the job of the command line, publish its result, and return its exit code."""
    job, name = sys.argv[1:]
    folder = Path.cwd()
    os.environ.update(json.loads((folder / SECRETS_FILE).read_text(encoding="utf-8")))
    os.environ[FOLDER_VARIABLE] = str(folder)
    result = folder / RESULT_FILE
    sys.argv = [job, str(folder / PARAMETERS_FILE)]
    try:
        code: int = import_module(f"airflow_delta.spark.jobs.{job}").main()
    except ImportError as error:
        # A module that every job imports. `run_job` reports what a job imports later.
        traceback.print_exc()
        message = f"{error}; the driver runs with the Python {sys.executable} of its container"
        failure = {"error": {"type": type(error).__name__, "message": message}}
        result.write_text(json.dumps(failure), encoding="utf-8")
        code = 1
    _publish(result.read_bytes(), name)
    return code


def _publish(content: bytes, name: str) -> None:
    """Write a file beside the staging directory, atomically."""
    from pyspark import SparkContext

    # Connects to the JVM of the application master, even if the job has started no session.
    SparkContext._ensure_initialized()  # noqa: SLF001
    jvm = SparkContext._jvm  # noqa: SLF001
    assert jvm is not None
    hadoop = jvm.org.apache.hadoop.fs
    folder = hadoop.Path(os.environ[_STAGING_VARIABLE]).getParent()
    target, unfinished = hadoop.Path(folder, name), hadoop.Path(folder, f"{name}.part")
    settings = jvm.org.apache.spark.deploy.SparkHadoopUtil.get().conf()
    storage = target.getFileSystem(settings)
    private = hadoop.permission.FsPermission("600")
    stream = storage.createFile(unfinished).permission(private).overwrite(True).build()
    try:
        stream.write(content)
    finally:
        stream.close()
    storage.delete(target, False)  # of an earlier attempt
    if not storage.rename(unfinished, target):
        raise OSError(f"{unfinished.toString()} can't be renamed to {name}")


if __name__ == "__main__":
    sys.exit(main())
