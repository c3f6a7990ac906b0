"""Submit a PySpark job of ``airflow_delta.spark.jobs``, and return its result.

`SparkSubmitHook`, from the extra ``spark``, starts the job without a shell. This module adds

* parameters and result as JSON files in a private directory (`airflow_delta.hooks.job_folder`);
* secrets in the environment or in files, never in the argument list, which every user of the machine can
  see;
* checks that the connection exists and that the master answers (`master`);
* a log of warnings and errors only, unless the user has configured log4j2;
* a process group, so that killing a task also kills the driver, and an end of the application of a driver
  on the cluster;
* the error of a failed job as the error of the task (`airflow_delta.hooks.failures`);
* the package as a zip file for executors (docs/how-to/spark-clusters.md has their other requirements);
* this Python for the driver beside the worker, even if executors have another one.

A retry doesn't repeat committed work, because the commits of jobs contain the identity of the task.

The driver runs beside the worker (deploy mode ``client``, `airflow_delta.hooks.spark.driver`), or on YARN
in a container (``cluster``, `airflow_delta.hooks.spark.yarn_driver`). Masters ``k8s://`` need Airflow's
provider for Kubernetes.
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
from airflow_delta.hooks.spark.driver import Driver, LocalDriver
from airflow_delta.hooks.spark.install import REMEDY, check_spark_installed
from airflow_delta.hooks.spark.master import check_master
from airflow_delta.hooks.spark.parent_job import with_parent_job
from airflow_delta.hooks.spark.yarn_driver import (
    YarnDriver,
    check_cluster_mode,
    cluster_properties,
)
from airflow_delta.version_compat import (
    AirflowException,
    AirflowNotFoundException,
    BaseHook,
)

if TYPE_CHECKING:
    from airflow_delta.hooks.spark.submission import SparkSubmission

__all__ = ["SparkJobHook"]

_PACKAGE = Path(__file__).resolve().parents[2]
# The modules that a job imports: the engine and the Spark layer, nothing for Airflow.
_SHIPPED = (
    "__init__.py",
    "job_files.py",
    "engine",
    "copies",
    "change_feeds",
    "profiles",
    "row_changes",
    "row_sources",
    "spark",
)
_PY_FILES = "spark.submit.pyFiles"
_DEPLOY_MODE = "spark.submit.deployMode"
_PYTHON = "spark.pyspark.python"
_DRIVER_PYTHON = "spark.pyspark.driver.python"
# The waits after SIGTERM and after SIGKILL. Together they are shorter than the five seconds after
# which Airflow's supervisor kills the task itself.
_KILL_GRACE_SECONDS = 3.0
_KILL_WAIT_SECONDS = 1.0
# The same if the driver is on the cluster: spark-submit has nothing to end, but the application has to be.
_CLIENT_GRACE_SECONDS = 0.5
_APPLICATION_WAIT_SECONDS = 2.5
# After a timeout nobody kills the task; a killed application needs no longer.
_END_SECONDS = 60.0
# The exit codes of a spark-submit that was killed, and of one whose driver was killed.
_KILLED = (-signal.SIGKILL, 128 + signal.SIGKILL)

_DENIALS = frozenset({"AccessDeniedError", "WriteDeniedError"})

# log4j2 reads the name of its configuration from this variable; the system property has precedence.
_LOG_SETTINGS = "LOG4J_CONFIGURATION_FILE"
_QUIET = _PACKAGE / "spark" / "log4j2.properties"


class SparkJobHook(BaseHook):
    """Run a job of ``airflow_delta.spark.jobs`` with spark-submit.

    :param spark_conn_id: the Spark connection, with the master in its host; must exist.
    :param conf: Spark properties of this submission. The files in ``spark.submit.pyFiles`` are added to
        the package, ``spark.submit.deployMode`` has precedence over the connection's; all other properties
        are passed to Spark.
    :param name: the application's name in Spark's user interface.
    :raises AirflowNotFoundException: the connection doesn't exist or can't be parsed.
    :raises TableFailure: the connection names no master, or one of Kubernetes without the provider for it;
        the packages of the extra ``spark`` aren't installed; or the deploy mode is ``cluster`` and the
        master isn't ``yarn``.
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
        properties = with_parent_job(conf or {})
        # The package is an argument of spark-submit, which has precedence over the property.
        self._more_py_files = properties.pop(_PY_FILES, "")
        deploy_mode = properties.pop(_DEPLOY_MODE, None)
        self._connection_id = spark_conn_id
        self._kills = False
        self._driver: Driver | None = None
        self._submission: SparkSubmission = SparkSubmission(
            conf=properties, conn_id=spark_conn_id, name=name, deploy_mode=deploy_mode
        )
        # A kill may come while the process starts, when nobody can find it yet.
        self._submission.on_start = self._end_if_killed
        self._is_cluster_mode = self._submission.deploy_mode == "cluster"
        if self._is_cluster_mode:
            check_cluster_mode(self.master, connection_id=spark_conn_id)
            properties = cluster_properties(properties)
        elif _PYTHON in properties:
            # Spark uses it for the driver as well, but it may be a path in an archive of executors.
            python = os.environ.get("PYSPARK_DRIVER_PYTHON", sys.executable)
            properties.setdefault(_DRIVER_PYTHON, python)
        self._properties = properties

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
        """Run a job, and wait for its end.

        :param job: the module's name in ``airflow_delta.spark.jobs``.
        :param parameters: the JSON parameters of the job; never secrets.
        :param storage_options: options of the tables' store, passed as secrets.
        :param commit_owner_url: the database of the SQL commit owner, for a job that commits to a
            managed table, passed as a secret. None: nothing is passed.
        :returns: the result of the job.
        :raises TableFailure: the job failed with a permanent error; or there is no spark-submit.
        :raises AirflowException: the master doesn't answer; the job failed (the message begins with the
            job's error, if it left one, and ends with its last output); it was killed, for example because
            memory ran out; or it succeeded without a result.
        """
        check_master(self.master, connection_id=self._connection_id)
        self._check_binary(self._environment()["PATH"])
        with job_folder() as folder:
            secrets = _secret_variables(storage_options, commit_owner_url)
            driver = self._driver = self._new_driver(job, folder, parameters, secrets)
            try:
                package = str(_zip_package(folder.path / "airflow_delta.zip"))
                py_files = [package, self._more_py_files] if self._more_py_files else [package]
                try:
                    self._submit_to_the_end(driver, folder, py_files)
                except AirflowException as error:
                    raise self._with_the_jobs_error(error, driver) from error
                report = driver.result()
                if report is None:
                    lines = [
                        f"the Spark job {job!r} succeeded but left no result",
                        driver.description(),
                    ]
                    raise AirflowException("\n".join(filter(None, lines)))
                return report
            finally:
                self._driver = None

    def on_kill(self) -> None:
        """Kill the job with everything it started."""
        self._kills = True
        self._kill_group()
        if self._is_cluster_mode:
            # Not by SparkSubmitHook, which needs Hadoop's command `yarn` on the PATH.
            if self._driver is not None:
                self._driver.end(_APPLICATION_WAIT_SECONDS)
        else:
            self._submission.on_kill()

    def _end_if_killed(self) -> None:
        if self._kills:
            self._kill_group()

    def _new_driver(
        self,
        job: str,
        folder: JobFolder,
        parameters: Mapping[str, Any],
        secrets: Mapping[str, str],
    ) -> Driver:
        if not self._is_cluster_mode:
            return LocalDriver(job, folder, parameters, secrets)
        return YarnDriver(
            job,
            folder,
            parameters,
            secrets,
            properties=self._properties,
            command=self._submission.local_command,
            base_environment=self._environment(),
        )

    def _submit_to_the_end(
        self, driver: Driver, folder: JobFolder, py_files: Sequence[str]
    ) -> None:
        environment = driver.environment(self._environment())
        if self._kills:
            raise AirflowException("the task was killed before its Spark job was submitted")
        try:
            self._submission.submit_program(
                driver.program,
                driver.arguments,
                properties={**self._properties, **driver.properties},
                py_files=py_files,
                environment=environment,
                # The job inherits the lock of the folder, in case this process is killed.
                keep_open=[folder.lock],
            )
        except BaseException:
            # For example a timeout of the task: the job must not go on running.
            self._kill_group()
            driver.end(_END_SECONDS)
            raise
        finally:
            # From now on the operating system may reuse the number of the group.
            self._submission.forget_process()

    def _check_binary(self, path: str) -> None:
        binary = self._submission.binary
        if shutil.which(binary, path=path) is None:
            raise TableFailure(
                f"Spark connection {self._connection_id!r}: there is no {binary} on the PATH of this "
                f"worker; it comes with PySpark: {REMEDY}"
            )

    def _with_the_jobs_error(self, error: AirflowException, driver: Driver) -> AirflowException:
        """Put the error that the job has left in front of the error of the submission."""
        from airflow_delta.job_files import SparkStartError

        failure = (driver.result() or {}).get("error")
        details = "\n".join(filter(None, [driver.description(), str(error)]))
        if failure is None:
            reason = self._reason_of_a_kill()
            return AirflowException(f"{reason}\n{details}" if reason else details)
        # The next try gets fresh credentials, which the job couldn't renew.
        is_permanent = is_permanent_kind(failure["type"]) and failure["type"] not in _DENIALS
        kind = TableFailure if is_permanent else AirflowException
        reason = f"{failure['type']}: {failure['message']}"
        if failure["type"] == SparkStartError.__name__:
            reason = f"Spark connection {self._connection_id!r}, master {self.master}: {failure['message']}"
        return kind(f"{reason}\n{details}")

    def _reason_of_a_kill(self) -> str | None:
        """Explain a kill by somebody else; None if there was none."""
        if self._kills or self._submission.exit_code not in _KILLED:
            return None
        return (
            f"Spark connection {self._connection_id!r}: spark-submit or its driver was killed (SIGKILL), "
            "most likely by the system because the worker's machine or container ran out of memory; give "
            "the worker more memory, run fewer tasks at a time on it, or set a smaller "
            "spark.driver.memory in spark_conf"
        )

    def _environment(self) -> dict[str, str]:
        """The environment of every submission; the driver adds to it."""
        environment = dict(os.environ)
        if self.master.startswith("local"):
            environment.setdefault("PYSPARK_PYTHON", sys.executable)
        # Finds the spark-submit of an installed pyspark even if the virtual environment isn't activated. It
        # comes last, so that one on the administrator's PATH has precedence.
        scripts = sysconfig.get_path("scripts")
        environment["PATH"] = os.pathsep.join([environment.get("PATH", os.defpath), scripts])
        if not _has_log_settings(environment):
            environment[_LOG_SETTINGS] = str(_QUIET)
        return environment

    def _kill_group(self) -> None:
        """Kill spark-submit and a driver beside it, which is a grandchild of this process."""
        process = self._submission.process
        if process is None:
            return
        # The process is the leader of a session, and so of a group with the same number, which
        # exists as long as any member does, even without the leader.
        grace = _CLIENT_GRACE_SECONDS if self._is_cluster_mode else _KILL_GRACE_SECONDS
        for number, seconds in (
            (signal.SIGTERM, grace),
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
    """The environment variables of the driver, wherever it runs: secrets, and the run of the task."""
    from airflow_delta.engine.transaction.task_run import TASK_RUN_VARIABLE
    from airflow_delta.job_files import STORAGE_OPTIONS_VARIABLE

    variables = {STORAGE_OPTIONS_VARIABLE: json.dumps(dict(storage_options))}
    if TASK_RUN_VARIABLE in os.environ:
        variables[TASK_RUN_VARIABLE] = os.environ[TASK_RUN_VARIABLE]
    if commit_owner_url is not None:
        from airflow_delta.engine.commit.sql.owner import URL_VARIABLE

        variables[URL_VARIABLE] = commit_owner_url
    return variables


def _check_connection(connection_id: str) -> None:
    """Refuse a connection that doesn't exist or names no master: `SparkSubmitHook` would use ``yarn``."""
    try:
        connection = BaseHook.get_connection(connection_id)
    except AirflowNotFoundException as error:
        raise AirflowNotFoundException(
            f"the Spark connection {connection_id!r} isn't defined or can't be parsed; define it, "
            'for example as {"conn_type": "spark", "host": "local[2]"}'
        ) from error
    if not connection.host and connection.conn_type != "yarn":
        raise TableFailure(
            f"the Spark connection {connection_id!r} names no master: its host is empty"
        )
    if "k8s" in f"{connection.conn_type}://{connection.host}":
        # Imported in the same way as by SparkSubmitHook, which fails with a NameError without it.
        try:
            import_module("airflow.providers.cncf.kubernetes.kube_client")
        except (ImportError, NameError) as error:
            raise TableFailure(
                f"the Spark connection {connection_id!r} names a master of Kubernetes, and Airflow's "
                "provider for it isn't installed: pip install apache-airflow-providers-cncf-kubernetes"
            ) from error


def _has_log_settings(environment: Mapping[str, str]) -> bool:
    """Whether the user has a log4j2 configuration, in the environment or in Spark's directory for it."""
    home = environment.get("SPARK_HOME")
    given = environment.get("SPARK_CONF_DIR")
    settings = Path(given) if given else Path(home, "conf") if home else None
    has_files = settings is not None and any(settings.glob("log4j2*.*"))
    return _LOG_SETTINGS in environment or has_files


def _signal_group(group: int, number: int) -> bool:
    """Send a signal to a process group; False if the group has no member."""
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
