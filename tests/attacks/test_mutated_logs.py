"""Logs of which some value is another one than it should be: a right answer, or a typed error.

Where a value stands, and what stands there, is drawn by chance, by the same numbers in each run.
"""

from __future__ import annotations

import copy
import json
import random
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pyarrow.compute as pc
import pytest

from airflow_delta.engine import AddFile, DeltaTable
from airflow_delta.engine.errors import CorruptLogError, DeltaError, InvalidTableError
from airflow_delta.engine.storage.memory import MemoryStorage

VALUES: list[Any] = [
    *(0, -1, 2**31, 2**63 - 1, 2**63, -(2**70), 10**30, 3.5, 1e308, float("nan"), float("inf")),
    *(True, None, "", "x", "\ud800", "\x00", "\x1b[2J", "9" * 5000, "interval 9 years", "é"),
    *([], [[]], [None], {}, {"a": None}, {"a": {"b": [1]}}),
]

SCHEMA = {
    "type": "struct",
    "fields": [
        {"name": "id", "type": "long", "nullable": True, "metadata": {}},
        {"name": "part", "type": "string", "nullable": True, "metadata": {"comment": "c"}},
        {
            "name": "s",
            "type": {
                "type": "struct",
                "fields": [
                    {"name": "d", "type": "decimal(10,2)", "nullable": True, "metadata": {}}
                ],
            },
            "nullable": True,
            "metadata": {},
        },
    ],
}
STATS = {"numRecords": 3, "minValues": {"id": 1}, "maxValues": {"id": 9}, "nullCount": {"id": 0}}
VECTOR = {
    "storageType": "i",
    "pathOrInlineDv": "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L",
    "sizeInBytes": 40,
    "cardinality": 6,
}
PROPERTIES = {
    "delta.checkpointInterval": "10",
    "delta.enableInCommitTimestamps": "true",
    "delta.inCommitTimestampEnablementVersion": "1",
    "delta.inCommitTimestampEnablementTimestamp": "6",
    "delta.constraints.c": "id > 0",
    "delta.dataSkippingStatsColumns": "id",
    "delta.enableChangeDataFeed": "true",
    "delta.setTransactionRetentionDuration": "interval 1 hour",
}
READER = ["deletionVectors", "columnMapping"]
WRITER = [*READER, "inCommitTimestamp", "rowTracking", "domainMetadata", "checkConstraints"]


def _add(path: str, **fields: Any) -> dict[str, Any]:
    add = {
        "path": path,
        "partitionValues": {"part": "a"},
        "size": 1,
        "modificationTime": 1,
        "dataChange": True,
        "stats": STATS,
        "tags": {"t": "u"},
        "baseRowId": 0,
        "defaultRowCommitVersion": 0,
        **fields,
    }
    return {"add": add}


LOG: list[list[dict[str, Any]]] = [
    [
        {"commitInfo": {"inCommitTimestamp": 5, "operation": "W", "operationParameters": {}}},
        {
            "protocol": {
                "minReaderVersion": 3,
                "minWriterVersion": 7,
                "readerFeatures": READER,
                "writerFeatures": [*WRITER, "changeDataFeed"],
            }
        },
        {
            "metaData": {
                "id": "i",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": SCHEMA,
                "partitionColumns": ["part"],
                "configuration": PROPERTIES,
                "createdTime": 1,
            }
        },
    ],
    [
        {"commitInfo": {"timestamp": 2, "inCommitTimestamp": 6, "txnId": "t"}},
        _add("a"),
        _add("b", deletionVector=VECTOR),
        {"txn": {"appId": "app", "version": 1, "lastUpdated": 5}},
        {
            "domainMetadata": {
                "domain": "delta.rowTracking",
                "configuration": {"rowIdHighWaterMark": 5},
                "removed": False,
            }
        },
    ],
    [
        {"commitInfo": {"timestamp": 3, "inCommitTimestamp": 7}},
        {"remove": {"path": "a", "deletionTimestamp": 1, "dataChange": True, "size": 1}},
        _add("c"),
        {"cdc": {"path": "_change_data/x", "partitionValues": {}, "size": 3, "dataChange": False}},
    ],
]

_AS_TEXT = ("schemaString", "stats", "configuration")
"""What is JSON in a text; a configuration only where it is one of a domain."""


def _places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, child in items:
        yield (*place, key)
        if isinstance(child, dict | list):
            yield from _places(child, (*place, key))


def _mutated(chance: random.Random) -> list[list[dict[str, Any]]]:
    log = copy.deepcopy(LOG)
    for _ in range(chance.randint(1, 2)):
        *above, last = chance.choice([place for place in _places(log) if len(place) > 3])
        parent: Any = log
        with suppress(LookupError, TypeError):  # the first change may have taken it away
            for key in above:
                parent = parent[key]
            if chance.random() < 0.15:
                del parent[last]
            else:
                parent[last] = chance.choice(VALUES)
    return log


def _line(action: dict[str, Any]) -> str:
    for kind, fields in action.items():
        if isinstance(fields, dict):
            for name in _AS_TEXT:
                if isinstance(fields.get(name), dict) and (kind, name) != (
                    "metaData",
                    "configuration",
                ):
                    fields[name] = json.dumps(fields[name])
    return json.dumps(action)


def _write(uri: str, log: list[list[dict[str, Any]]]) -> None:
    storage = MemoryStorage(uri)
    for version, actions in enumerate(log):
        text = "".join(f"{_line(action)}\n" for action in actions)
        storage.replace(f"_delta_log/{version:020}.json", text.encode())


def _commit(table: DeltaTable) -> None:
    transaction = table.transaction("WRITE", enforces=["checkConstraints"])
    transaction.add_file(AddFile("z", {"part": "a"}, 10, 0, data_change=True))
    transaction.commit()


OPERATIONS: list[Callable[[DeltaTable], object]] = [
    lambda table: (lambda s: (s.schema, s.transactions, s.domains, s.features))(table.snapshot()),
    lambda table: table.snapshot().files(
        predicate=(pc.field("id") > 5) & (pc.field("part") == "a")
    ),
    lambda table: table.snapshot(1).files(),
    lambda table: table.history(),
    lambda table: table.version_at(6),
    lambda table: table.changes(1),
    lambda table: table.check(depth="log"),
    lambda table: table.vacuum(dry_run=True),
    lambda table: table.vacuum(dry_run=True, mode="lite"),
    lambda table: table.drop_feature("deletionVectors", dry_run=True),
    lambda table: table.restore(1, dry_run=True),
    lambda table: table.checkpoint(),
    lambda table: table.cleanup_metadata(),
    lambda table: table.compact_log(),
    lambda table: table.alter.set_comment("id", "text"),
    lambda table: table.alter.rename_column("id", "id2"),
    _commit,
    lambda table: table.snapshot().files(),
]


@pytest.mark.parametrize("seed", range(2))
def test_every_operation_gives_an_answer_or_a_typed_error(seed: int) -> None:
    chance, outcomes = random.Random(seed), [0, 0]
    for number in range(25):
        uri = f"memory://mutated-{seed}-{number}/table"
        _write(uri, _mutated(chance))
        table = DeltaTable(uri)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for operation in OPERATIONS:
                try:
                    operation(table)
                    outcomes[0] += 1
                except DeltaError:
                    outcomes[1] += 1
    assert min(outcomes) > 50  # neither is all that there is


def test_the_log_without_a_change_is_a_good_table() -> None:
    _write("memory://unmutated/table", copy.deepcopy(LOG))
    snapshot = DeltaTable("memory://unmutated/table").snapshot()
    assert sorted(snapshot.files()["path"].to_pylist()) == ["b", "c"]
    assert [*snapshot.schema.names] == ["id", "part", "s"]


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        ("metaData", "description", "\ud800"),
        ("metaData", "partitionColumns", ["part\udfff"]),
        ("metaData", "configuration", {"\ud800": "x"}),
        ("metaData", "configuration", {"x": "\ud800"}),
        ("protocol", "writerFeatures", ["\ud800"]),
    ],
)
def test_half_a_surrogate_pair_is_no_text(kind: str, name: str, value: object) -> None:
    """JSON can escape it and UTF-8 can't hold it: it could be read, and never be written again."""
    log = copy.deepcopy(LOG)
    next(action[kind] for action in log[0] if kind in action)[name] = value
    uri = f"memory://surrogates-{kind}-{name}-{len(repr(value))}/table"
    _write(uri, log)
    with pytest.raises(CorruptLogError, match="half a surrogate pair"):
        _ = DeltaTable(uri).snapshot().metadata


def test_half_a_surrogate_pair_is_no_name_of_a_column() -> None:
    log = copy.deepcopy(LOG)
    log[0][2]["metaData"]["schemaString"]["fields"][0]["name"] = "\ud800"
    _write("memory://surrogate-column/table", log)
    with pytest.raises(InvalidTableError, match="half a surrogate pair"):
        _ = DeltaTable("memory://surrogate-column/table").snapshot().schema
