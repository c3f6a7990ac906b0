"""`TableTask`, the base class of all operators and sensors: a table, connections and argument checks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

from airflow_delta.hooks.delta import DeltaHook
from airflow_delta.hooks.failures import ArgumentError
from airflow_delta.hooks.table_locations import one_connection, split_connection
from airflow_delta.operators.arguments import attribute_of, check_arguments, rendered_argument
from airflow_delta.operators.lineage.task import LineageTask
from airflow_delta.operators.template_values import (
    Reader,
    as_allowed_locations,
    as_required_location,
    as_text,
)
from airflow_delta.version_compat import (
    Context,
    has_dag,
    is_made_from_mapped,
    mapped_references,
    template_starts,
)

__all__ = ["TableTask", "with_readers"]

_LOCATIONS = ("table_uri", "target_uri", "inventory", "source_uri")
"""The arguments that are locations in the table's store."""


class TableTask(LineageTask):
    """A task on one table.

    Its result is a dictionary. Each value is also an XCom, so that ``task.output["version"]`` is
    the version; ``multiple_outputs=False`` disables this.

    The last statement of an operator's ``__init__`` must be ``self.check_arguments()``.

    :param table_uri: the table's absolute path or URI; ``s3://<connection>@<bucket>/…`` also names the
        connection, as in Airflow's ``ObjectStoragePath``. (templated)
    :param delta_conn_id: the connection with the credentials of the table's store; None: the
        default connection of the URI's scheme. (templated)
    :param commit_owner_conn_id: the connection of the SQL commit owner, for managed tables; None:
        ``delta_commit_owner_default`` if it exists, else the environment variable
        ``AIRFLOW_DELTA_COMMIT_OWNER_URL``. (templated)
    :param allowed_outside: locations outside of the table below which it may read files that its log names,
        for example files of a shallow clone: a list, or a text with commas. They are added to those of the
        connection. (templated)
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
    """The reader of each argument, by name."""

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
        """Create mapped tasks, and check their common arguments."""
        given = {name: value for name, value in kwargs.items() if name in cls.arguments}
        with _named(cls, kwargs.get("task_id")):
            check_arguments(cls, given, starts=template_starts(kwargs.get("dag")))
        return super().partial(**kwargs)

    @classmethod
    def check_together(cls, known: Mapping[str, Any]) -> None:
        """Check arguments that depend on each other.

        :param known: the parsed arguments by name, without those that aren't rendered yet.
        :raises ArgumentError: they contradict each other.
        """

    @classmethod
    def spark_arguments(cls, given: Mapping[str, Any]) -> Sequence[str]:  # noqa: ARG003
        """The arguments, as text, because of which the task certainly needs Spark; usually none.

        :param given: the arguments by name, with templates, as far as they are known.
        """
        return ()

    def check_arguments(self) -> None:
        """Check the arguments in the DAG file.

        :raises ArgumentError: one is invalid.
        """
        # An instance of a mapped task is created at run time, and checked after rendering.
        if not is_made_from_mapped(self):
            self._check(template_starts(self.dag if has_dag(self) else None))

    def argument(self, name: str) -> Any:
        """Parse an argument with its reader.

        :raises ArgumentError: it is invalid.
        """
        return self.arguments[name](getattr(self, attribute_of(name)), name=name)

    def hook(self) -> DeltaHook:
        """Create the hook for the table.

        If a location names a connection, it is removed from the location and becomes
        ``delta_conn_id``, because Spark, and other tools that get the location from XCom, don't
        support connections.

        :raises TableFailure: the locations and ``delta_conn_id`` name different connections.
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
        hook = DeltaHook(self.delta_conn_id, self.commit_owner_conn_id, allowed_outside)
        # The task reports what it reads and writes itself, in more detail.
        hook.collects_lineage = False
        return hook

    def _do_render_template_fields(
        self,
        parent: Any,
        template_fields: Iterable[str],
        context: Context,
        jinja_env: Any,
        seen_oids: set[int],
    ) -> None:
        """Render the arguments and check them; Airflow calls this for mapped tasks as well.

        :raises ArgumentError: a template has rendered to nothing, or to an invalid value.
        """
        sources = {name: getattr(self, attribute_of(name)) for name in self.arguments}
        if is_made_from_mapped(self):
            references = mapped_references(self)
            sources |= {name: value for name, value in references.items() if name in sources}
        # `optional` needs the task, which the context of a test may lack.
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
    """The arguments of an operator: those of its base class, and its own.

    :param base: the operator that it extends.
    :param readers: the reader of each additional argument, by name.
    """
    return {**base.arguments, **readers}


@contextmanager
def _named(kind: type[TableTask], task_id: str | None) -> Iterator[None]:
    """Put the task in front of the message of an `ArgumentError`."""
    try:
        yield
    except ArgumentError as error:
        raise ArgumentError(f"{kind.__name__} {task_id!r}: {error}") from None
