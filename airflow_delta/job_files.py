"""The interface of Spark jobs: their parameters, results and environment.

* **Parameters** are a JSON object: the job's only argument is the object, or the path of a file
  with it. Its ``result_path`` is the path of a file on the driver's machine for the result.
* **The result** is a JSON object. For a failed job it is ``{"error": {"type": <class>, "message":
  <text>}}``, and the exit code isn't 0.
* **Secrets** are in neither. The storage options, which may contain secrets, are JSON in the
  environment variable `STORAGE_OPTIONS_VARIABLE`. In deploy mode ``cluster`` a file has the variables; see
  `SECRETS_FILE`.

Invalid parameters raise an `InvalidArgumentError`, so that the submitting task knows that a retry won't
help.

Airflow's workers also import this module, so it needs only the standard library.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from airflow_delta.engine.errors import InvalidArgumentError

__all__ = [
    "FOLDER_VARIABLE",
    "PARAMETERS_FILE",
    "RESULT_FILE",
    "RESULT_PATH",
    "SECRETS_FILE",
    "STORAGE_OPTIONS_VARIABLE",
    "SparkStartError",
    "change_report",
    "known_parameters",
    "read_parameters",
    "read_storage_options",
    "run_job",
    "transaction_parameter",
]

STORAGE_OPTIONS_VARIABLE = "AIRFLOW_DELTA_STORAGE_OPTIONS"
"""The environment variable with the storage options: a JSON object of strings."""

FOLDER_VARIABLE = "AIRFLOW_DELTA_JOB_FOLDER"
"""The environment variable with the folder of the submission, for temporary files of the driver.

The submitting task deletes it, even after the driver was killed.
"""

RESULT_PATH = "result_path"
"""The parameter that names the file for the result."""

PARAMETERS_FILE = "airflow-delta-parameters.json"
"""In deploy mode ``cluster`` the name of the parameters in the driver's working directory."""

SECRETS_FILE = "airflow-delta-environment.json"
"""In deploy mode ``cluster`` the name of a file with environment variables: a JSON object of strings.

It replaces the environment of the submission, which the driver doesn't inherit.
"""

RESULT_FILE = "airflow-delta-result.json"
"""In deploy mode ``cluster`` the name of the result in the driver's working directory."""


class SparkStartError(RuntimeError):
    """Spark couldn't be started; the job has done nothing."""


def run_job(
    work: Callable[[Mapping[str, Any], Mapping[str, str]], Mapping[str, Any]],
    arguments: Sequence[str],
) -> int:
    """Run a job, write its result file, and return its exit code.

    Args:
        work: the job: a function of parameters (without ``result_path``) and storage options.
        arguments: the command line after the program's name.
    """
    result_path: str | None = None
    try:
        parameters = read_parameters(arguments)
        result_path = parameters.pop(RESULT_PATH, None)
        result = work(parameters, read_storage_options(os.environ))
    except Exception as error:  # noqa: BLE001 - any error must be reported to the submitting task
        traceback.print_exc()
        # The last line of the output, which SparkSubmitHook shows in its message.
        print(f"{type(error).__name__}: {error}", file=sys.stderr)  # noqa: T201
        failure = {"error": {"type": type(error).__name__, "message": str(error)}}
        if result_path:
            _write(result_path, failure)
        return 1
    text = json.dumps(result)
    if result_path:
        _write(result_path, result)
    else:
        print(text)  # noqa: T201
    return 0


def read_parameters(arguments: Sequence[str]) -> dict[str, Any]:
    """Read the parameters of a job from its one argument, or from the file that it names.

    Raises:
        InvalidArgumentError: there isn't exactly one argument, or it isn't a JSON object.
        OSError: the file can't be read.
    """
    if len(arguments) != 1:
        raise InvalidArgumentError(
            f"expected one argument, the path of a JSON file or a JSON object; found {len(arguments)}"
        )
    (argument,) = arguments
    is_object = argument.lstrip().startswith("{")
    text = argument if is_object else Path(argument).read_text(encoding="utf-8")
    return _json_object(text, "the job's parameters")


def known_parameters(
    parameters: Mapping[str, Any], types: Mapping[str, type], *, required: Iterable[str]
) -> dict[str, Any]:
    """Check the names and types of parameters.

    Args:
        parameters: the given parameters.
        types: the types of the job's parameters.
        required: the names of the required ones.

    Raises:
        InvalidArgumentError: one is missing, unknown, or of the wrong type.
    """
    unknown = sorted(set(parameters) - set(types))
    missing = sorted(set(required) - set(parameters))
    if unknown or missing:
        raise InvalidArgumentError(f"parameters: missing {missing}, unknown {unknown}")
    for name, value in parameters.items():
        if type(value) is not types[name]:
            raise InvalidArgumentError(
                f"parameter {name!r}: expected {types[name].__name__}, found {value!r}"
            )
    return dict(parameters)


def transaction_parameter(given: dict[str, Any]) -> tuple[str, int] | None:
    """Take ``app_id`` and ``app_version`` out of the parameters; None if they aren't given.

    Raises:
        InvalidArgumentError: only one is given.
    """
    app_id, app_version = given.pop("app_id", None), given.pop("app_version", None)
    if (app_id is None) != (app_version is None):
        raise InvalidArgumentError("parameters: app_id and app_version belong together")
    return None if app_id is None else (app_id, app_version)


def change_report(table_uri: str, version: int, *, written: bool, repeated: bool) -> dict[str, Any]:
    """The result of a job that writes, deletes, updates or merges rows.

    Args:
        table_uri: the table.
        version: the version of the commit; without one, the newest.
        written: whether this job has made a commit.
        repeated: whether an earlier job has made the commit.
    """
    return {
        "table_uri": table_uri,
        "version": version,
        "committed": written or repeated,
        "repeated": repeated,
    }


def read_storage_options(environment: Mapping[str, str]) -> dict[str, str]:
    """Read the storage options from the environment; empty without the variable.

    Raises:
        InvalidArgumentError: the variable isn't a JSON object of strings. The message doesn't show
            its text.
    """
    text = environment.get(STORAGE_OPTIONS_VARIABLE)
    options = _json_object(text, STORAGE_OPTIONS_VARIABLE) if text else {}
    if not all(isinstance(value, str) for value in options.values()):
        raise InvalidArgumentError(f"{STORAGE_OPTIONS_VARIABLE}: expected strings as values")
    return options


def _json_object(text: str, what: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        # Without the cause, whose text may contain a secret.
        raise InvalidArgumentError(f"{what}: this is no JSON") from None
    if not isinstance(value, dict):
        raise InvalidArgumentError(
            f"{what}: expected a JSON object, found a {type(value).__name__}"
        )
    return value


def _write(path: str, result: Mapping[str, Any]) -> None:
    """Write a file atomically, so that nobody reads half of it."""
    unfinished = Path(f"{path}.part")
    unfinished.write_text(json.dumps(result), encoding="utf-8")
    unfinished.replace(path)
