"""What a submitted job and whoever submits it hand each other.

* **Parameters** are a JSON object: the job's only argument is the path of a file with it, or the
  object itself. ``result_path`` in it names a file on the driver's machine for the result.
* **The result** is a JSON object; of a job that failed it is
  ``{"error": {"type": <class>, "message": <text>}}``, and the job's exit code is not 0.
* **Secrets** are in neither. The options of the tables' store, which may hold some, are JSON in the
  environment variable `STORAGE_OPTIONS_VARIABLE`.

What is wrong with the arguments is an `InvalidArgumentError`, so that whoever submitted the job can
tell it from what another try may help.

Airflow's workers import this module, too, so it needs no more than the standard library.
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
    "RESULT_PATH",
    "STORAGE_OPTIONS_VARIABLE",
    "SparkStartError",
    "known_parameters",
    "read_parameters",
    "read_storage_options",
    "run_job",
]

STORAGE_OPTIONS_VARIABLE = "AIRFLOW_DELTA_STORAGE_OPTIONS"
"""The environment variable with the storage options: a JSON object of strings."""

FOLDER_VARIABLE = "AIRFLOW_DELTA_JOB_FOLDER"
"""The environment variable with the folder of the submission, where the driver puts its temporary files.

Whoever submitted the job deletes it, also after the driver was killed.
"""

RESULT_PATH = "result_path"
"""The parameter that names the file for the result."""


class SparkStartError(RuntimeError):
    """Spark couldn't be started; nothing of the job was done."""


def run_job(
    work: Callable[[Mapping[str, Any], Mapping[str, str]], Mapping[str, Any]],
    arguments: Sequence[str],
) -> int:
    """Run a job from its arguments to its result file, and give its exit code.

    Args:
        work: the job: from parameters (without the result's path) and storage options to the result.
        arguments: the command line behind the program's name.
    """
    result_path: str | None = None
    try:
        parameters = read_parameters(arguments)
        result_path = parameters.pop(RESULT_PATH, None)
        result = work(parameters, read_storage_options(os.environ))
    except Exception as error:  # noqa: BLE001 - whatever it is, the submitter shall hear of it
        traceback.print_exc()
        # Last on the output, where SparkSubmitHook's message has it.
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
    """The parameters of a job: the one argument, or the file that it names.

    Raises:
        InvalidArgumentError: there isn't one argument, or what it leads to is no JSON object.
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
    """The parameters, each known and of its type.

    Args:
        parameters: those of a job.
        types: those that it knows, and their types.
        required: those that it can't do without.

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


def read_storage_options(environment: Mapping[str, str]) -> dict[str, str]:
    """The storage options that the environment holds; none without the variable.

    Raises:
        InvalidArgumentError: the variable holds no JSON object of strings. The message doesn't show
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
        # Without the cause, whose text may show a secret.
        raise InvalidArgumentError(f"{what}: this is no JSON") from None
    if not isinstance(value, dict):
        raise InvalidArgumentError(
            f"{what}: expected a JSON object, found a {type(value).__name__}"
        )
    return value


def _write(path: str, result: Mapping[str, Any]) -> None:
    """Whole or not at all: whoever waits for the file must not read half of it."""
    unfinished = Path(f"{path}.part")
    unfinished.write_text(json.dumps(result), encoding="utf-8")
    unfinished.replace(path)
