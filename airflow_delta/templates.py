"""Mark templates that may render to nothing.

An argument that a DAG author gives must have a value: if its template renders to an empty text or to
``None``, for example because an XCom is missing, the task fails. `optional` is for arguments that may be
empty::

    from airflow_delta.templates import optional

    TimeTravelSnapshotOperator(
        task_id="pin",
        table_uri="{{ params.table_uri }}",
        version=optional("{{ params.version }}"),
    )
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar, cast

from airflow_delta.version_compat import ResolveMixin, reference_text

__all__ = ["OptionalReference", "OptionalTemplate", "optional"]

_TemplateT = TypeVar("_TemplateT")


class OptionalTemplate(ResolveMixin):
    """A template whose empty rendering counts as Python's None. Made by `optional`.

    It is no text itself: Airflow's DAG processor can't send a kind of ``str`` of our own to the database.
    """

    def __init__(self, template: str) -> None:
        self.template = template

    def __repr__(self) -> str:
        return f"optional({self.template!r})"

    # Airflow shows it so in the user interface.
    __str__ = __repr__

    def iter_references(self) -> Iterator[tuple[Any, str]]:
        """No task: what the text of a template refers to, Airflow doesn't look for."""
        yield from ()

    def resolve(self, context: Any) -> Any:
        """Render the template, when the task is run."""
        return context["task"].render_template(self.template, context)


class OptionalReference(ResolveMixin):
    """A reference to another task's result that may lead to nothing. Made by `optional`."""

    def __init__(self, reference: Any) -> None:
        self._reference = reference

    def __repr__(self) -> str:
        return f"optional({reference_text(self._reference)})"

    # Airflow shows it so in the user interface.
    __str__ = __repr__

    def iter_references(self) -> Iterator[tuple[Any, str]]:
        """The tasks whose results it refers to, which must have run before."""
        yield from self._reference.iter_references()

    def resolve(self, context: Any) -> Any:
        """The result that it leads to, when the task is run."""
        return self._reference.resolve(context)


def optional(template: _TemplateT) -> _TemplateT:
    """Let a template render to nothing: the argument counts as None then, and has its default.

    Nothing is an empty text, ``None`` or ``null``. In a dictionary or a list the entry is left out.

    :param template: a text with a Jinja template, or a reference such as ``pin.output["version"]``.
    :raises TypeError: it is neither.
    """
    if isinstance(template, str):
        return cast("_TemplateT", OptionalTemplate(template))
    if hasattr(template, "resolve") and hasattr(template, "iter_references"):
        return cast("_TemplateT", OptionalReference(template))
    raise TypeError(
        f"optional() takes a template or a reference such as pin.output['version'], found {template!r}"
    )
