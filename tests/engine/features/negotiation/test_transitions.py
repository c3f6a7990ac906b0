from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from airflow_delta.engine.errors import InvalidArgumentError, InvalidTableError
from airflow_delta.engine.features.negotiation.transitions import (
    Condition,
    check_transition,
    find_requirements,
)
from airflow_delta.engine.model.actions import Metadata, Protocol
from airflow_delta.engine.model.schema import (
    INTEGER,
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
)
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


MAPPED = (Protocol(2, 5), Protocol(2, 5))


def mode(name: str) -> Metadata:
    return metadata({"delta.columnMapping.mode": name})


@pytest.mark.parametrize(
    ("old", "new"),
    [("none", "none"), ("name", "name"), ("id", "id"), ("none", "name")],
)
def test_modes_of_column_mapping_that_can_follow(old: str, new: str) -> None:
    check_transition(mode(old), mode(new), protocols=MAPPED, table="tbl")


@pytest.mark.parametrize(
    ("old", "new"),
    [("none", "id"), ("name", "id"), ("id", "name"), ("name", "none"), ("id", "none")],
)
def test_modes_of_column_mapping_that_can_not(old: str, new: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"from '{old}' to '{new}'"):
        check_transition(mode(old), mode(new), protocols=MAPPED, table="tbl")


def test_a_mode_that_is_unset_is_none() -> None:
    check_transition(metadata(), mode("name"), protocols=MAPPED, table="tbl")
    with pytest.raises(InvalidArgumentError, match="from 'name' to 'none'"):
        check_transition(mode("name"), metadata(), protocols=MAPPED, table="tbl")


def test_a_mode_counts_where_the_protocol_supports_column_mapping() -> None:
    without, with_it = Protocol(1, 2), Protocol(2, 5)
    for new in (metadata(), mode("id"), mode("none")):
        check_transition(mode("name"), new, protocols=(without, without), table="tbl")
    check_transition(mode("name"), mode("name"), protocols=(without, with_it), table="tbl")
    check_transition(mode("id"), mode("name"), protocols=(without, with_it), table="tbl")
    with pytest.raises(InvalidArgumentError, match="from 'none' to 'id'"):
        check_transition(mode("id"), mode("id"), protocols=(without, with_it), table="tbl")
    with pytest.raises(InvalidArgumentError, match="from 'name' to 'none'"):
        check_transition(mode("name"), metadata(), protocols=(with_it, with_it), table="tbl")


V1 = {"delta.enableIcebergCompatV1": "true"}
V2 = {"delta.enableIcebergCompatV2": "true"}


@pytest.mark.parametrize(
    ("old", "new", "condition", "reason"),
    [
        (
            metadata(),
            metadata({"delta.enableRowTracking": "true"}),
            Condition.ROW_IDS,
            "with dataChange=false",
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
            Condition.CHECKED_ROWS,
            "constraint 'c', 'a > 1'",
        ),
        (
            metadata(),
            metadata(field={"delta.generationExpression": "b + 1"}),
            Condition.CHECKED_ROWS,
            "generation expression of the column a, 'b + 1'",
        ),
        (
            metadata(),
            metadata(field={"delta.invariants": "x"}),
            Condition.CHECKED_ROWS,
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
    (requirement,) = find_requirements((ALL, old), (ALL, new), table="tbl")
    assert requirement.condition is condition
    assert reason in requirement.reason
    assert find_requirements((ALL, new), (ALL, new), table="tbl") == ()


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
    assert find_requirements((ALL, metadata()), (ALL, new), table="tbl") == ()


def test_a_column_with_a_rule_may_be_mapped_and_renamed() -> None:
    rule = {"delta.generationExpression": "b + 1"}
    mapped = {**rule, "delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "a"}
    by_name = {"delta.columnMapping.mode": "name"}
    before, after = metadata(field=rule), metadata(by_name, field=mapped)
    assert find_requirements((ALL, before), (ALL, after), table="tbl") == ()
    renamed = StructType((StructField("z", INTEGER, metadata=mapped),))
    later = replace(after, schema_string=schema_to_json(renamed))
    assert find_requirements((ALL, after), (ALL, later), table="tbl") == ()
    other = replace(before, schema_string=schema_to_json(renamed))
    (requirement,) = find_requirements((ALL, before), (ALL, other), table="tbl")
    assert "column z" in requirement.reason


def of_fields(*fields: StructField, **options: Any) -> Metadata:
    return replace(metadata(), schema_string=schema_to_json(StructType(fields)), **options)


def struct(*fields: StructField) -> StructType:
    return StructType(fields)


def null(name: str, data_type: DataType = INTEGER) -> StructField:
    return StructField(name, data_type)


def full(name: str, data_type: DataType = INTEGER) -> StructField:
    return StructField(name, data_type, nullable=False)


def array_of(data_type: DataType, *, nulls: bool = True) -> ArrayType:
    return ArrayType(data_type, nulls)


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ([null("a")], [full("a")], ["a"]),
        ([full("a")], [full("a")], []),
        ([full("a")], [null("a")], []),
        ([null("a")], [null("a"), full("b")], ["b"]),
        ([null("a")], [null("a"), null("s", struct(full("x")))], []),
        ([null("a")], [null("a"), full("s", struct(full("x")))], ["s"]),
        ([null("s", struct(null("x")))], [null("s", struct(full("x")))], ["s.x"]),
        ([null("s", struct(null("x")))], [null("s", struct(null("x"), full("y")))], ["s.y"]),
        (
            [null("l", array_of(struct(null("x"))))],
            [null("l", array_of(struct(null("x"), full("y")), nulls=False))],
            ["l.element", "l.element.y"],
        ),
        (
            [null("m", MapType(struct(null("k")), INTEGER, True))],
            [null("m", MapType(struct(full("k")), INTEGER, False))],
            ["m.key.k", "m.value"],
        ),
    ],
)
def test_not_null_requires_that_there_are_no_files(
    old: list[StructField], new: list[StructField], named: list[str]
) -> None:
    made = find_requirements((ALL, of_fields(*old)), (ALL, of_fields(*new)), table="tbl")
    assert all(requirement.condition is Condition.CHECKED_ROWS for requirement in made)
    found = [
        requirement.reason.split("NOT NULL of the column ")[1].split(";")[0] for requirement in made
    ]
    assert found == named


BY_NAME = {"delta.columnMapping.mode": "name"}


def column(name: str, physical: str, number: int, *, nullable: bool = True) -> StructField:
    keys = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": physical}
    return StructField(name, INTEGER, nullable=nullable, metadata=keys)


def test_a_column_that_is_renamed_is_still_partitioned_by_and_not_null() -> None:
    before = of_fields(
        column("a", "c1", 1),
        column("b", "c2", 2, nullable=False),
        configuration=BY_NAME,
        partition_columns=("a",),
    )
    renamed = of_fields(
        column("x", "c1", 1),
        column("a", "c2", 2, nullable=False),
        configuration=BY_NAME,
        partition_columns=("x",),
    )
    assert find_requirements((ALL, before), (ALL, renamed), table="tbl") == ()
    other = replace(renamed, partition_columns=("a",))
    (requirement,) = find_requirements((ALL, before), (ALL, other), table="tbl")
    assert "the files are partitioned by ['a']" in requirement.reason


def test_partition_columns_keep_their_order() -> None:
    fields = null("a"), null("b")
    before, after = (of_fields(*fields, partition_columns=tuple(by)) for by in ("ab", "ba"))
    (requirement,) = find_requirements((ALL, before), (ALL, after), table="tbl")
    assert "partitioned by ['a', 'b']" in requirement.reason


def test_a_missing_partition_column_is_refused() -> None:
    parted = of_fields(null("a"), partition_columns=("b",))
    with pytest.raises(InvalidTableError, match=r"partition columns are \['b'\].* columns a"):
        find_requirements((ALL, parted), (ALL, parted), table="tbl")


def test_taking_a_rule_away_demands_nothing() -> None:
    ruled = metadata({"delta.constraints.c": "a > 0", **V2})
    assert find_requirements((ALL, ruled), (ALL, metadata(V1)), table="tbl") == ()


def test_a_feature_that_the_protocol_gets_later_counts_from_then_on() -> None:
    """The property was there before; nobody had to heed it."""
    table = metadata({"delta.enableRowTracking": "true"})
    (requirement,) = find_requirements((Protocol(1, 2), table), (ALL, table), table="tbl")
    assert requirement.condition is Condition.ROW_IDS
