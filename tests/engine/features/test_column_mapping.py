from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from airflow_delta.engine.errors import InvalidTableError
from airflow_delta.engine.features import column_mapping as cm
from airflow_delta.engine.model.actions import Metadata, Protocol
from airflow_delta.engine.model.properties import TableProperties
from airflow_delta.engine.model.schema import (
    INTEGER,
    STRING,
    ArrayType,
    MapType,
    StructField,
    StructType,
)
from airflow_delta.engine.model.schema_json import parse_schema

# PROTOCOL.md, "Column Mapping": the column of the example.
SPEC_EXAMPLE = """{"type": "struct", "fields": [{
    "name" : "e", "type" : {
      "type" : "array", "elementType" : {
        "type" : "struct", "fields" : [ {
          "name" : "d", "type" : "integer", "nullable" : false,
          "metadata" : {"delta.columnMapping.id": 5,
            "delta.columnMapping.physicalName": "col-a7f4159c-53be-4cb0-b81a-f7e5240cfc49"}
        } ] },
      "containsNull" : true },
    "nullable" : true,
    "metadata" : {"delta.columnMapping.id": 4,
      "delta.columnMapping.physicalName": "col-5f422f40-de70-45b2-88ab-1d5c90e94db1"}
  }]}"""


def column(name: str, number: int, physical: str, data_type: object = INTEGER) -> StructField:
    return StructField(name, data_type, metadata={cm.ID: number, cm.PHYSICAL_NAME: physical})  # type: ignore[arg-type]


NESTED = StructType(
    (
        column("a", 1, "p1"),
        column("s", 2, "p2", StructType((column("x", 3, "p1"), column("y", 4, "p4")))),
        column(
            "m",
            5,
            "p5",
            MapType(StructType((column("k", 6, "p6"),)), StructType((column("v", 7, "p7"),))),
        ),
    )
)


def properties(mode: str = "name", **more: str) -> TableProperties:
    return TableProperties({"delta.columnMapping.mode": mode, **more}, "tbl")


@pytest.mark.parametrize("mode", ["name", "id"])
def test_the_example_of_the_specification(mode: str) -> None:
    schema = parse_schema(SPEC_EXAMPLE, "the example")
    cm.check_mapping(schema, properties(mode))
    outer = cm.physical_schema(schema, mode).fields[0]
    assert outer.name == "col-5f422f40-de70-45b2-88ab-1d5c90e94db1"
    assert cm.field_id(outer) == 4
    assert isinstance(outer.data_type, ArrayType)
    inner = outer.data_type.element_type
    assert isinstance(inner, StructType)
    assert inner.names == ("col-a7f4159c-53be-4cb0-b81a-f7e5240cfc49",)
    assert not inner.fields[0].nullable
    assert cm.field_id(inner.fields[0]) == 5


def test_without_column_mapping_left_over_names_mean_nothing() -> None:
    assert cm.physical_name(NESTED.fields[0], "none") == "a"
    assert cm.physical_schema(NESTED, "none") is NESTED
    cm.check_mapping(StructType((StructField("a", INTEGER),)), properties("none"))


def test_physical_names_reach_into_maps() -> None:
    physical = cm.physical_schema(NESTED, "name").fields[2].data_type
    assert isinstance(physical, MapType)
    assert str(physical) == "map<struct<p6:integer>,struct<p7:integer>>"


def test_physical_paths_reach_into_structs_alone() -> None:
    paths = cm.physical_paths(NESTED, "id")
    assert paths == {
        ("a",): ("p1",),
        ("s",): ("p2",),
        ("s", "x"): ("p2", "p1"),
        ("s", "y"): ("p2", "p4"),
        ("m",): ("p5",),
    }
    assert cm.physical_paths(NESTED, "none")["s", "x"] == ("s", "x")


def test_the_mode_counts_only_where_the_protocol_supports_it() -> None:
    table = Metadata(id="x", configuration={"delta.columnMapping.mode": "id"})
    both = frozenset({"columnMapping"})
    for supporting in (Protocol(2, 5), Protocol(2, 7, None, both), Protocol(3, 7, both, both)):
        assert cm.mapping_mode(supporting, table, table="tbl") == "id"
    for other in (Protocol(1, 2), Protocol(1, 6), Protocol(3, 7, frozenset(), frozenset())):
        assert cm.mapping_mode(other, table, table="tbl") == "none"


@pytest.mark.parametrize("mode", ["name", "id"])
@pytest.mark.parametrize(
    ("key", "value"),
    [
        *[(cm.ID, value) for value in (None, "7", 1.5, True, -1, 2**31)],
        *[(cm.PHYSICAL_NAME, value) for value in (None, "", 7)],
    ],
)
def test_each_column_needs_an_id_and_a_physical_name(mode: str, key: str, value: object) -> None:
    good = {cm.ID: 2, cm.PHYSICAL_NAME: "p", key: value}
    inner = StructField("x", INTEGER, metadata=good)
    schema = StructType((column("s", 1, "q", ArrayType(StructType((inner,)))),))
    with pytest.raises(InvalidTableError, match="column 'x' has the") as caught:
        cm.check_mapping(schema, properties(mode))
    assert caught.value.table == "tbl"


def test_two_columns_of_a_struct_must_not_share_a_physical_name() -> None:
    schema = StructType((column("a", 1, "p"), column("b", 2, "p")))
    with pytest.raises(InvalidTableError, match="columns a and b share the physical name 'p'"):
        cm.check_mapping(schema, properties())


def test_columns_of_different_structs_may_share_a_physical_name() -> None:
    cm.check_mapping(NESTED, properties())


def test_no_two_columns_share_an_id() -> None:
    inner = StructType((column("x", 1, "p"),))
    schema = StructType((column("a", 1, "p"), column("b", 2, "q", inner)))
    with pytest.raises(InvalidTableError, match=r"columns a and b\.x share the id 1"):
        cm.check_mapping(schema, properties())


def test_no_id_is_above_the_highest_that_was_given_out() -> None:
    cm.check_mapping(NESTED, properties(**{cm.MAX_COLUMN_ID: "7"}))
    with pytest.raises(InvalidTableError, match=r"column m\.value\.v has the id 7, .* is 6"):
        cm.check_mapping(NESTED, properties(**{cm.MAX_COLUMN_ID: "6"}))


def test_new_columns_get_ids_and_names_at_every_depth() -> None:
    plain = StructType(
        (
            StructField("a", STRING, metadata={"comment": "kept"}),
            StructField("s", ArrayType(StructType((StructField("x", INTEGER, nullable=False),)))),
        )
    )
    counter = itertools.count()
    mapped, highest = cm.assign_mapping(plain, name_of=lambda _: f"col-{next(counter)}")
    assert highest == 3
    cm.check_mapping(mapped, properties(**{cm.MAX_COLUMN_ID: str(highest)}))
    assert mapped.fields[0].metadata["comment"] == "kept"
    # Nothing but metadata was added: the logical types are the same.
    assert str(mapped) == str(plain)


def test_columns_keep_the_ids_and_names_that_they_have() -> None:
    half = StructType(
        (
            StructField("both", INTEGER, metadata={cm.ID: 7, cm.PHYSICAL_NAME: "b"}),
            StructField("new", INTEGER),
            StructField("named", INTEGER, metadata={cm.PHYSICAL_NAME: "n"}),
        )
    )
    mapped, highest = cm.assign_mapping(half, name_of=lambda field: field.name.upper(), last=3)
    assert [(cm.field_id(f), cm.physical_name(f, "name")) for f in mapped] == [
        (7, "b"),
        (8, "NEW"),
        (9, "n"),
    ]
    assert highest == 9


def test_an_id_is_never_given_out_twice_even_if_its_column_is_gone() -> None:
    _, highest = cm.assign_mapping(
        StructType((StructField("a", INTEGER),)), name_of=lambda field: field.name, last=41
    )
    assert highest == 42


def test_an_id_that_is_none_is_not_built_upon() -> None:
    broken = StructType((StructField("a", INTEGER, metadata={cm.ID: "1"}),))
    with pytest.raises(InvalidTableError, match="has the id '1'"):
        cm.assign_mapping(broken, name_of=lambda field: field.name)


def test_mapping_can_be_taken_off_without_other_metadata() -> None:
    mapped, _ = cm.assign_mapping(
        StructType(
            (StructField("s", StructType((StructField("x", INTEGER),)), metadata={"k": 1}),)
        ),
        name_of=lambda field: field.name,
    )
    bare = cm.without_mapping(mapped)
    assert bare.fields[0].metadata == {"k": 1}
    assert str(bare) == str(mapped)
    assert "delta.columnMapping" not in repr(bare)


@pytest.mark.parametrize(
    "case", ["column-mapping-id", "dat-column_mapping", "spark-table-with-dv-small"]
)
def test_real_tables_are_mapped_soundly(golden_case: Callable[[str], Path], case: str) -> None:
    commits = sorted((golden_case(case) / "_delta_log").glob("*.json"))
    lines = (line for commit in commits for line in commit.read_text().splitlines())
    found = [json.loads(line)["metaData"] for line in lines if '"metaData"' in line]
    mapped = 0
    for action in found:
        table = Metadata.from_json(action, case)
        cm.check_mapping(
            parse_schema(table.schema_string, case), TableProperties(table.configuration, case)
        )
        mapped += table.configuration.get("delta.columnMapping.mode", "none") != "none"
    assert mapped


def test_partition_columns_go_by_physical_names_in_the_order_of_partitioning() -> None:
    schema = StructType((column("a", 1, "p1"), column("b", 2, "p2"), column("c", 3, "p3")))
    for mode, names in (("none", ["c", "a"]), ("name", ["p3", "p1"]), ("id", ["p3", "p1"])):
        found = cm.partition_fields(schema, ("c", "a"), mode)
        assert [*found] == names
        assert [field.name for field in found.values()] == ["c", "a"]
    with pytest.raises(
        InvalidTableError, match=r"\['a', 'z'\], and the table has the columns a, b"
    ):
        cm.partition_fields(schema, ("a", "z"), "name")
