"""Deploy mode ``cluster`` on YARN: the driver runs in a container of the cluster.

What the driver needs is shipped by Spark's YARN client into the application's staging directory, which only
its user can read: the parameters, the secrets, and the package. `airflow_delta.spark.yarn.driver_program`
runs the job there, and publishes the result beside the staging directory.

After spark-submit has ended, a second one runs `airflow_delta.spark.yarn.client_program` on the worker. It
finds the application by a tag of this submission, kills it unless it has ended, and fetches the result. A
kill of spark-submit alone would leave the application running.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from airflow_delta.hooks.failures import TableFailure
from airflow_delta.hooks.job_folder import JobFolder
from airflow_delta.hooks.spark.driver import PROGRAMS

__all__ = ["YarnDriver", "check_cluster_mode", "cluster_properties"]

_FILES = "spark.yarn.dist.files"
_TAGS = "spark.yarn.tags"
_ATTEMPTS = "spark.yarn.maxAppAttempts"
_WAITS = "spark.yarn.submit.waitAppCompletion"
_PYTHON = "spark.pyspark.python"
_DRIVER_PYTHON = "spark.pyspark.driver.python"
_PYTHON_VARIABLE = "PYSPARK_DRIVER_PYTHON"
_FETCH_SECONDS = 120.0
"""How long to wait for the end of an application and its result."""

# The properties of the task that reach the cluster's services; the others concern the job alone.
_CLIENT_PREFIXES = ("spark.hadoop.", "spark.kerberos.", "spark.yarn.")
# Those of spark-defaults.conf that would have files fetched, or another process started.
_CLIENT_PROPERTIES = {
    "spark.jars": "",
    "spark.jars.packages": "",
    "spark.files": "",
    "spark.archives": "",
    "spark.submit.pyFiles": "",
    "spark.driver.memory": "256m",
}
# A ResourceManager that can't be reached isn't waited for as long as by a job, which may wait for minutes.
_CLIENT_DEFAULTS = {
    "spark.hadoop.yarn.resourcemanager.connect.max-wait.ms": "45000",
    "spark.hadoop.yarn.resourcemanager.connect.retry-interval.ms": "2000",
}

_log = logging.getLogger(__name__)


def check_cluster_mode(master: str, *, connection_id: str) -> None:
    """Check that jobs can run in deploy mode ``cluster``.

    :param master: the master that the connection names.
    :param connection_id: the Spark connection, for the message.
    :raises TableFailure: they can't.
    """
    if master == "yarn":
        return
    if master.startswith("spark://"):
        reason = "Spark's standalone clusters don't run Python drivers"
    elif master.startswith("k8s://"):
        reason = "on Kubernetes the result of a job has no way back to the worker"
    else:
        reason = f"the master {master} has no such mode"
    raise TableFailure(
        f"Spark connection {connection_id!r}: deploy mode 'cluster' is supported for the master 'yarn' "
        f"only: {reason}; use deploy mode 'client'"
    )


def cluster_properties(given: Mapping[str, str]) -> dict[str, str]:
    """Complete the Spark properties of a task for deploy mode ``cluster``.

    :param given: the properties that the user has given.
    :raises TableFailure: they let spark-submit end before the application.
    """
    if given.get(_WAITS, "true").strip().lower() != "true":
        raise TableFailure(
            f"{_WAITS} is {given[_WAITS]!r} in spark_conf: the task has to wait for the application's "
            "end, to return its result and to end it when the task is killed; remove the property"
        )
    properties = {_ATTEMPTS: "1", **given, _WAITS: "true"}
    if _PYTHON in properties:
        # That of spark-defaults.conf may be the worker's own Python, for deploy mode client.
        properties.setdefault(_DRIVER_PYTHON, properties[_PYTHON])
    return properties


class YarnDriver:
    """The driver of a submission in deploy mode ``cluster``.

    :param job: the module's name in ``airflow_delta.spark.jobs``.
    :param folder: the folder of the submission.
    :param parameters: the parameters of the job.
    :param variables: environment variables with secrets.
    :param properties: the Spark properties of the task.
    :param command: makes the command line of a local submission of a program, from properties.
    :param base_environment: the environment of every submission.
    """

    def __init__(
        self,
        job: str,
        folder: JobFolder,
        parameters: Mapping[str, Any],
        variables: Mapping[str, str],
        *,
        properties: Mapping[str, str],
        command: Callable[[Path, Sequence[str], Mapping[str, str]], list[str]],
        base_environment: Mapping[str, str],
    ) -> None:
        from airflow_delta.job_files import PARAMETERS_FILE, RESULT_FILE, SECRETS_FILE

        # Tags of YARN are in lower case.
        self._tag = f"airflow-delta-{secrets.token_hex(16)}"
        shipped = {
            PARAMETERS_FILE: {**parameters, "result_path": RESULT_FILE},
            SECRETS_FILE: dict(variables),
        }
        for name, content in shipped.items():
            _write_private(folder.path / name, json.dumps(content))
        self._secrets_file = folder.path / SECRETS_FILE
        self.program = PROGRAMS / "yarn" / "driver_program.py"
        self.arguments = [job, f"{self._tag}.json"]
        files = [str(folder.path / name) for name in shipped]
        self.properties = {
            # A property and not the option --files, which would hide the user's spark.files.
            _FILES: ",".join([*_texts(properties, _FILES), *files]),
            _TAGS: ",".join([*_texts(properties, _TAGS), self._tag]),
        }
        self._report_file = folder.path / "report.json"
        self._client_log = folder.path / "client.log"
        own = {
            name: value
            for name, value in properties.items()
            if name.startswith(_CLIENT_PREFIXES) and name not in (_FILES, _TAGS)
        }
        arguments = [self._tag, str(self._report_file)]
        self._client_command = command(
            PROGRAMS / "yarn" / "client_program.py",
            arguments,
            {**_CLIENT_DEFAULTS, **own, **_CLIENT_PROPERTIES, _DRIVER_PYTHON: sys.executable},
        )
        self._environment = {**base_environment, _PYTHON_VARIABLE: sys.executable}
        self._client: subprocess.Popen[bytes] | None = None
        # A signal handler may call `end` while the thread that it interrupts is in it.
        self._lock = threading.RLock()

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """Leave out the Python of local drivers, which Spark would look for in the container."""
        environment = {name: value for name, value in base.items() if name != _PYTHON_VARIABLE}
        # The package's log4j2.properties reads it.
        return {**environment, "AIRFLOW_DELTA_YARN_CLIENT_LEVEL": "info"}

    def end(self, limit_seconds: float) -> None:
        """Kill the application unless it has ended, and fetch its result.

        A process of its own does so. It goes on if this one is killed.
        """
        # Shipped by now, or never.
        self._secrets_file.unlink(missing_ok=True)
        with self._lock:
            if self._client is None:
                with self._client_log.open("wb") as log:
                    self._client = subprocess.Popen(  # noqa: S603 (spark-submit, without a shell)
                        self._client_command,
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=subprocess.STDOUT,
                        env=self._environment,
                        start_new_session=True,
                    )
        try:
            self._client.wait(limit_seconds)
        except subprocess.TimeoutExpired:
            _log.warning(
                "the end of the YARN application with the tag %s isn't confirmed after %g seconds; "
                "process %d goes on to kill it",
                self._tag,
                limit_seconds,
                self._client.pid,
            )
            return
        if self._client.returncode:
            _log.error(
                "the YARN application with the tag %s may still run: %s",
                self._tag,
                self._client_output(),
            )

    def result(self) -> dict[str, Any] | None:
        """Fetch the result."""
        result: dict[str, Any] | None = self._report().get("result")
        return result

    def description(self) -> str:
        """Describe the end of the application."""
        report = self._report()
        if not report:
            assert self._client is not None
            if self._client.poll() is None:
                return (
                    f"the end of the YARN application with the tag {self._tag} isn't confirmed yet"
                )
            reason = "the state of the YARN application and its result couldn't be fetched:"
            return f"{reason}\n{self._client_output()}"
        lines: list[str] = []
        for found in report["applications"]:
            logs = f"yarn logs -applicationId {found['id']}, or {found['tracking_url']}"
            lines += [f"YARN application {found['id']}: {found['state']}, {found['final_status']}"]
            lines += [found["diagnostics"].strip(), f"the driver's log: {logs}"]
        return "\n".join(filter(None, lines))

    def _client_output(self) -> str:
        """The last lines of the client program's output."""
        if not self._client_log.exists():
            return ""
        return "\n".join(self._client_log.read_text(errors="replace").strip().splitlines()[-20:])

    def _report(self) -> dict[str, Any]:
        """The report of the client program; empty if it has failed or isn't ready."""
        if self._client is None:
            self.end(_FETCH_SECONDS)
        if not self._report_file.exists():
            return {}
        report: dict[str, Any] = json.loads(self._report_file.read_text())
        return report


def _texts(properties: Mapping[str, str], name: str) -> list[str]:
    return [properties[name]] if properties.get(name) else []


def _write_private(path: Path, text: str) -> None:
    """Create a file that only its user can read."""
    with os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
        file.write(text)
