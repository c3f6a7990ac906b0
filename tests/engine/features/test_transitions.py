from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.engine.features.transitions import Condition, check_transition, demands
from airflow_delta.engine.model.actions import Metadata, Protocol
from airflow_delta.engine.model.schema import INTEGER, StructField, StructType
from airflow_delta.engine.model.schema_json import schema_to_json

ALL = Protocol(
    2,
    7,
    None,
    frozenset(
        {
            "checkConstraints",
            "columnMapping",
            "domainMetadata",
            "generatedColumns",
            "icebergCompatV1",
            "icebergCompatV2",
            "invariants",
            "rowTracking",
        }
    ),
)


def metadata(
    configuration: dict[str, str] | None = None,
    *,
    field: dict[str, Any] | None = None,
    partition_columns: tuple[str, ...] = (),
) -> Metadata:
    schema = StructType((StructField("a", INTEGER, metadata=field or {}),))
    return Metadata(
        id="x",
        schema_string=schema_to_json(schema),
        partition_columns=partition_columns,
        configuration=configuration or {},
    )


def mode(name: str) -> Metadata:
    return metadata({"delta.columnMapping.mode": name})


@pytest.mark.parametrize(
    ("old", "new"),
    [("none", "none"), ("name", "name"), ("id", "id"), ("none", "name")],
)
def test_modes_of_column_mapping_that_can_follow(old: str, new: str) -> None:
    check_transition(mode(old), mode(new), table="tbl")


@pytest.mark.parametrize(
    ("old", "new"),
    [("none", "id"), ("name", "id"), ("id", "name"), ("name", "none"), ("id", "none")],
)
def test_modes_of_column_mapping_that_can_not(old: str, new: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"from '{old}' to '{new}'"):
        check_transition(mode(old), mode(new), table="tbl")


def test_a_mode_that_is_unset_is_none() -> None:
    check_transition(metadata(), mode("name"), table="tbl")
    with pytest.raises(InvalidArgumentError, match="from 'name' to 'none'"):
        check_transition(mode("name"), metadata(), table="tbl")


V1 = {"delta.enableIcebergCompatV1": "true"}
V2 = {"delta.enableIcebergCompatV2": "true"}


@pytest.mark.parametrize(
    ("old", "new", "condition", "reason"),
    [
        (
            metadata(),
            metadata({"delta.enableRowTracking": "true"}),
            Condition.ROW_IDS,
            "by a backfill",
        ),
        (metadata(), metadata(V2), Condition.NO_FILES, "icebergCompatV2 needs files"),
        (metadata(V1), metadata(V2), Condition.NO_FILES, "icebergCompatV2 needs files"),
        (
            metadata(partition_columns=("a",)),
            metadata(V1, partition_columns=("a",)),
            Condition.NO_FILES,
            "icebergCompatV1 needs files",
        ),
        (
            metadata({"delta.constraints.c": "a > 0"}),
            metadata({"delta.constraints.c": "a > 1"}),
            Condition.NO_FILES,
            "constraint 'c', 'a > 1'",
        ),
        (
            metadata(),
            metadata(field={"delta.generationExpression": "b + 1"}),
            Condition.NO_FILES,
            "generation expression of the column a, 'b + 1'",
        ),
        (
            metadata(),
            metadata(field={"delta.invariants": "x"}),
            Condition.NO_FILES,
            "invariant of the column a",
        ),
        (
            metadata(),
            metadata(partition_columns=("a",)),
            Condition.NO_FILES,
            "create a new table with other partition columns",
        ),
    ],
)
def test_what_a_change_demands_of_the_files(
    old: Metadata, new: Metadata, condition: Condition, reason: str
) -> None:
    (demand,) = demands((ALL, old), (ALL, new), table="tbl")
    assert demand.condition is condition
    assert reason in demand.reason
    assert demands((ALL, new), (ALL, new), table="tbl") == ()


@pytest.mark.parametrize(
    "new",
    [
        metadata({"delta.enableDeletionVectors": "true", "delta.appendOnly": "true"}),
        metadata(
            {"delta.columnMapping.mode": "name"},
            field={"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "a"},
        ),
        metadata(V1),
        metadata({"delta.enableRowTracking": "false"}),
        metadata(field={"comment": "x", "CURRENT_DEFAULT": "1"}),
    ],
)
def test_changes_that_suit_any_files(new: Metadata) -> None:
    assert demands((ALL, metadata()), (ALL, new), table="tbl") == ()


def test_a_column_with_a_rule_may_be_mapped_and_renamed() -> None:
    rule = {"delta.generationExpression": "b + 1"}
    mapped = {**rule, "delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "a"}
    by_name = {"delta.columnMapping.mode": "name"}
    before, after = metadata(field=rule), metadata(by_name, field=mapped)
    assert demands((ALL, before), (ALL, after), table="tbl") == ()
    renamed = StructType((StructField("z", INTEGER, metadata=mapped),))
    later = replace(after, schema_string=schema_to_json(renamed))
    assert demands((ALL, after), (ALL, later), table="tbl") == ()
    other = replace(before, schema_string=schema_to_json(renamed))
    (demand,) = demands((ALL, before), (ALL, other), table="tbl")
    assert "column z" in demand.reason


def test_taking_a_rule_away_demands_nothing() -> None:
    ruled = metadata({"delta.constraints.c": "a > 0", **V2})
    assert demands((ALL, ruled), (ALL, metadata(V1)), table="tbl") == ()


def test_a_feature_that_the_protocol_gets_later_counts_from_then_on() -> None:
    """The property was there before; nobody had to heed it."""
    table = metadata({"delta.enableRowTracking": "true"})
    (demand,) = demands((Protocol(1, 2), table), (ALL, table), table="tbl")
    assert demand.condition is Condition.ROW_IDS
