"""Find the datasets that a task reads and writes: before it ends by its arguments, then by its result.

A rule is the method ``datasets`` of an operator. Without a result, it returns what the task is going to
read and write. With a result, an output is what the task has committed or copied, at the version of the
result; a task that changes nothing has none. A retry that finds the work done by an earlier try reports the
commits of that try.

Maintenance such as a vacuum or a checkpoint leaves the rows of a table as they are, so that the table is an
input. An optimized table is an input and an output: the same rows, at two versions.

The columns of an output come from those of the inputs, or of the version before, as far as the arguments of
the task say so for certain.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from airflow_delta.hooks.lineage.datasets import (
    Lineage,
    LineageDataset,
    NewValues,
    RowChanges,
    StateChange,
    WrittenData,
)
from airflow_delta.operators.lineage.written_data import Result, written_data

__all__ = [
    "Result",
    "alters_table",
    "alters_table_if",
    "appends_changes",
    "converts_directory",
    "copies_version",
    "deletes_rows",
    "merges_rows",
    "optimizes_table",
    "reads_table",
    "restores_table",
    "updates_rows",
    "writes_rows",
]

_WILDCARD = re.compile(r"[*?\[{]")
_WHOLE_TABLE = re.compile(r"\s*select\s+\*\s+from\s+([a-z_]\w*)\s*;?\s*", re.ASCII | re.IGNORECASE)
"""A query whose rows are certainly those of one table, without any change."""


def reads_table(task: Any, result: Result) -> Lineage:
    """A task that reads a version of its table, or maintains it without a change of its rows."""
    version = _number(getattr(task, "version", None)) if result is None else result["version"]
    return Lineage(inputs=(LineageDataset(task.table_uri, version),))


def alters_table(task: Any, result: Result) -> Lineage:
    """A task that commits a change of its table's metadata or protocol."""
    return Lineage(outputs=(_committed(task, result, change="ALTER"),))


def alters_table_if(entry: str) -> Callable[[Any, Result], Lineage]:
    """A task that alters its table only if an entry of its result is true.

    :param entry: the name of the entry.
    """

    def datasets(task: Any, result: Result) -> Lineage:
        """The table, as an output if it was altered."""
        if result is None or result[entry]:
            return alters_table(task, result)
        if (earlier := task.earlier_commit) is None:
            return reads_table(task, result)
        return Lineage(outputs=(LineageDataset(task.table_uri, earlier.version, change="ALTER"),))

    return datasets


def optimizes_table(task: Any, result: Result) -> Lineage:
    """A task that writes the rows of its table to other files."""
    if result is None:
        return Lineage((LineageDataset(task.table_uri),), (LineageDataset(task.table_uri),))
    read = LineageDataset(task.table_uri, result["plan"]["version"])
    earlier = task.earlier_commit
    if not result["commits"] and earlier is not None:
        before = LineageDataset(task.table_uri, earlier.first_version - 1)
        output = LineageDataset(task.table_uri, earlier.version, copied_from=before)
        return Lineage((before,), (output,))
    if not result["commits"]:
        return Lineage((read,))
    written = WrittenData(size=result["bytes_added"], files=result["files_added"])
    return Lineage((read,), (_committed(task, result, written=written, copied_from=read),))


def restores_table(task: Any, result: Result) -> Lineage:
    """A task that makes an earlier version of its table the newest one."""
    if result is None:
        read = LineageDataset(task.table_uri, _number(task.version))
        return Lineage((read,), (LineageDataset(task.table_uri),))
    read = LineageDataset(task.table_uri, result["restored_version"])
    if not result["committed"]:
        return Lineage((read,))
    written = WrittenData(size=result["bytes_restored"], files=result["files_restored"])
    output = _committed(task, result, change="OVERWRITE", written=written, copied_from=read)
    return Lineage((read,), (output,))


def converts_directory(task: Any, result: Result) -> Lineage:
    """A task that makes a directory a table."""
    if result is None:
        return Lineage(outputs=(LineageDataset(task.table_uri),))
    if not (result["converted"] or result["repeated"]):
        version = result["version"]
        if version is None:
            return Lineage((_files(task.table_uri, "parquet"),))
        return Lineage((LineageDataset(task.table_uri, version),))
    written = WrittenData(result["rows"], result["bytes"], result["files"])
    return Lineage(outputs=(_committed(task, result, change="CREATE", written=written),))


def updates_rows(task: Any, result: Result) -> Lineage:
    """A task that updates rows of its table."""
    changes = RowChanges(
        (NewValues(task.argument("set")),), is_of_all_rows=_is_true(task.argument("condition"))
    )
    return _changes_rows(task, result, changes)


def deletes_rows(task: Any, result: Result) -> Lineage:
    """A task that deletes rows of its table; the result of a dry run has no commit."""
    if result is not None and not result.get("committed"):
        return reads_table(task, result)
    is_truncated = result is not None and _is_true(task.condition)
    change: StateChange | None = "TRUNCATE" if is_truncated else None
    output = _committed(
        task,
        result,
        change=change,
        written=written_data(result),
        row_changes=None if is_truncated else RowChanges(),
    )
    return Lineage(outputs=(output,))


def merges_rows(task: Any, result: Result) -> Lineage:
    """A task that merges the rows of its source into its table."""
    visible = {"matched": (True, True), "not_matched": (False, True)}
    clauses = [
        NewValues(clause.get("values"), *visible.get(clause["when"], (True, False)))
        for clause in task.argument("clauses")
        if clause["then"] != "delete"
    ]
    changes = RowChanges(
        tuple(clauses),
        _whole_source(task),
        task.argument("source_alias") or "source",
        task.argument("target_alias") or "target",
        # Otherwise the table may have got columns that its version before didn't have.
        keeps_rows=not task.argument("merge_schema"),
    )
    return Lineage(_sources(task), _changes_rows(task, result, changes).outputs)


def writes_rows(task: Any, result: Result) -> Lineage:
    """A task that writes the rows of its source to its table."""
    sources = _sources(task)
    if result is not None and not result["committed"]:
        return Lineage(sources)
    output = _committed(
        task,
        result,
        change=None if result is None else _change_of_write(task, result),
        written=written_data(result),
        copied_from=_whole_source(task),
    )
    return Lineage(sources, (output,))


def copies_version(task: Any, result: Result) -> Lineage:
    """A task that pins a version of its table, and copies it if there is a target."""
    read = reads_table(task, result).inputs[0]
    if not task.target_uri:
        return Lineage((read,))
    if result is None:
        return Lineage((read,), (_target(task, task.target_uri),))
    version = result["target_version"]
    change: StateChange | None = None
    if version is not None:
        change = "CREATE" if version == 0 else "OVERWRITE"
    copy = replace(
        _target(task, result["target_uri"]),
        version=version,
        change=change,
        written=WrittenData(rows=result["target_num_rows"], files=result["target_num_files"]),
        copied_from=read,
    )
    deleted = (
        LineageDataset(uri, is_table=False, change="DROP") for uri in result["deleted_copies"]
    )
    return Lineage((read,), (copy, *deleted))


def appends_changes(task: Any, result: Result) -> Lineage:
    """A task that reads the changes of its table, and appends them if there is a target."""
    read = LineageDataset(task.table_uri, None if result is None else result["end_version"])
    if not task.target_uri:
        return Lineage((read,))
    if result is None:
        return Lineage((read,), (_target(task, task.target_uri),))
    version = result["target_version"]
    if version is None and not result["appended"]:
        return Lineage((read,))
    target = replace(
        _target(task, result["target_uri"]),
        version=version,
        change="CREATE" if version == 0 else None,
        written=WrittenData(rows=result["num_changes"]),
        copied_from=read,
    )
    return Lineage((read,), (target,))


def _changes_rows(task: Any, result: Result, changes: RowChanges) -> Lineage:
    if result is not None and not result["committed"]:
        return reads_table(task, result)
    output = _committed(task, result, written=written_data(result), row_changes=changes)
    return Lineage(outputs=(output,))


def _is_true(condition: Any) -> bool:
    """Whether a condition is certainly true for all rows."""
    return str(condition).strip().lower() == "true"


def _committed(
    task: Any,
    result: Result,
    *,
    change: StateChange | None = None,
    written: WrittenData | None = None,
    copied_from: LineageDataset | None = None,
    row_changes: RowChanges | None = None,
) -> LineageDataset:
    """The table as the task has committed it; without a result, as it is going to."""
    if result is None:
        return LineageDataset(task.table_uri)
    last = result.get("last_version")
    return LineageDataset(
        task.table_uri,
        result["version"] if last is None else last,
        change=change,
        written=written,
        copied_from=copied_from,
        row_changes=row_changes,
    )


def _change_of_write(task: Any, result: Mapping[str, Any]) -> StateChange | None:
    if result["version"] == 0:
        return "CREATE"
    is_whole = (
        task.argument("mode") == "overwrite"
        and task.argument("replace_where") is None
        and task.argument("partition_overwrite") == "static"
    )
    return "OVERWRITE" if is_whole else None


def _sources(task: Any) -> tuple[LineageDataset, ...]:
    """The files, or the pinned tables, that the rows come from."""
    uri, file_format = task.argument("source_uri"), task.argument("source_format") or "parquet"
    files = () if uri is None else (_files(_directory(uri), file_format),)
    tables = task.argument("source_tables") or {}
    return (*files, *(_pinned(*table) for table in tables.values()))


def _whole_source(task: Any) -> LineageDataset | None:
    """The table that a query reads unchanged; None if the query does more, or if there is none."""
    match = _WHOLE_TABLE.fullmatch(task.argument("source_query") or "")
    tables = {name.lower(): table for name, table in (task.argument("source_tables") or {}).items()}
    found = None if match is None else tables.get(match[1].lower())
    return None if found is None else _pinned(*found)


def _pinned(uri: str, version: int | str) -> LineageDataset:
    return LineageDataset(uri, _number(version))


def _target(task: Any, uri: str) -> LineageDataset:
    """The target of a task, in the format of its argument."""
    target_format = task.argument("target_format")
    return LineageDataset(uri) if target_format == "delta" else _files(uri, target_format)


def _files(uri: str, file_format: str) -> LineageDataset:
    """A directory of files that is no table."""
    # Spark ignores the case of formats.
    return LineageDataset(uri, is_table=False, file_format=file_format.lower())


def _directory(uri: str) -> str:
    """The part of a location before the first directory whose name has a wildcard."""
    match = _WILDCARD.search(uri)
    return uri if match is None else uri[: match.start()].rpartition("/")[0]


def _number(version: Any) -> int | None:
    """The version of an argument; None if it names none, such as ``triggering_event``."""
    return int(version) if str(version).isdecimal() else None
