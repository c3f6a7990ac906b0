"""Submit one of our PySpark jobs and get its result back.

A job is a Python file of ``airflow_delta.spark.jobs``. `SparkSubmitHook` starts it, by an argument
list and never through a shell. It is imported when a job is submitted: it comes with the extra ``spark``.
This module adds what that hook lacks:

* **Parameters and result are JSON files** in a directory of one submission, which no other user
  can read. The job's only argument is the path of its parameters.
* **Secrets travel in the environment**, never in the argument list that every user of the machine
  can see.
* **The connection must exist.** `SparkSubmitHook` takes a missing connection for ``yarn``.
* **A master that doesn't answer** fails the task within seconds (`airflow_delta.hooks.spark.master`).
* **The driver logs warnings and errors**, unless the user has configured log4j2 otherwise.
* **What a killed task has left** is deleted by a later one (`airflow_delta.hooks.job_folder`).
* **Killing kills all of it.** spark-submit runs the driver's Python as a grandchild, which
  survives when only spark-submit is killed; so the job gets a process group of its own.
* **An error says what it is.** A job that fails leaves the type and the message of its error, which
  come first in ours. Its type decides whether the task fails for good, as that of each error does
  (`airflow_delta.hooks.failures`).
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
import shutil
import signal
import sys
import sysconfig
import time
import zipfile
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_delta.hooks.failures import TableFailure, is_permanent_kind
from airflow_delta.hooks.job_folder import JobFolder, job_folder
from airflow_delta.hooks.spark.install import REMEDY, check_spark_installed
from airflow_delta.hooks.spark.master import check_master
from airflow_delta.version_compat import (
    AirflowException,
    AirflowNotFoundException,
    BaseHook,
)

if TYPE_CHECKING:
    from airflow_delta.hooks.spark.submission import SparkSubmission

__all__ = ["SparkJobHook"]

_PACKAGE = Path(__file__).resolve().parents[2]
# What a job imports: the engine and the Spark layer; nothing of Airflow's side.
_SHIPPED = (
    "__init__.py",
    "job_files.py",
    "engine",
    "copies",
    "change_feeds",
    "profiles",
    "spark",
)
_PY_FILES = "spark.submit.pyFiles"
_PYTHON = "spark.pyspark.python"
_DRIVER_PYTHON = "spark.pyspark.driver.python"
# How long the job may take to end itself, and then the system to end it. Together they are less than
# the five seconds after which Airflow's supervisor kills the task, which could kill nothing any more.
_KILL_GRACE_SECONDS = 3.0
_KILL_WAIT_SECONDS = 1.0


# log4j2 reads the name of its configuration from this variable, and before from the system property.
_LOG_SETTINGS = "LOG4J_CONFIGURATION_FILE"
_QUIET = _PACKAGE / "spark" / "log4j2.properties"


class SparkJobHook(BaseHook):
    """Run a job of ``airflow_delta.spark.jobs`` with spark-submit.

    :param spark_conn_id: the Spark connection, with the master in its host; must exist.
    :param conf: Spark properties of this submission. Files of ``spark.submit.pyFiles`` travel along with
        the package; every other property is Spark's own matter.
    :param name: the application's name in Spark's own user interface.
    :raises AirflowNotFoundException: the connection doesn't exist or can't be parsed.
    :raises AirflowException: the connection names no master, one of Kubernetes without the provider
        for it, or deploy mode ``cluster``.
    :raises TableFailure: the packages of the extra ``spark`` aren't installed.
    """

    def __init__(
        self,
        spark_conn_id: str = "spark_default",
        *,
        conf: Mapping[str, str] | None = None,
        name: str = "airflow-delta",
    ) -> None:
        super().__init__()
        check_spark_installed()
        from airflow_delta.hooks.spark.submission import SparkSubmission

        _check_connection(spark_conn_id)
        properties = dict(conf or {})
        # An argument of spark-submit, as the package is one, would win over the property.
        self._more_py_files = properties.pop(_PY_FILES, "")
        if _PYTHON in properties:
            # Spark takes it for the driver as well, but it may be a path inside an archive of executors.
            driver = os.environ.get("PYSPARK_DRIVER_PYTHON", sys.executable)
            properties.setdefault(_DRIVER_PYTHON, driver)
        self._connection_id = spark_conn_id
        self._submission: SparkSubmission = SparkSubmission(
            conf=properties, conn_id=spark_conn_id, name=name
        )
        if self._submission.deploy_mode == "cluster":
            raise AirflowException(
                f"connection {spark_conn_id!r} asks for deploy mode 'cluster', where a job can't "
                "hand its result back to the worker; use deploy mode 'client'"
            )

    @property
    def master(self) -> str:
        """The master that the connection names."""
        return self._submission.master

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
        :raises TableFailure: the job failed with an error that another try would have as well.
        :raises AirflowException: the master doesn't answer; the job failed (the message begins with the
            job's error, where it left one, and ends with its last output); or it ended well without a
            result.
        """
        check_master(self.master, connection_id=self._connection_id)
        with job_folder() as folder:
            result = folder.path / "result.json"
            arguments = folder.path / "parameters.json"
            secrets = _secret_variables(storage_options, commit_owner_url)
            arguments.write_text(json.dumps({**parameters, "result_path": str(result)}))
            package = str(_zip_package(folder.path / "airflow_delta.zip"))
            py_files = [package, self._more_py_files] if self._more_py_files else [package]
            try:
                self._submit_to_the_end(job, folder, arguments, py_files, secrets)
            except AirflowException as error:
                raise self._with_the_jobs_error(error, result) from error
            if not result.exists():
                raise AirflowException(f"the Spark job {job!r} ended well but left no result")
            report: dict[str, Any] = json.loads(result.read_text())
            return report

    def on_kill(self) -> None:
        """End the job with everything it started."""
        self._kill_group()
        self._submission.on_kill()

    def _submit_to_the_end(
        self,
        job: str,
        folder: JobFolder,
        arguments: Path,
        py_files: Sequence[str],
        secrets: Mapping[str, str],
    ) -> None:
        from airflow_delta.job_files import FOLDER_VARIABLE

        application = _PACKAGE / "spark" / "jobs" / f"{job}.py"
        environment = self._environment({**secrets, FOLDER_VARIABLE: str(folder.path)})
        self._check_binary(environment["PATH"])
        try:
            self._submission.submit_program(
                application,
                str(arguments),
                py_files=py_files,
                environment=environment,
                # The lock of the folder lasts as long as the job, also where this process is killed.
                keep_open=[folder.lock],
            )
        except BaseException:
            # A timeout of the task interrupts the wait, and must not leave the job running.
            self._kill_group()
            raise
        finally:
            # From now on the system may give the number of the group to somebody else.
            self._submission.forget_process()

    def _check_binary(self, path: str) -> None:
        binary = self._submission.binary
        if shutil.which(binary, path=path) is None:
            raise TableFailure(
                f"Spark connection {self._connection_id!r}: there is no {binary} on the PATH of this "
                f"worker; it comes with PySpark: {REMEDY}"
            )

    def _with_the_jobs_error(self, error: AirflowException, result: Path) -> AirflowException:
        """An error of a submission, with what the job has said of it in front."""
        from airflow_delta.job_files import SparkStartError

        report = json.loads(result.read_text()) if result.exists() else {}
        failure = report.get("error")
        if failure is None:
            return error
        kind = TableFailure if is_permanent_kind(failure["type"]) else AirflowException
        told = f"{failure['type']}: {failure['message']}"
        if failure["type"] == SparkStartError.__name__:
            told = f"Spark connection {self._connection_id!r}, master {self.master}: {failure['message']}"
        return kind(f"{told}\n{error}")

    def _environment(self, secrets: Mapping[str, str]) -> dict[str, str]:
        environment = {**os.environ, **secrets}
        # The driver shall be this interpreter, which has our dependencies, unless told otherwise.
        environment.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
        if self.master.startswith("local"):
            environment.setdefault("PYSPARK_PYTHON", sys.executable)
        # The spark-submit of an installed pyspark is found even where the virtual environment
        # isn't activated; last, so that one which the administrator put on the PATH wins.
        scripts = sysconfig.get_path("scripts")
        environment["PATH"] = os.pathsep.join([environment.get("PATH", os.defpath), scripts])
        if not _has_log_settings(environment):
            environment[_LOG_SETTINGS] = str(_QUIET)
        return environment

    def _kill_group(self) -> None:
        process = self._submission.process
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
    from airflow_delta.job_files import STORAGE_OPTIONS_VARIABLE

    variables = {STORAGE_OPTIONS_VARIABLE: json.dumps(dict(storage_options))}
    if commit_owner_url is not None:
        from airflow_delta.engine.commit.sql.owner import URL_VARIABLE

        variables[URL_VARIABLE] = commit_owner_url
    return variables


def _check_connection(connection_id: str) -> None:
    try:
        connection = BaseHook.get_connection(connection_id)
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


def _has_log_settings(environment: Mapping[str, str]) -> bool:
    """Whether the user has a log4j2 configuration, which Spark finds in its directory of settings."""
    home = environment.get("SPARK_HOME")
    given = environment.get("SPARK_CONF_DIR")
    settings = Path(given) if given else Path(home, "conf") if home else None
    has_files = settings is not None and any(settings.glob("log4j2*.*"))
    return _LOG_SETTINGS in environment or has_files


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
