"""``airflow-delta diff URI FROM [TO]``: what differs between two versions of a table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import click

from airflow_delta.cli.files import file_entries
from airflow_delta.cli.options import VERSION_NUMBER, json_option, subcommand
from airflow_delta.cli.output import print_json, print_line
from airflow_delta.cli.target import Target, table_options
from airflow_delta.engine.model.sizes import size_text

__all__ = ["diff"]


@subcommand(
    "diff",
    help="Compare two versions: files, rows, schema, properties and protocol. TO is the newest by default.",
    is_long=True,
)
@table_options()
@click.argument("from_version", metavar="FROM", type=VERSION_NUMBER)
@click.argument("to_version", metavar="[TO]", type=VERSION_NUMBER, required=False)
@click.option("--files", "with_files", is_flag=True, help="Also list the files that differ.")
@json_option
def diff(
    target: Target,
    *,
    from_version: int,
    to_version: int | None,
    with_files: bool,
    as_json: bool,
) -> None:
    """Print the difference.

    Raises:
        DeltaError: the table or a version can't be read.
    """
    from airflow_delta.engine.snapshot.difference import compare_versions

    table = target.open()
    difference = compare_versions(table.snapshot(from_version), table.snapshot(to_version))
    facts = {"table_uri": target.uri, **difference.to_dict()}
    if with_files:
        for name, files in (("added", difference.added), ("removed", difference.removed)):
            chunks = file_entries(files.adds)
            facts[f"{name}_file_list"] = [entry for entries in chunks for entry in entries]
    if as_json:
        print_json(facts)
        return
    for line in _lines(facts):
        print_line(line)


def _lines(facts: dict[str, Any]) -> Iterator[str]:
    """The difference for people; what doesn't differ has no line."""
    yield f"version {facts['from_version']} -> {facts['to_version']}"
    ids = facts["table_id"]
    if ids["before"] != ids["after"]:
        yield f"the table was replaced: its id is {ids['after']}, and was {ids['before']}"
    yield ""
    for name, sign in (("added", "+"), ("removed", "-")):
        files = facts[f"files_{name}"]
        yield (
            f"files {name:<8} {files['files']:,}: {size_text(files['bytes'])}, "
            f"rows: {_count(files['rows'])}"
        )
        for entry in facts.get(f"{name}_file_list", ()):
            yield f"  {sign} {entry['path']}"
    yield f"files in both  {facts['files_in_both']:,}"
    if facts["files_with_other_deletion_vector"]:
        yield (
            f"of these files, {facts['files_with_other_deletion_vector']:,} have only another deletion "
            "vector"
        )
    rows = facts["rows"]
    yield f"rows           {_count(rows['before'])} -> {_count(rows['after'])}"
    yield from _section("schema", map(_schema_line, facts["schema"]))
    partition = facts["partition_columns"]
    if partition["before"] != partition["after"]:
        before, after = (", ".join(partition[name]) or "-" for name in ("before", "after"))
        yield from _section("partition columns", [f"{before} -> {after}"])
    yield from _section("properties", _property_lines(facts["properties"]))
    yield from _section("protocol", _protocol_lines(facts["protocol"]))


def _section(name: str, lines: Iterable[str]) -> Iterator[str]:
    found = list(lines)
    if found:
        yield ""
        yield name
        yield from (f"  {line}" for line in found)


def _schema_line(change: dict[str, Any]) -> str:
    match change["change"]:
        case "added":
            return f"+ {change['column']}: {change['after']}"
        case "dropped":
            return f"- {change['column']}: {change['before']}"
        case kind:
            key = "" if change["key"] is None else f" {change['key']!r}"
            return (
                f"~ {change['column']}: {kind}{key}: {_value(change['before'])} -> "
                f"{_value(change['after'])}"
            )


def _property_lines(properties: dict[str, Any]) -> Iterator[str]:
    for name, value in properties["added"].items():
        yield f"+ {name} = {value}"
    for name, value in properties["removed"].items():
        yield f"- {name} = {value}"
    for name, values in properties["changed"].items():
        yield f"~ {name} = {values['before']} -> {values['after']}"


def _protocol_lines(protocol: dict[str, Any]) -> Iterator[str]:
    for side in ("reader_version", "writer_version"):
        values = protocol[side]
        if values["before"] != values["after"]:
            yield f"~ {side.replace('_', ' ')} {values['before']} -> {values['after']}"
    yield from (f"+ {feature}" for feature in protocol["features_added"])
    yield from (f"- {feature}" for feature in protocol["features_removed"])


def _count(rows: int | None) -> str:
    return "unknown" if rows is None else f"{rows:,}"


def _value(value: Any) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case _:
            return str(value)
