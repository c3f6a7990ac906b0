"""Extend `SparkSubmitHook` for `airflow_delta.hooks.spark.job`.

This is the only module that imports Airflow's Spark provider, from the extra ``spark``. Import it
only where a job is submitted.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

__all__ = ["SparkSubmission"]


class SparkSubmission(SparkSubmitHook):
    """A submission of a PySpark program."""

    exit_code: int | None = None
    """The exit code of the last ``spark-submit`` that ended, as in `subprocess.Popen.returncode`."""

    on_start: Callable[[], None] | None = None
    """Called as soon as ``spark-submit`` runs and `process` is known."""

    @property
    def master(self) -> str:
        """The master that the connection names."""
        return str(self._connection["master"])

    @property
    def binary(self) -> str:
        """The program for submissions, such as ``spark-submit``."""
        return str(self._connection["spark_binary"])

    @property
    def deploy_mode(self) -> str:
        """The deploy mode of the submission."""
        return str(self._connection["deploy_mode"])

    @property
    def process(self) -> subprocess.Popen[str] | None:
        """The process of ``spark-submit``; None if none is running."""
        process: subprocess.Popen[str] | None = self._submit_sp
        return process

    def submit_program(
        self,
        program: Path,
        arguments: Sequence[str],
        *,
        properties: Mapping[str, str],
        py_files: Sequence[str],
        environment: Mapping[str, str],
        keep_open: Sequence[int],
    ) -> None:
        """Run a program in a new session and process group, and wait for its end.

        :param program: the Python file.
        :param arguments: its arguments.
        :param properties: all Spark properties of the submission.
        :param py_files: files for the Python path of driver and executors.
        :param environment: the environment of ``spark-submit``, and of a driver beside it.
        :param keep_open: file descriptors that ``spark-submit`` inherits.
        :raises AirflowException: it failed.
        """
        self._conf = dict(properties)
        self._application_args = list(arguments)
        self._py_files = ",".join(py_files)
        self.submit(
            str(program),
            env=dict(environment),
            start_new_session=True,
            pass_fds=tuple(keep_open),
            # The standard input of a task is its connection to Airflow's supervisor, which waits until
            # nobody has it. A job that had it, and outlived its killed task, would delay the retry by a
            # minute.
            stdin=subprocess.DEVNULL,
        )

    def _process_spark_submit_log(self, itr: Iterator[Any]) -> None:
        # The hook of the provider calls it first of all after it has started the process.
        if self.on_start is not None:
            self.on_start()
        super()._process_spark_submit_log(itr)

    def _resolve_connection(self) -> dict[str, Any]:
        connection: dict[str, Any] = super()._resolve_connection()
        # Without the option, spark-defaults.conf could choose another mode.
        connection["deploy_mode"] = connection["deploy_mode"] or "client"
        return connection

    def local_command(
        self, program: Path, arguments: Sequence[str], properties: Mapping[str, str]
    ) -> list[str]:
        """Make the command line that runs a program here, with the login of the connection's keytab.

        :param program: the Python file.
        :param arguments: its arguments.
        :param properties: Spark properties.
        """
        command = [self.binary, "--master", "local[1]", "--deploy-mode", "client"]
        for name, value in properties.items():
            command += ["--conf", f"{name}={value}"]
        for option in ("keytab", "principal"):
            if self._connection[option]:
                command += [f"--{option}", str(self._connection[option])]
        return [*command, str(program), *arguments]

    def forget_process(self) -> None:
        """Forget the ended process, because its number may be reused."""
        if self._submit_sp is not None:
            self.exit_code = self._submit_sp.returncode
        self._submit_sp = None
