"""Prepare the source of a task's rows for a Spark job."""

from __future__ import annotations

import sysconfig
from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_delta.hooks.delta import DeltaHook

if TYPE_CHECKING:
    from airflow_delta.row_sources.source import PinnedTable, RowSource

__all__ = ["job_source"]


def job_source(hook: DeltaHook, given: Mapping[str, Any]) -> RowSource:
    """Describe a source for a job, and make sure that the job can read its tables.

    Versions of managed tables are backfilled first, so that the job finds them wherever its driver runs.
    For a function the driver also looks in the directory where this worker has its module, such as the
    folder of the DAG.

    :param hook: gives access to the tables.
    :param given: the attributes of `FileSource`, `QuerySource` or `FunctionSource`, as far as they are
        known; ``tables`` has URI and version of each. No URI has a connection, which Spark doesn't know.
    :raises InvalidArgumentError: a name, the function or the format is invalid.
    :raises DeltaError: a version can't be backfilled.
    """
    from airflow_delta.row_sources.source import FileSource, FunctionSource, QuerySource

    found = dict(given)
    if "uri" in found:
        return FileSource(**found)
    tables = {
        name: _pinned(hook, uri, version)
        for name, (uri, version) in found.pop("tables", {}).items()
    }
    if "query" in found:
        return QuerySource(**found, tables=tables)
    source = FunctionSource(**found, tables=tables)
    return replace(source, python_path=_directory_of(source.module))


def _pinned(hook: DeltaHook, table_uri: str, version: int) -> PinnedTable:
    from airflow_delta.row_sources.source import PinnedTable

    hook.backfill_missing(table_uri, version)
    return PinnedTable(table_uri, version, tuple(hook.allowed_outside(table_uri)))


def _directory_of(module: str) -> str | None:
    """The directory where this process finds a module; None if every process of this Python does."""
    # The package at the top, because looking for a module in a package would import the package.
    try:
        spec = find_spec(module.partition(".")[0])
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    if spec.submodule_search_locations:
        found = next(iter(spec.submodule_search_locations))
    elif spec.has_location and spec.origin:
        found = spec.origin
    else:
        return None
    directory = Path(found).parent
    installed = {Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "platlib")}
    return None if directory in installed else str(directory)
