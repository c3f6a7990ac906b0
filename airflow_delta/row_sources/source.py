"""Sources of rows: what a task writes to a table, or merges into it.

==================  =================================================================================
`FileSource`        files in a format of Spark, with options of its reader
`QuerySource`       a SQL query, over pinned versions of Delta tables as views
`FunctionSource`    a Python function that returns a DataFrame; it finds the same views in its session
==================  =================================================================================

A task sends the description to its Spark job as JSON (`source_parameter`, `parse_source`);
`airflow_delta.spark.sources` makes the DataFrame. So this module needs no Spark.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeAlias

from airflow_delta.engine.errors import InvalidArgumentError

__all__ = [
    "FileSource",
    "FunctionSource",
    "PinnedTable",
    "QuerySource",
    "RowSource",
    "parse_source",
    "source_locations",
    "source_parameter",
]

_VIEW = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_FUNCTION = re.compile(r"([^\W\d]\w*(?:\.[^\W\d]\w*)*):([^\W\d]\w*)")


@dataclass(frozen=True, slots=True)
class PinnedTable:
    """A version of a Delta table.

    Attributes:
        table_uri: the table.
        version: the version.
        allowed_outside: locations outside of the table below which it may read files.
    """

    table_uri: str
    version: int
    allowed_outside: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FileSource:
    """Files in a format of Spark.

    Attributes:
        uri: the path or URI of a file or directory; may have wildcards.
        format: the format, such as ``json``.
        schema: their columns, as in ``CREATE TABLE``; None: Spark infers them.
        options: the options of Spark's reader.

    Raises:
        InvalidArgumentError: the format is ``delta``, which needs another source.
    """

    uri: str
    format: str = "parquet"
    schema: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.format.lower() == "delta":
            raise InvalidArgumentError(
                "format 'delta' isn't read by path: use a query such as SELECT * FROM source, over a "
                "pinned version of the table"
            )


@dataclass(frozen=True, slots=True)
class QuerySource:
    """A SQL query.

    Attributes:
        query: the query.
        tables: the tables that it may use as views, by name.

    Raises:
        InvalidArgumentError: a name can't be that of a view.
    """

    query: str
    tables: Mapping[str, PinnedTable] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_views(self.tables)


@dataclass(frozen=True, slots=True)
class FunctionSource:
    """A Python function that returns a DataFrame.

    Attributes:
        function: the function as ``module:name``; its first argument is the Spark session.
        arguments: its other arguments, by name.
        tables: the tables that it finds as views in the session, by name.
        python_path: a directory in which the driver looks for the module as well.

    Raises:
        InvalidArgumentError: a name can't be that of a view or of a function.
    """

    function: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    tables: Mapping[str, PinnedTable] = field(default_factory=dict)
    python_path: str | None = None

    def __post_init__(self) -> None:
        _check_views(self.tables)
        if not _FUNCTION.fullmatch(self.function):
            raise InvalidArgumentError(
                f"the function {self.function!r}: expected a module and a name, such as lake.jobs:orders"
            )

    @property
    def module(self) -> str:
        """The module with the function."""
        return self.function.partition(":")[0]

    @property
    def name(self) -> str:
        """The name of the function in its module."""
        return self.function.partition(":")[2]


RowSource: TypeAlias = FileSource | QuerySource | FunctionSource

_KINDS: Mapping[str, type[FileSource | QuerySource | FunctionSource]] = {
    "uri": FileSource,
    "query": QuerySource,
    "function": FunctionSource,
}
"""The classes of sources, by the attribute that only they have."""

_TYPES: Mapping[str, tuple[type, ...]] = {
    "uri": (str,),
    "format": (str,),
    "schema": (str, type(None)),
    "options": (dict,),
    "query": (str,),
    "tables": (dict,),
    "function": (str,),
    "arguments": (dict,),
    "python_path": (str, type(None)),
}


def source_locations(source: RowSource) -> tuple[str, ...]:
    """The locations that Spark reads for a source, as far as they are known."""
    if isinstance(source, FileSource):
        return (source.uri,)
    return tuple(table.table_uri for table in source.tables.values())


def source_parameter(source: RowSource) -> dict[str, Any]:
    """Describe a source as JSON values."""
    found = {field_.name: getattr(source, field_.name) for field_ in fields(source)}
    if "tables" in found:
        found["tables"] = {
            name: {
                "table_uri": table.table_uri,
                "version": table.version,
                "allowed_outside": list(table.allowed_outside),
            }
            for name, table in found["tables"].items()
        }
    return {name: value for name, value in found.items() if value not in (None, {})}


def parse_source(value: Mapping[str, Any]) -> RowSource:
    """Parse the result of `source_parameter`.

    Raises:
        InvalidArgumentError: it describes no source.
    """
    kinds = [kind for name, kind in _KINDS.items() if name in value]
    known = {field_.name for kind in kinds for field_ in fields(kind)}
    if len(kinds) != 1 or not known.issuperset(value):
        raise _invalid(f"expected one of {', '.join(_KINDS)}, with its options", value)
    for name, item in value.items():
        if not isinstance(item, _TYPES[name]):
            raise _invalid(f"{name} has the wrong type", value)
    given = dict(value)
    if "tables" in given:
        given["tables"] = {name: _pinned(table) for name, table in given["tables"].items()}
    return kinds[0](**given)


def _pinned(value: Any) -> PinnedTable:
    match value:
        case {"table_uri": str(uri), "version": int(version), "allowed_outside": list(allowed)}:
            return PinnedTable(uri, version, tuple(allowed))
    raise _invalid("expected table_uri, version and allowed_outside of each table", value)


def _check_views(tables: Mapping[str, PinnedTable]) -> None:
    for name in tables:
        if not _VIEW.fullmatch(name):
            raise InvalidArgumentError(
                f"the table {name!r}: expected a name of letters, digits and underscores, which the query "
                "uses for it"
            )
    if len({name.lower() for name in tables}) < len(tables):
        raise InvalidArgumentError(
            f"the tables {', '.join(tables)}: SQL ignores case, so two have the same name"
        )


def _invalid(reason: str, value: Any) -> InvalidArgumentError:
    return InvalidArgumentError(f"parameter 'source': {reason}; found {value!r}")
