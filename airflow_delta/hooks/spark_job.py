"""Submit one of our PySpark jobs and get its result back.

A job is a Python file of ``airflow_delta.spark.jobs``. `SparkSubmitHook` starts it, by an argument
list and never through a shell; this module adds what that hook lacks:

* **Parameters and result are JSON files** in a directory of one submission, which no other user
  can read. The job's only argument is the path of its parameters.
* **Secrets travel in the environment**, never in the argument list that every user of the machine
  can see.
* **The connection must exist.** `SparkSubmitHook` takes a missing connection for ``yarn``.
* **Killing kills all of it.** spark-submit runs the driver's Python as a grandchild, which
  survives when only spark-submit is killed; so the job gets a process group of its own.
* **An error says what it is.** A job that fails leaves the type and the message of its error, which
  come first in ours. Arguments that make no sense fail the task for good: no retry can help.
* **The package travels along** as a zip file, so that executors need no installation of it. What they do
  need is told in docs/how-to/spark-clusters.md.
* **The driver keeps this Python**, whichever one executors are given.

Not here: a retry that must not repeat the work. A commit carries the identity of the task, and the
job itself looks for an earlier commit of it.

Limit: the driver runs beside the worker (``deploy-mode`` client, the default, with any master;
``k8s://`` needs Airflow's provider for Kubernetes, which `SparkSubmitHook` asks for).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
import zipfile
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

from airflow_delta.version_compat import (
    AirflowException,
    AirflowFailException,
    AirflowNotFoundException,
)

__all__ = ["SparkJobHook"]

_PACKAGE = Path(__file__).resolve().parent.parent
# What a job imports: the engine and the Spark layer; nothing of Airflow's side.
_SHIPPED = ("__init__.py", "engine", "spark")
_PY_FILES = "spark.submit.pyFiles"
_PYTHON = "spark.pyspark.python"
_DRIVER_PYTHON = "spark.pyspark.driver.python"
# How long the job may take to end itself, and then the system to end it. Together they are less than
# the five seconds after which Airflow's supervisor kills the task, which could kill nothing any more.
_KILL_GRACE_SECONDS = 3.0
_KILL_WAIT_SECONDS = 1.0
# The error of a job whose arguments make no sense, see `airflow_delta.spark.job_files`.
_ARGUMENT_ERROR = "InvalidArgumentError"


class SparkJobHook(SparkSubmitHook):
    """Run a job of ``airflow_delta.spark.jobs`` with spark-submit.

    :param spark_conn_id: the Spark connection, with the master in its host; must exist.
    :param conf: Spark properties of this submission. Files of ``spark.submit.pyFiles`` travel along with
        the package; every other property is Spark's own matter.
    :param name: the application's name in Spark's own user interface.
    :raises AirflowNotFoundException: the connection doesn't exist or can't be parsed.
    :raises AirflowException: the connection names no master, one of Kubernetes without the provider
        for it, or deploy mode ``cluster``.
    """

    def __init__(
        self,
        spark_conn_id: str = "spark_default",
        *,
        conf: Mapping[str, str] | None = None,
        name: str = "airflow-delta",
    ) -> None:
        _check_connection(spark_conn_id)
        properties = dict(conf or {})
        # An argument of spark-submit, as the package is one, would win over the property.
        self._more_py_files = properties.pop(_PY_FILES, "")
        if _PYTHON in properties:
            # Spark takes it for the driver as well, but it may be a path inside an archive of executors.
            driver = os.environ.get("PYSPARK_DRIVER_PYTHON", sys.executable)
            properties.setdefault(_DRIVER_PYTHON, driver)
        super().__init__(conf=properties, conn_id=spark_conn_id, name=name)
        if self._connection["deploy_mode"] == "cluster":
            raise AirflowException(
                f"connection {spark_conn_id!r} asks for deploy mode 'cluster', where a job can't "
                "hand its result back to the worker; use deploy mode 'client'"
            )

    def run(
        self,
        job: str,
        parameters: Mapping[str, Any],
        *,
        storage_options: Mapping[str, str],
        commit_owner_url: str | None = None,
    ) -> dict[str, Any]:
        """Run a job to its end.

        :param job: the module's name in ``airflow_delta.spark.jobs``.
        :param parameters: what the job reads as JSON; never secrets.
        :param storage_options: options of the tables' store, handed over in the environment.
        :param commit_owner_url: the database of the SQL commit owner, for a job that commits to a
            managed table; handed over in the environment. None: what the environment says is left.
        :returns: what the job reports.
        :raises AirflowFailException: the job found that its arguments make no sense, which no retry
            can change.
        :raises AirflowException: the job failed (the message begins with the job's error, where it
            left one, and ends with its last output) or ended well without a result.
        """
        with tempfile.TemporaryDirectory(prefix="airflow-delta-job-") as directory:
            folder = Path(directory)
            result = folder / "result.json"
            arguments = folder / "parameters.json"
            secrets = _secret_variables(storage_options, commit_owner_url)
            arguments.write_text(json.dumps({**parameters, "result_path": str(result)}))
            self._application_args = [str(arguments)]
            package = str(_zip_package(folder / "airflow_delta.zip"))
            self._py_files = ",".join(filter(None, [package, self._more_py_files]))
            try:
                self._submit_to_the_end(job, secrets)
            except AirflowException as error:
                raise _with_the_jobs_error(error, result) from error
            if not result.exists():
                raise AirflowException(f"the Spark job {job!r} ended well but left no result")
            report: dict[str, Any] = json.loads(result.read_text())
            return report

    def on_kill(self) -> None:
        """End the job with everything it started."""
        self._kill_group()
        super().on_kill()

    def _submit_to_the_end(self, job: str, secrets: Mapping[str, str]) -> None:
        application = _PACKAGE / "spark" / "jobs" / f"{job}.py"
        try:
            self.submit(
                str(application),
                env=self._environment(secrets),
                start_new_session=True,
            )
        except BaseException:
            # A timeout of the task interrupts the wait, and must not leave the job running.
            self._kill_group()
            raise
        finally:
            # From now on the system may give the number of the group to somebody else.
            self._submit_sp = None

    def _environment(self, secrets: Mapping[str, str]) -> dict[str, str]:
        environment = {**os.environ, **secrets}
        # The driver shall be this interpreter, which has our dependencies, unless told otherwise.
        environment.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
        if self._connection["master"].startswith("local"):
            environment.setdefault("PYSPARK_PYTHON", sys.executable)
        # The spark-submit of an installed pyspark is found even where the virtual environment
        # isn't activated; last, so that one which the administrator put on the PATH wins.
        scripts = sysconfig.get_path("scripts")
        environment["PATH"] = os.pathsep.join([environment.get("PATH", os.defpath), scripts])
        return environment

    def _kill_group(self) -> None:
        process: subprocess.Popen[str] | None = self._submit_sp
        if process is None:
            return
        # The process leads a session of its own, hence a group of the same number, which is there
        # as long as any member is, even when the leader is gone.
        for number, seconds in (
            (signal.SIGTERM, _KILL_GRACE_SECONDS),
            (signal.SIGKILL, _KILL_WAIT_SECONDS),
        ):
            _signal_group(process.pid, number)
            deadline = time.monotonic() + seconds
            while time.monotonic() < deadline:
                process.poll()
                if not _signal_group(process.pid, 0):
                    return
                time.sleep(0.1)


def _secret_variables(
    storage_options: Mapping[str, str], commit_owner_url: str | None
) -> dict[str, str]:
    from airflow_delta.spark.job_files import STORAGE_OPTIONS_VARIABLE

    variables = {STORAGE_OPTIONS_VARIABLE: json.dumps(dict(storage_options))}
    if commit_owner_url is not None:
        from airflow_delta.engine.commit.sql_owner import URL_VARIABLE

        variables[URL_VARIABLE] = commit_owner_url
    return variables


def _check_connection(connection_id: str) -> None:
    try:
        connection = SparkSubmitHook.get_connection(connection_id)
    except AirflowNotFoundException as error:
        raise AirflowNotFoundException(
            f"the Spark connection {connection_id!r} isn't defined or can't be parsed; define it, "
            'for example as {"conn_type": "spark", "host": "local[2]"}'
        ) from error
    if not connection.host and connection.conn_type != "yarn":
        raise AirflowException(
            f"the Spark connection {connection_id!r} names no master: its host is empty"
        )
    if "k8s" in f"{connection.conn_type}://{connection.host}":
        # Looked for in the very way of SparkSubmitHook, which ends in a NameError without it.
        try:
            import_module("airflow.providers.cncf.kubernetes.kube_client")
        except (ImportError, NameError) as error:
            raise AirflowException(
                f"the Spark connection {connection_id!r} names a master of Kubernetes, and Airflow's "
                "provider for it isn't installed: pip install apache-airflow-providers-cncf-kubernetes"
            ) from error


def _with_the_jobs_error(error: AirflowException, result: Path) -> AirflowException:
    """An error of a submission, with what the job has said of it in front."""
    report = json.loads(result.read_text()) if result.exists() else {}
    failure = report.get("error")
    if failure is None:
        return error
    kind = AirflowFailException if failure["type"] == _ARGUMENT_ERROR else AirflowException
    return kind(f"{failure['type']}: {failure['message']}\n{error}")


def _signal_group(group: int, number: int) -> bool:
    """Send a signal to a process group; False where the group has no member."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    return True


def _zip_package(target: Path) -> Path:
    """Zip the modules that jobs import, for the Python path of driver and executors."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for entry in _SHIPPED:
            source = _PACKAGE / entry
            files = [source] if source.is_file() else sorted(source.rglob("*.py"))
            for file in files:
                archive.write(file, file.relative_to(_PACKAGE.parent))
    return target
