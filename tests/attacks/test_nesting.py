"""JSON and schemas that are nested deeply: every operation reads them, or refuses with a typed error."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import CorruptLogError, DeltaError, InvalidTableError
from airflow_delta.engine.model.schema_json import parse_schema
from tests.log_builder import PROTOCOL, add, commit_path, metadata

# Up to what Python's stack just holds, and from there on.
DEPTHS = [150, 600, 940, 970, 975, 980, 985, 990, 995, 1000, 5000, 200_000]

OPERATIONS: list[Callable[[DeltaTable], object]] = [
    lambda table: [table.snapshot().schema, table.snapshot().features, table.snapshot().domains],
    lambda table: table.snapshot().files(),
    lambda table: json.dumps([info.operation_parameters for info in table.history()]),
    lambda table: [info.to_dict() for info in table.history()],
    lambda table: table.check(depth="log").to_dict(),
    lambda table: table.changes(0),
    lambda table: table.compact_log(0),
    lambda table: table.vacuum(dry_run=True),
    lambda table: table.alter.set_comment("x", "a comment"),
    lambda table: table.alter.set_properties({"a": "b"}),
    lambda table: table.checkpoint(),
]


def _lists(depth: int) -> str:
    return "[" * depth + "]" * depth


def _objects(depth: int) -> str:
    return '{"a":' * depth + "1" + "}" * depth


def _column(type_: str, note: str = "1") -> str:
    field = f'{{"name":"x","type":{type_},"nullable":true,"metadata":{{"note":{note}}}}}'
    return f'{{"type":"struct","fields":[{field}]}}'


def _lines(place: str, depth: int) -> Iterator[list[str]]:
    """The lines of a table of which one place is nested."""
    protocol, schema = json.dumps(PROTOCOL), json.loads(_column('"long"'))
    definition = metadata(schema=schema)
    for nested in (_lists, _objects):
        deep = nested(depth)
        if place == "protocol":
            yield [protocol.replace("2}", f"{deep}}}"), json.dumps(definition)]
        elif place == "unknown action":
            yield [protocol, json.dumps(definition), f'{{"other":{deep}}}']
        elif place == "version":
            yield [protocol, json.dumps(definition), f'{{"txn":{{"appId":"a","version":{deep}}}}}']
        elif place == "commit info":
            info = f'{{"commitInfo":{{"operation":"W","operationParameters":{deep}}}}}'
            yield [info, protocol, json.dumps(definition)]
        elif place == "tags":
            line = json.dumps(add("a", tags="@")).replace('"@"', deep)
            yield [protocol, json.dumps(definition), line]
        elif place == "statistics":
            yield [protocol, json.dumps(definition), json.dumps(add("a", stats=deep))]
        elif place == "metadata of a column":
            definition["metaData"]["schemaString"] = _column('"long"', deep)
            yield [protocol, json.dumps(definition)]
        elif nested is _lists:
            type_ = '"long"'
            for _ in range(min(depth, 3000)):
                type_ = (
                    f'{{"type":"array","elementType":{type_},"containsNull":true}}'
                    if place == "arrays"
                    else _column(type_)
                )
            definition["metaData"]["schemaString"] = _column(type_)
            yield [protocol, json.dumps(definition)]


@pytest.mark.parametrize(
    "place",
    [
        *("protocol", "unknown action", "version", "commit info", "tags", "statistics"),
        *("metadata of a column", "arrays", "structs"),
    ],
)
def test_every_operation_reads_or_refuses_what_is_nested(tmp_path: Path, place: str) -> None:
    for depth in DEPTHS:
        for number, lines in enumerate(_lines(place, depth)):
            root = tmp_path / f"{depth}-{number}"
            log = commit_path(root, 0)
            log.parent.mkdir(parents=True)
            log.write_text("".join(f"{line}\n" for line in lines))
            for operation in OPERATIONS:
                with suppress(DeltaError):
                    operation(DeltaTable(str(root)))


def test_a_schema_may_be_nested_sixty_levels_deep_and_no_thousand() -> None:
    def _structs(levels: int) -> str:
        type_ = '"long"'
        for _ in range(levels):
            type_ = _column(type_)
        return type_

    assert len(parse_schema(_structs(60), "t").fields) == 1
    with pytest.raises(InvalidTableError, match="nested too deeply"):
        parse_schema(_structs(70), "t")


def test_a_value_that_is_too_deep_to_be_shown_is_still_a_wrong_type(tmp_path: Path) -> None:
    for depth in range(930, 1000, 5):
        (lines, _) = _lines("version", depth)
        log = commit_path(tmp_path / str(depth), 0)
        log.parent.mkdir(parents=True)
        log.write_text("\n".join(lines))
        with pytest.raises(CorruptLogError):
            _ = DeltaTable(str(tmp_path / str(depth))).snapshot().transactions
