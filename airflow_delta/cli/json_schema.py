"""``airflow-delta json-schema [SUBCOMMAND]``: the JSON Schema of what ``--json`` prints.

Members may be added in later versions, so the schema allows others than those that it lists.
"""

from __future__ import annotations

import inspect
import types
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

import click

from airflow_delta.cli.options import subcommand
from airflow_delta.cli.output import print_json
from airflow_delta.cli.outputs import reading, writing

__all__ = ["OUTPUTS", "all_schemas", "json_schema", "schema_of"]

OUTPUTS: dict[str, type] = {
    "describe": reading.Description,
    "history": reading.Commit,
    "files": reading.File,
    "scan": reading.ScanReport,
    "diff": reading.Difference,
    "commits": reading.Commits,
    "doctor": reading.Check,
    "health": reading.Health,
    "checkpoint": writing.CheckpointReport,
    "compact-log": writing.CompactionReport,
    "backfill": writing.BackfillReport,
    "cleanup": writing.CleanupReport,
    "convert": writing.ConvertReport,
    "alter": writing.CommitReport,
    "optimize": writing.OptimizeReport,
    "vacuum": writing.VacuumReport,
    "restore": writing.RestoreReport,
    "drop-feature": writing.DropFeatureReport,
}
"""The type of what a subcommand prints; of each line, if it prints several."""


_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_SIMPLE = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}


@subcommand(
    "json-schema",
    help="Print the JSON Schema of what a subcommand prints with --json; without SUBCOMMAND those of all.",
)
@click.argument("name", metavar="[SUBCOMMAND]", required=False, type=click.Choice(list(OUTPUTS)))
def json_schema(name: str | None) -> None:
    """Print the schema."""
    schema = all_schemas() if name is None else schema_of(OUTPUTS[name])
    print_json({"$schema": _DIALECT, **schema})


def all_schemas() -> dict[str, Any]:
    """The schemas of all subcommands, and of the lines on standard error, as ``$defs``."""
    outputs = {**OUTPUTS, "error": writing.ErrorLine, "warning": writing.WarningLine}
    return {"$defs": {name: schema_of(output) for name, output in outputs.items()}}


def schema_of(type_: Any, *, is_closed: bool = False) -> dict[str, Any]:
    """Make the JSON Schema of a type.

    Args:
        type_: a type of ``outputs``.
        is_closed: whether other members than the listed ones are forbidden.
    """
    origin, arguments = get_origin(type_), get_args(type_)
    if is_typeddict(type_):
        return _object(type_, is_closed=is_closed)
    if type_ is Any:
        return {}
    if origin in (Union, types.UnionType):
        return {"anyOf": [schema_of(part, is_closed=is_closed) for part in arguments]}
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin is list:
        return {"type": "array", "items": schema_of(arguments[0], is_closed=is_closed)}
    if origin is dict:
        values = schema_of(arguments[1], is_closed=is_closed)
        return {"type": "object", "additionalProperties": values}
    return {"type": _SIMPLE[type_]}


def _object(type_: Any, *, is_closed: bool) -> dict[str, Any]:
    members = get_type_hints(type_)
    # Those of `TypedDict` itself are about dictionaries.
    description = inspect.cleandoc(type_.__doc__ or "") if "__doc__" in vars(type_) else ""
    return {
        **({"description": description} if description else {}),
        "type": "object",
        "properties": {
            name: schema_of(member, is_closed=is_closed) for name, member in members.items()
        },
        "required": sorted(type_.__required_keys__),
        **({"additionalProperties": False} if is_closed else {}),
    }
