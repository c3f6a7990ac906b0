"""Check the arguments of tasks, when the DAG is parsed and again after templates are rendered.

If a template renders to nothing, because an XCom is missing or a param is empty, the task fails
with the names of the argument and the template, instead of using the default. To get the default,
leave the argument out, pass None, or mark the template with `airflow_delta.templates.optional`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow_delta.hooks.failures import ArgumentError
from airflow_delta.hooks.spark.install import check_spark_for_argument
from airflow_delta.operators.template_values import is_absent
from airflow_delta.templates import OptionalReference, OptionalTemplate
from airflow_delta.version_compat import is_written_none, reference_text

if TYPE_CHECKING:
    from airflow_delta.operators.table_task import TableTask

__all__ = ["attribute_of", "check_arguments", "is_certain", "rendered_argument"]

# Every operator of Airflow has a method of that name.
_RENAMED = {"dry_run": "_dry_run"}


def attribute_of(name: str) -> str:
    """The operator's attribute with an argument."""
    return _RENAMED.get(name, name)


def check_arguments(
    kind: type[TableTask], given: Mapping[str, Any], *, starts: Iterable[str] | None
) -> None:
    """Check the arguments of a task, first each with its reader and then together.

    :param kind: the operator.
    :param given: its known arguments by name.
    :param starts: the texts with which templates start: arguments with templates aren't checked yet.
        None: all arguments are rendered.
    :raises ArgumentError: an argument is invalid, two exclude each other, or one needs Spark, which isn't
        installed.
    """
    known: dict[str, Any] = {}
    for name, value in given.items():
        templated = starts is not None and attribute_of(name) in kind.template_fields
        if not (templated and _has_template(value, tuple(starts or ()))):
            known[name] = kind.arguments[name](value, name=name)
    for one, other in kind.exclusive:
        values = given.get(one), given.get(other)
        if None not in values and not any(isinstance(value, _OPTIONAL) for value in values):
            raise ArgumentError(
                f"both {one}={values[0]!r} and {other}={values[1]!r} are given; give at most one of them"
            )
    kind.check_together(known)
    for argument in kind.spark_arguments(given):
        check_spark_for_argument(argument)


def is_certain(value: Any) -> bool:
    """Whether an argument certainly has a value at run time: not None, and no optional template."""
    return value is not None and not isinstance(value, _OPTIONAL)


def rendered_argument(source: Any, rendered: Any, *, name: str) -> Any:
    """The value of an argument after rendering; None if an optional template rendered to nothing.

    :param source: the value before rendering: a text, a reference to another task's result, or a dictionary
        or list with such.
    :param rendered: the value after rendering.
    :param name: the argument's name, and the path in it.
    :raises ArgumentError: a template that isn't optional has rendered to nothing.
    """
    if isinstance(source, dict) and isinstance(rendered, Mapping):
        entries = {
            key: rendered_argument(source.get(key), value, name=f"{name}[{key!r}]")
            for key, value in rendered.items()
            if not _is_left_out(source.get(key), value)
        }
        return entries if entries or not source else None
    if isinstance(source, list | tuple) and isinstance(rendered, Sequence):
        items = [
            rendered_argument(item, value, name=f"{name}[{number}]")
            for number, (item, value) in enumerate(zip(source, rendered, strict=True))
            if not _is_left_out(item, value)
        ]
        return items if items or not source else None
    if is_absent(source) or not is_absent(rendered):
        return rendered
    if isinstance(source, _OPTIONAL) or (rendered is None and is_written_none(source)):
        return None
    template = repr(source) if isinstance(source, str) else reference_text(source)
    raise ArgumentError(
        f"{name}: the template {template} rendered to {rendered!r}, which isn't a value: make sure that it "
        "has one, leave the argument out for its default, or write optional(...) of "
        "airflow_delta.templates around a template that may be empty"
    )


_OPTIONAL = (OptionalTemplate, OptionalReference)


def _is_left_out(source: Any, rendered: Any) -> bool:
    """Whether to leave an entry of a dictionary or a list out."""
    return isinstance(source, _OPTIONAL) and is_absent(rendered)


def _has_template(value: Any, starts: tuple[str, ...]) -> bool:
    if isinstance(value, OptionalTemplate):
        value = value.template
    if isinstance(value, str):
        return any(start in value for start in starts)
    if isinstance(value, Mapping):
        return any(_has_template(item, starts) for item in value.values())
    if isinstance(value, list | tuple | set):
        return any(_has_template(item, starts) for item in value)
    if isinstance(value, os.PathLike):
        return False  # Airflow doesn't render paths, although they have a method ``resolve``
    return callable(getattr(value, "resolve", None)) or callable(value)
