"""The two locations of a job's driver, as `airflow_delta.hooks.spark.job` uses them.

`LocalDriver` runs beside the worker, in deploy mode ``client``; its files are in the folder of the
submission, and its secrets in the environment. `airflow_delta.hooks.spark.yarn_driver` has the other one.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from airflow_delta.hooks.job_folder import JobFolder

__all__ = ["PROGRAMS", "Driver", "LocalDriver"]

PROGRAMS = Path(__file__).resolve().parents[2] / "spark"
"""The directory of the programs for spark-submit."""


class Driver(Protocol):
    """The driver of one submission: what it needs, and how its result comes back."""

    @property
    def program(self) -> Path:
        """The Python file to submit."""

    @property
    def arguments(self) -> Sequence[str]:
        """The arguments of the program."""

    @property
    def properties(self) -> Mapping[str, str]:
        """Spark properties of this submission, which replace those of the hook."""

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """The environment of spark-submit.

        :param base: the environment of every submission.
        """

    def end(self, limit_seconds: float) -> None:
        """End what goes on running without spark-submit; the process must have ended.

        :param limit_seconds: how long to wait for the end.
        """

    def result(self) -> dict[str, Any] | None:
        """The result of the job that has ended; None if it has left none."""

    def description(self) -> str:
        """What is known about the end, as further lines of an error's message; may be empty."""


class LocalDriver:
    """The driver of a submission in deploy mode ``client``.

    :param job: the module's name in ``airflow_delta.spark.jobs``.
    :param folder: the folder of the submission.
    :param parameters: the parameters of the job.
    :param secrets: environment variables.
    """

    def __init__(
        self,
        job: str,
        folder: JobFolder,
        parameters: Mapping[str, Any],
        secrets: Mapping[str, str],
    ) -> None:
        self._result = folder.path / "result.json"
        parameters_file = folder.path / "parameters.json"
        parameters_file.write_text(json.dumps({**parameters, "result_path": str(self._result)}))
        self.program = PROGRAMS / "jobs" / f"{job}.py"
        self.arguments = [str(parameters_file)]
        self.properties: Mapping[str, str] = {}
        self._folder = folder
        self._secrets = secrets

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """Add the secrets, the folder for temporary files, and the Python of the driver."""
        from airflow_delta.job_files import FOLDER_VARIABLE

        environment = {**base, **self._secrets, FOLDER_VARIABLE: str(self._folder.path)}
        # By default the driver is this interpreter, which has our dependencies.
        environment.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
        return environment

    def end(self, limit_seconds: float) -> None:
        """Do nothing: the driver is in the process group of spark-submit."""

    def result(self) -> dict[str, Any] | None:
        """Read the result file."""
        if not self._result.exists():
            return None
        result: dict[str, Any] = json.loads(self._result.read_text())
        return result

    def description(self) -> str:
        """Nothing more is known."""
        return ""
