"""What all tasks have in common: a table, connections to reach it by, and arguments that are checked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

from airflow_delta.hooks.delta import DeltaHook
from airflow_delta.hooks.failures import ArgumentError
from airflow_delta.hooks.table_locations import one_connection, split_connection
from airflow_delta.operators.arguments import attribute_of, check_arguments, rendered_argument
from airflow_delta.operators.template_values import (
    Reader,
    as_allowed_locations,
    as_required_location,
    as_text,
)
from airflow_delta.version_compat import (
    BaseOperator,
    Context,
    has_dag,
    is_made_from_mapped,
    mapped_references,
    template_starts,
)

__all__ = ["TableTask", "with_readers"]

_LOCATIONS = ("table_uri", "target_uri", "inventory")
"""The arguments of operators that are locations of the table's store."""


class TableTask(BaseOperator):
    """A task on one table.

    Its result is a dictionary. Each value of it is an XCom of its own as well, so that
    ``task.output["version"]`` is the version; ``multiple_outputs=False`` leaves these out.

    The last statement of an operator's ``__init__`` is ``self.check_arguments()``.

    :param table_uri: the table's absolute path or URI; ``s3://<connection>@<bucket>/…`` names the
        connection as well, as Airflow's ``ObjectStoragePath`` does. (templated)
    :param delta_conn_id: the connection with the credentials of the table's store; None: the
        default connection of the URI's scheme. (templated)
    :param commit_owner_conn_id: the connection of the SQL commit owner, for managed tables; None:
        ``delta_commit_owner_default`` where that exists, else what the environment says. (templated)
    :param allowed_outside: locations outside of the table below which it may read files that its log names,
        as a shallow clone has them: a list, or a text with commas. Those of the connection count as well.
        (templated)
    """

    template_fields: Sequence[str] = (
        "table_uri",
        "delta_conn_id",
        "commit_owner_conn_id",
        "allowed_outside",
    )
    ui_color = "#d7ecf3"

    arguments: ClassVar[Mapping[str, Reader]] = {
        "table_uri": as_required_location,
        "delta_conn_id": as_text,
        "commit_owner_conn_id": as_text,
        "allowed_outside": as_allowed_locations,
    }
    """By its name the reader of each argument."""

    exclusive: ClassVar[Sequence[tuple[str, str]]] = ()
    """Arguments of which at most one may be given."""

    def __init__(
        self,
        *,
        table_uri: str,
        delta_conn_id: str | None = None,
        commit_owner_conn_id: str | None = None,
        allowed_outside: Sequence[str] | str | None = None,
        multiple_outputs: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(multiple_outputs=multiple_outputs, **kwargs)
        self.table_uri = table_uri
        self.delta_conn_id = delta_conn_id
        self.commit_owner_conn_id = commit_owner_conn_id
        self.allowed_outside = allowed_outside

    @classmethod
    def partial(cls, **kwargs: Any) -> Any:
        """As every operator's: the common arguments of a mapped task, which are checked here."""
        given = {name: value for name, value in kwargs.items() if name in cls.arguments}
        with _named(cls, kwargs.get("task_id")):
            check_arguments(cls, given, starts=template_starts(kwargs.get("dag")))
        return super().partial(**kwargs)

    @classmethod
    def check_together(cls, known: Mapping[str, Any]) -> None:
        """Check arguments that depend on each other.

        :param known: what the arguments mean, by name; without those that aren't rendered yet.
        :raises ArgumentError: they don't go together.
        """

    @classmethod
    def spark_arguments(cls, given: Mapping[str, Any]) -> Sequence[str]:  # noqa: ARG003
        """The arguments for which the task needs Spark for sure, as they are written; none for most tasks.

        :param given: the arguments by name, as far as they are given yet, with templates.
        """
        return ()

    def check_arguments(self) -> None:
        """Check the arguments that are written in the DAG file.

        :raises ArgumentError: one makes no sense.
        """
        # An instance of a mapped task is made when it is run, and checked when it is rendered.
        if not is_made_from_mapped(self):
            self._check(template_starts(self.dag if has_dag(self) else None))

    def argument(self, name: str) -> Any:
        """What an argument means, by its reader.

        :raises ArgumentError: it makes no sense.
        """
        return self.arguments[name](getattr(self, attribute_of(name)), name=name)

    def hook(self) -> DeltaHook:
        """The way to the table, by what the connections say now.

        A connection that a location names becomes ``delta_conn_id``, and the location what it is without:
        Spark and other tools that get it from XCom know no connections.

        :raises AirflowFailException: the locations and ``delta_conn_id`` name different connections.
        """
        found: list[str | None] = []
        for name in _LOCATIONS:
            location = getattr(self, name, None)
            if isinstance(location, str):
                connection_id, uri = split_connection(location)
                setattr(self, name, uri)
                found.append(connection_id)
        self.delta_conn_id = one_connection(self.delta_conn_id, *found)
        allowed_outside = self.argument("allowed_outside")
        return DeltaHook(self.delta_conn_id, self.commit_owner_conn_id, allowed_outside)

    def _do_render_template_fields(
        self,
        parent: Any,
        template_fields: Iterable[str],
        context: Context,
        jinja_env: Any,
        seen_oids: set[int],
    ) -> None:
        """Render the arguments, as Airflow does for mapped tasks as well, and check them.

        :raises ArgumentError: a template has rendered to nothing, or to what makes no sense.
        """
        sources = {name: getattr(self, attribute_of(name)) for name in self.arguments}
        if is_made_from_mapped(self):
            references = mapped_references(self)
            sources |= {name: value for name, value in references.items() if name in sources}
        # `optional` renders by the task, which a context made by hand, in a test, need not name.
        context.setdefault("task", self)
        super()._do_render_template_fields(parent, template_fields, context, jinja_env, seen_oids)
        if parent is not self:
            return
        with _named(type(self), self.task_id):
            for name, source in sources.items():
                rendered = getattr(self, attribute_of(name))
                value = rendered_argument(source, rendered, name=name)
                if value is not rendered:
                    setattr(self, attribute_of(name), value)
        self._check(None)

    def _check(self, starts: Iterable[str] | None) -> None:
        given = {name: getattr(self, attribute_of(name)) for name in self.arguments}
        with _named(type(self), self.task_id):
            check_arguments(type(self), given, starts=starts)


def with_readers(base: type[TableTask], **readers: Reader) -> Mapping[str, Reader]:
    """The arguments of an operator: those that it shares with another, and its own.

    :param base: the operator that it extends.
    :param readers: by its name the reader of each argument of its own.
    """
    return {**base.arguments, **readers}


@contextmanager
def _named(kind: type[TableTask], task_id: str | None) -> Iterator[None]:
    """Put the task in front of the message of an `ArgumentError`."""
    try:
        yield
    except ArgumentError as error:
        raise ArgumentError(f"{kind.__name__} {task_id!r}: {error}") from None
