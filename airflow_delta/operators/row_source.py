"""`RowSourceTask`, the base class of operators that write the rows of a source to a table."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from airflow_delta.hooks.delta import DeltaHook
from airflow_delta.hooks.failures import ArgumentError
from airflow_delta.hooks.table_locations import one_connection, split_connection
from airflow_delta.operators.arguments import is_certain
from airflow_delta.operators.pinned_version import triggering_versions
from airflow_delta.operators.spark_task import SparkTask
from airflow_delta.operators.table_task import with_readers
from airflow_delta.operators.template_values import (
    TRIGGERING_EVENT,
    as_pinned_version,
    as_required_location,
    as_text,
    as_texts,
    location,
)
from airflow_delta.version_compat import Context

__all__ = ["RowSourceTask"]

_KINDS = ("source_uri", "source_query", "source_function")
_BELONGS_TO = {
    "source_format": ("source_uri",),
    "source_schema": ("source_uri",),
    "source_options": ("source_uri",),
    "source_arguments": ("source_function",),
    "source_tables": ("source_query", "source_function"),
}
"""Arguments, and those of which each needs one."""


def _as_tables(value: Any, *, name: str) -> dict[str, tuple[str, int | str]] | None:
    """Tables by name, each with its URI and version; None for none."""
    if value is None:
        return None
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise ArgumentError(
            f'{name}: expected a dictionary such as {{"orders": ("s3://lake/orders", 24)}}, found {value!r}'
        )
    return {key: _as_table(item, name=f"{name}[{key!r}]") for key, item in value.items()}


def _as_table(value: Any, *, name: str) -> tuple[str, int | str]:
    if isinstance(value, Mapping):
        value = (value.get("table_uri"), value.get("version"))
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise ArgumentError(
            f"{name}: expected the URI and the version of a table, or a dictionary with table_uri and "
            f"version; found {value!r}"
        )
    version = as_pinned_version(value[1], name=name)
    if version is None:
        raise ArgumentError(f"{name}: expected a pinned version, found None")
    return as_required_location(value[0], name=name), version


def _as_json_object(value: Any, *, name: str) -> dict[str, Any] | None:
    """A dictionary of JSON values; None for none."""
    if value is None:
        return None
    try:
        found = json.loads(json.dumps(value))
    except (TypeError, ValueError):
        found = None
    if not isinstance(found, dict):
        raise ArgumentError(f"{name}: expected a dictionary of JSON values, found {value!r}")
    return found


class RowSourceTask(SparkTask):
    """A task that has Spark write the rows of a source to a table.

    The source is exactly one of ``source_uri``, ``source_query`` and ``source_function``.

    :param source_uri: the path or URI of files, may have wildcards. (templated)
    :param source_format: their format, one that Spark reads, such as ``json``; default ``parquet``.
        (templated)
    :param source_schema: their columns, as in ``CREATE TABLE``; None: Spark finds out. (templated)
    :param source_options: options of Spark's reader. (templated)
    :param source_query: a SQL query, or the path of a file ``….sql`` with one. (templated)
    :param source_function: a Python function as ``module:name``, which gets the Spark session, and returns
        a DataFrame. (templated)
    :param source_arguments: its other arguments by name, as JSON values. (templated)
    :param source_tables: the tables for query or function: for each name, the URI and the version of a
        table, or a dictionary with ``table_uri`` and ``version`` such as the result of
        `TimeTravelSnapshotOperator`. The version may be ``triggering_event``: that of the asset event that
        has started the DAG run, or the newest if none has. They are temporary views of these names.
        (templated)
    """

    template_fields: Sequence[str] = (
        *SparkTask.template_fields,
        *_KINDS,
        *_BELONGS_TO,
    )
    template_ext: Sequence[str] = (".sql",)
    template_fields_renderers = {"source_query": "sql"}  # noqa: RUF012 - as Airflow declares it

    arguments = with_readers(
        SparkTask,
        source_uri=location,
        source_format=as_text,
        source_schema=as_text,
        source_options=as_texts,
        source_query=as_text,
        source_function=as_text,
        source_arguments=_as_json_object,
        source_tables=_as_tables,
    )
    exclusive = tuple((one, other) for one in _KINDS for other in _KINDS if one < other)

    def __init__(
        self,
        *,
        source_uri: str | None = None,
        source_format: str | None = None,
        source_schema: str | None = None,
        source_options: Mapping[str, Any] | None = None,
        source_query: str | None = None,
        source_function: str | None = None,
        source_arguments: Mapping[str, Any] | None = None,
        source_tables: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.source_uri = source_uri
        self.source_format = source_format
        self.source_schema = source_schema
        self.source_options = source_options
        self.source_query = source_query
        self.source_function = source_function
        self.source_arguments = source_arguments
        self.source_tables = source_tables

    @classmethod
    def check_together(cls, known: Mapping[str, Any]) -> None:
        """Check that there is a source, and that the other arguments belong to it.

        :raises ArgumentError: there is none, or they don't.
        """
        given = {name for name in _KINDS if known.get(name, "") is not None}
        if not given:
            raise ArgumentError(f"no source of rows is given; give one of {', '.join(_KINDS)}")
        for name, kinds in _BELONGS_TO.items():
            if known.get(name) is not None and given.isdisjoint(kinds):
                raise ArgumentError(f"{name} is given without {' or '.join(kinds)}")

    @classmethod
    def spark_arguments(cls, given: Mapping[str, Any]) -> Sequence[str]:
        """The source: Spark reads it."""
        return [name for name in _KINDS if is_certain(given.get(name))][:1]

    def hook(self) -> DeltaHook:
        """Create the hook for the table; it has the connection that ``source_tables`` name, too.

        :raises TableFailure: the locations and ``delta_conn_id`` name different connections.
        """
        tables = self.argument("source_tables") or {}
        found = [split_connection(uri)[0] for uri, _ in tables.values()]
        if any(found):
            self.delta_conn_id = one_connection(self.delta_conn_id, *found)
            self.source_tables = {
                name: (split_connection(uri)[1], version) for name, (uri, version) in tables.items()
            }
        return super().hook()

    def pin_sources(self, hook: DeltaHook, context: Context) -> None:
        """Replace ``triggering_event`` among the versions of ``source_tables``.

        :param hook: gives access to the tables.
        :param context: the context of the try.
        :raises ArgumentError: an asset event has an invalid version.
        :raises DeltaError: a table can't be read.
        """
        tables = self.argument("source_tables") or {}
        unknown = {uri for uri, version in tables.values() if version == TRIGGERING_EVENT}
        if unknown:
            found = triggering_versions(hook, context, sorted(unknown))
            self.source_tables = {
                name: (uri, found[uri] if version == TRIGGERING_EVENT else version)
                for name, (uri, version) in tables.items()
            }

    def source(self) -> dict[str, Any]:
        """The source, as `airflow_delta.hooks.spark.row_sources.job_source` takes it."""
        names = (*_KINDS, *_BELONGS_TO)
        given = {name.removeprefix("source_"): self.argument(name) for name in names}
        return {name: value for name, value in given.items() if value is not None}
