"""Print the output of subcommands, as text or JSON.

Texts of a table may contain control characters, and locations may contain passwords. So all output
goes through this module, which escapes or removes them.

Results go to standard output, or in `results_apart` to what was standard output before. Errors and warnings
go to standard error, one a line: as text, or with ``--json`` as JSON objects. If standard output can't be
written, that is an error; standard error that can't be written is ignored.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout, suppress
from typing import Any, TextIO

from airflow_delta.cli.progress import pause_progress
from airflow_delta.cli.wording import in_cli_words
from airflow_delta.engine.errors import DeltaError, DeltaWarning, InvalidArgumentError
from airflow_delta.engine.model.plain import plain
from airflow_delta.engine.public_text import public_text, without_password

__all__ = [
    "flush_results",
    "hide",
    "print_error",
    "print_interrupt",
    "print_json",
    "print_json_row",
    "print_line",
    "print_note",
    "print_script",
    "print_usage",
    "print_usage_error",
    "results_apart",
    "results_stream",
    "warnings_as_lines",
    "writing_results",
]

_PROGRAM = "airflow-delta"

_SHORTEST = 3
"""Texts of so many characters aren't hidden: they would be found in many words."""

_secrets: set[str] = set()

_results: TextIO | None = None
"""The stream of the results in `results_apart`; None elsewhere."""


def results_stream() -> TextIO:
    """The stream of the results: standard output of the process."""
    return sys.stdout if _results is None else _results


@contextmanager
def results_apart() -> Iterator[None]:
    """Send to standard error what any other code prints to standard output in the block, in any thread."""
    global _results
    before, _results = _results, results_stream()
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        _results = before


def hide(secrets: Iterable[str]) -> None:
    """Replace some texts by asterisks in all errors, warnings and notes that are printed later.

    Args:
        secrets: the texts.
    """
    _secrets.update(secret for secret in secrets if len(secret) > _SHORTEST)


@contextmanager
def writing_results() -> Iterator[None]:
    """Report it if standard output can't be written in the block; nothing is written to it afterwards.

    Raises:
        InvalidArgumentError: it can't be written, for example because the disk is full.
        BrokenPipeError: the reader, for example ``head``, has closed the pipe.
    """
    pause_progress()
    try:
        yield
    except BrokenPipeError:
        _drop(results_stream())
        raise
    except OSError as error:
        _drop(results_stream())
        raise InvalidArgumentError(
            f"standard output can't be written: {error.strerror or error}"
        ) from error


def flush_results() -> None:
    """Write what is in the buffer of standard output.

    Raises:
        InvalidArgumentError: see `writing_results`.
        BrokenPipeError: see `writing_results`.
    """
    with writing_results():
        results_stream().flush()


def _drop(stream: TextIO) -> None:
    # Python flushes the standard streams again at exit, which must not fail.
    with suppress(OSError):
        descriptor = stream.fileno()
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, descriptor)
        os.close(null)


def print_line(line: str) -> None:
    """Print a line of text, with escapes for unprintable characters."""
    _print_result(public_text(line))


def print_note(text: str) -> None:
    """Print a note for people to standard error."""
    _print_problem(f"{_PROGRAM}: {text}")


def print_json(facts: Mapping[str, Any], *, indent: int | None = 2) -> None:
    """Print a JSON object.

    Args:
        facts: its members.
        indent: see `json.dumps`; None for one line.
    """
    uris = {name: without_password(facts[name]) for name in ("table_uri",) if name in facts}
    _print_result(json.dumps({**facts, **uris}, indent=indent))


def print_json_row(row: Mapping[str, Any]) -> None:
    """Print a row of a table as a JSON object, in a line of its own; nothing is removed from it."""
    _print_result(json.dumps(row))


def print_script(text: str) -> None:
    """Print a text of this package as it is, with its line breaks."""
    _print_result(text)


def print_error(error: DeltaError, *, as_json: bool) -> None:
    """Print an error to standard error, reworded for the command line.

    Args:
        error: the error.
        as_json: as an object with ``type``, ``message``, ``table_uri`` and the error's ``facts``.
    """
    message = in_cli_words(error.message)
    if as_json:
        facts = plain(error.facts)
        _print_object("error", type(error).__name__, message, table_uri=error.table, facts=facts)
        return
    table = f"{error.table}: " if error.table else ""
    _print_problem(f"{_PROGRAM}: {table}{message}")


def print_interrupt(*, as_json: bool) -> None:
    """Print to standard error that a user has interrupted the command.

    Args:
        as_json: as an object like that of an error, with the type ``Interrupted``.
    """
    if as_json:
        _print_object("error", "Interrupted", "interrupted", table_uri=None, facts={})
    else:
        print_note("interrupted")


def print_usage(text: str) -> None:
    """Print the usage of the command, or the help that stands for it, to standard error."""
    _print_to_stderr(text)


def print_usage_error(usage: str, message: str, *, as_json: bool) -> None:
    """Print a usage error to standard error.

    Args:
        usage: the usage of the subcommand.
        message: the message.
        as_json: as an object like that of an error, with the type ``UsageError``.
    """
    if as_json:
        _print_object("error", "UsageError", message, table_uri=None, facts={})
        return
    print_usage(usage)
    _print_problem(f"{_PROGRAM}: {message}")


@contextmanager
def warnings_as_lines(*, as_json: bool) -> Iterator[None]:
    """Print warnings to standard error, each once and without Python's file and line.

    Args:
        as_json: as objects with ``type`` and ``message``.
    """
    seen: set[str] = set()

    def _show(
        message: Warning | str,
        category: type[Warning],
        filename: str,  # noqa: ARG001 - as Python calls it
        lineno: int,  # noqa: ARG001
        file: TextIO | None = None,  # noqa: ARG001
        line: str | None = None,  # noqa: ARG001
    ) -> None:
        text = in_cli_words(str(message))
        if text in seen:
            return
        seen.add(text)
        if as_json:
            _print_object("warning", category.__name__, text)
        else:
            _print_problem(f"{_PROGRAM}: warning: {text}")

    with warnings.catch_warnings():
        # Whatever the filters of the process: the engine's warnings are about tables, not about Python.
        warnings.simplefilter("always", DeltaWarning)
        warnings.showwarning = _show
        yield


def _print_object(kind: str, type_: str, message: str, **facts: Any) -> None:
    members = {"type": type_, "message": message, **facts}
    _print_to_stderr(json.dumps({kind: _without_passwords(members)}))


def _print_problem(message: str) -> None:
    _print_to_stderr(public_text(_hidden(message)))


def _print_result(text: str) -> None:
    with writing_results():
        print(text, file=results_stream())


def _print_to_stderr(text: str) -> None:
    pause_progress()
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        # Nothing else can report that stderr isn't writable. The exit status stays.
        _drop(sys.stderr)


def _without_passwords(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_passwords(entry) for name, entry in value.items()}
    if isinstance(value, list):
        return [_without_passwords(entry) for entry in value]
    return without_password(_hidden(value)) if isinstance(value, str) else value


def _hidden(text: str) -> str:
    for secret in _secrets:
        text = text.replace(secret, "***")
    return text
