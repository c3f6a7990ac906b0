"""Metadata of columns that no reader could read: PROTOCOL.md, "Column Metadata"."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import ConstraintViolationError
from airflow_delta.engine.model.schema import (
    LONG,
    STRING,
    ArrayType,
    MapType,
    StructField,
    StructType,
)
from airflow_delta.engine.model.schema_json import schema_to_json
from tests.log_builder import write_commit

WRONG: list[tuple[str, Any, str]] = [
    ("comment", 3, "a text"),
    ("comment", None, "a text"),
    ("comment", ["c"], "a text"),
    ("CURRENT_DEFAULT", 0, "a text"),
    ("EXISTS_DEFAULT", 0, "a text"),
    ("__CHAR_VARCHAR_TYPE_STRING", 5, "a text"),
    ("delta.generationExpression", {"a": "b"}, "a text"),
    ("delta.invariants", {"expression": {"expression": "x > 3"}}, "a text"),
    ("delta.columnMapping.id", "1", "a 64-bit integer"),
    ("delta.columnMapping.id", True, "a 64-bit integer"),
    ("delta.columnMapping.id", 1.0, "a 64-bit integer"),
    ("delta.columnMapping.physicalName", 1, "a text"),
    ("delta.columnMapping.nested.ids", {"a.element": "1"}, "an object of 64-bit integers"),
    ("delta.identity.step", 2**63, "a 64-bit integer"),
    ("delta.identity.allowExplicitInsert", "true", "true or false"),
]
SOUND = {"comment": "", "EXISTS_DEFAULT": "0", "unknown": 3, "delta.columnMapping.id": 5}
PLAIN = StructType((StructField("id", LONG, metadata=SOUND),))


def nested(metadata: dict[str, Any]) -> StructType:
    inner = StructType((StructField("x", STRING, metadata=metadata),))
    return StructType((*PLAIN, StructField("m", MapType(STRING, ArrayType(inner)))))


def set_schema(table: DeltaTable, schema: StructType) -> None:
    txn = table.transaction("CHANGE", enforces=["allowColumnDefaults"])
    txn.set_metadata(replace(txn.base.metadata, schema_string=schema_to_json(schema)))
    txn.commit()


# By a raw action: what the engine's own methods refuse sooner is refused here, too.
@pytest.mark.parametrize(("key", "value", "expected"), WRONG)
def test_entries_that_readers_fail_at_are_refused_at_any_depth(
    tmp_path: Path, key: str, value: Any, expected: str
) -> None:
    features = ["allowColumnDefaults", "generatedColumns", "invariants", "identityColumns"]
    asked = {f"delta.feature.{name}": "supported" for name in features}
    table = DeltaTable.create(str(tmp_path), PLAIN, properties=asked)
    problem = rf"the column m\.value\.element\.x has '{key}': .* expect {expected}"
    with pytest.raises(ConstraintViolationError, match=problem) as caught:
        set_schema(table, nested({key: value}))
    assert caught.value.table == str(tmp_path)
    assert table.latest_version() == 0


def test_a_new_table_and_a_new_column_get_none(tmp_path: Path) -> None:
    wrong = StructField("q", LONG, metadata={"comment": 3})
    problem = "the column q has 'comment': 3 in its metadata"
    with pytest.raises(ConstraintViolationError, match=problem):
        DeltaTable.create(str(tmp_path), StructType((wrong,)))
    table = DeltaTable.create(str(tmp_path), PLAIN)
    with pytest.raises(ConstraintViolationError, match=problem):
        table.alter.add_columns([wrong])
    assert table.latest_version() == 0


def test_existing_bad_entries_can_be_corrected_one_by_one(tmp_path: Path) -> None:
    table = DeltaTable.create(str(tmp_path), PLAIN)
    two = StructType(tuple(StructField(name, LONG, metadata={"comment": 3}) for name in "ab"))
    raw = {**table.snapshot().metadata.to_json(), "schemaString": schema_to_json(two)}
    write_commit(tmp_path, 1, {"metaData": raw})
    table.alter.set_comment("a", "c")
    table.alter.set_comment("b", None)
    fields = json.loads(table.snapshot().metadata.schema_string or "")["fields"]
    assert [field["metadata"] for field in fields] == [{"comment": "c"}, {}]
    worse = StructType((StructField("a", LONG, metadata={"comment": 4}),))
    with pytest.raises(ConstraintViolationError, match="'comment': 4"):
        set_schema(table, worse)
