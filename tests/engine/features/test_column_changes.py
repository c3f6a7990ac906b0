"""Changes of columns: what becomes of a schema, and what is refused.

The structure of the outcome is compared with a model that does the same to the schema's JSON.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_delta.engine.errors import InvalidArgumentError, InvalidTableError
from airflow_delta.engine.features.column_changes.attributes import (
    with_comment,
    with_default,
    with_nullable,
)
from airflow_delta.engine.features.column_changes.column_paths import column_path, field_at
from airflow_delta.engine.features.column_changes.dependents import (
    check_no_expressions,
    check_not_in_layout,
)
from airflow_delta.engine.features.column_changes.position import Position, position_of
from airflow_delta.engine.features.column_changes.sql_columns import columns_in_sql
from airflow_delta.engine.features.column_changes.statistics_columns import (
    drop_listed_column,
    rename_listed_column,
)
from airflow_delta.engine.features.column_changes.structure import (
    add_fields,
    drop_field,
    move_field,
    rename_field,
)
from airflow_delta.engine.features.column_changes.widening import widen
from airflow_delta.engine.features.column_names import check_column_names
from airflow_delta.engine.features.schema_walk import all_fields
from airflow_delta.engine.model.properties import TableProperties
from airflow_delta.engine.model.schema import (
    BOOLEAN,
    BYTE,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    SHORT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    StructField,
    StructType,
)
from airflow_delta.engine.model.schema_json import parse_schema, schema_to_json

INNER = StructType((StructField("x", INTEGER), StructField("y", STRING)))
SCHEMA = StructType(
    (
        StructField("id", LONG, nullable=False, metadata={"unknown": {"key": [1]}}),
        StructField("s", INNER),
        StructField("a", ArrayType(INNER)),
        StructField("m", MapType(STRING, ArrayType(INNER))),
    )
)
STRUCTS = [(), ("s",), ("a", "element"), ("m", "value", "element")]


def properties(**configuration: str) -> TableProperties:
    return TableProperties({f"delta.{k}": v for k, v in configuration.items()}, "tbl")


def fields_of(node: Any, path: Sequence[str]) -> list[dict[str, Any]]:
    """The list of the columns at a path in a schema's JSON."""
    for name in path:
        if node["type"] == "struct":
            node = next(field["type"] for field in node["fields"] if field["name"] == name)
        else:
            node = node[{"element": "elementType", "value": "valueType"}[name]]
    fields: list[dict[str, Any]] = node["fields"]
    return fields


NEW = {"name": "new", "type": "integer", "nullable": True, "metadata": {"comment": "c"}}


@settings(max_examples=50)
@given(data=st.data())
def test_columns_come_go_and_move_as_in_the_json(data: st.DataObject) -> None:
    schema = SCHEMA
    model = json.loads(schema_to_json(SCHEMA))
    for number in range(data.draw(st.integers(1, 5))):
        path = data.draw(st.sampled_from(STRUCTS))
        try:
            columns = fields_of(model, path)
        except StopIteration:
            continue  # what is around it was renamed or dropped
        names = [column["name"] for column in columns]
        name = data.draw(st.sampled_from(names))
        after = data.draw(st.sampled_from([None, *(n for n in names if n != name)]))
        index = names.index(name)
        match data.draw(st.sampled_from(["add", "rename", "drop", "move"])):
            case "add":
                new = f"new {number}"
                index = 0 if after is None else names.index(after) + 1
                columns.insert(index, {**NEW, "name": new})
                field = StructField(new, INTEGER, metadata={"comment": "c"})
                schema = add_fields(schema, path, [field], Position(after))
            case "rename":
                columns[index]["name"] = f"old {number}"
                schema = rename_field(schema, (*path, name), f"old {number}")
            case "drop" if len(columns) > 1:
                del columns[index]
                schema = drop_field(schema, (*path, name))
            case "move":
                moved = columns.pop(index)
                others = [column["name"] for column in columns]
                columns.insert(0 if after is None else others.index(after) + 1, moved)
                schema = move_field(schema, (*path, name), Position(after))
    assert json.loads(schema_to_json(schema)) == model


def test_new_columns_go_to_the_end_one_behind_the_other() -> None:
    fields = [StructField("b", LONG), StructField("c", LONG)]
    assert add_fields(SCHEMA, (), fields).names == ("id", "s", "a", "m", "b", "c")
    assert add_fields(SCHEMA, (), fields, Position()).names[:3] == ("b", "c", "id")
    assert add_fields(SCHEMA, (), fields, Position("id")).names[:4] == ("id", "b", "c", "s")


def test_a_new_column_leaves_behind_what_it_was_in_another_table() -> None:
    mapped = {
        "comment": "kept",
        "delta.columnMapping.id": 1,
        "delta.columnMapping.physicalName": "col-1",
        "delta.columnMapping.nested.ids": {"col-1.element": 2},
        "delta.typeChanges": [{"fromType": "integer", "toType": "long"}],
    }
    inner = StructType((StructField("deep", LONG, metadata=mapped),))
    field = StructField("new", ArrayType(inner), metadata=mapped)
    added = add_fields(SCHEMA, (), [field])
    for path in [("new",), ("new", "element", "deep")]:
        assert field_at(added, path).metadata == {"comment": "kept"}


DEEP = StructField("deep", INTEGER, nullable=False)


@pytest.mark.parametrize(
    ("field", "problem"),
    [
        (StructField("n", LONG, nullable=False), "the new column n must be nullable"),
        (StructField("n", StructType((DEEP,))), "n.deep must be nullable"),
        (StructField("n", ArrayType(StructType((DEEP,)))), "n.element.deep must be nullable"),
        (StructField("n", LONG, metadata={"CURRENT_DEFAULT": "1"}), "'CURRENT_DEFAULT'"),
        (StructField("n", LONG, metadata={"delta.identity.start": 1}), "delta.identity.start"),
        (StructField("n", LONG, metadata={"delta.generationExpression": "id"}), "generation"),
        (StructField("n", LONG, metadata={"delta.invariants": "{}"}), "delta.invariants"),
        (StructField("ID", LONG), "the table has such a column already: .*'id' and 'ID'"),
        (StructField("", LONG), "expected a name"),
    ],
)
def test_columns_that_cannot_be_added(field: StructField, problem: str) -> None:
    with pytest.raises(InvalidArgumentError, match=problem):
        add_fields(SCHEMA, (), [field])


def test_two_new_columns_of_one_name_are_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="'n' and 'N'"):
        add_fields(SCHEMA, (), [StructField("n", LONG), StructField("N", LONG)])
    with pytest.raises(InvalidArgumentError, match="no columns to add"):
        add_fields(SCHEMA, (), [])


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        (("nope",), "there is no column nope: the table has id, s, a, m"),
        (("ID",), "no column ID"),
        (("s.x",), r"no column s\.x: .*named by a list"),
        (("s", "z"), r"no column s\.z: s has x, y"),
        (("a", "x"), r"no column a\.x: a has element"),
        (("m", "element"), "m has key, value"),
        (("id", "x"), "id has nothing, as it is of the type long"),
        (("a", "element"), r"a\.element is the content of a column"),
    ],
)
def test_a_path_that_does_not_exist_is_refused(path: tuple[str, ...], problem: str) -> None:
    with pytest.raises(InvalidArgumentError, match=problem):
        drop_field(SCHEMA, path)
    with pytest.raises(InvalidArgumentError, match=problem):
        with_comment(SCHEMA, path, "c")


@pytest.mark.parametrize("name", ["", [], ["a", ""], [1], 3, None, {"a": 1}])
def test_names_that_are_none(name: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="is no column's name"):
        column_path(name)


def test_structure_that_makes_no_sense() -> None:
    with pytest.raises(InvalidArgumentError, match="id is of the type long, which has no columns"):
        add_fields(SCHEMA, ("id",), [StructField("n", LONG)])
    with pytest.raises(InvalidArgumentError, match="a is of the type array"):
        add_fields(SCHEMA, ("a",), [StructField("n", LONG)])
    with pytest.raises(InvalidArgumentError, match="'S' and 's' are the same"):
        rename_field(SCHEMA, ("id",), "S")
    for name in ("", "id"):
        with pytest.raises(InvalidArgumentError, match="is no new name"):
            rename_field(SCHEMA, ("id",), name)
    with pytest.raises(
        InvalidArgumentError, match=r"s\.y can't be .* left of s; drop that instead"
    ):
        drop_field(drop_field(SCHEMA, ("s", "x")), ("s", "y"))
    with pytest.raises(
        InvalidArgumentError, match="after='id': expected a column of the same struct"
    ):
        move_field(SCHEMA, ("id",), Position("id"))
    with pytest.raises(InvalidArgumentError, match="expected only one of them"):
        position_of(first=True, after="id")
    # Another case of its own name is nobody else's.
    assert rename_field(SCHEMA, ("id",), "ID").names[0] == "ID"


def test_attributes_change_and_all_else_stays() -> None:
    changed = with_nullable(SCHEMA, ("id",), nullable=True)
    changed = with_comment(changed, ("a", "element", "x"), "")
    changed = with_default(changed, ("s", "y"), " 'none' ")
    fields = dict(all_fields(changed))
    assert fields["id",].nullable
    assert fields["id",].metadata == {"unknown": {"key": [1]}}
    assert fields["a", "element", "x"].metadata == {"comment": ""}
    assert fields["s", "y"].metadata == {"CURRENT_DEFAULT": "'none'"}
    back = with_nullable(changed, ("id",), nullable=False)
    back = with_comment(back, ("a", "element", "x"), None)
    assert with_default(back, ("s", "y"), None) == SCHEMA
    # As it was never there.
    assert with_default(with_comment(SCHEMA, ("id",), None), ("id",), None) == SCHEMA


def test_attributes_that_cannot_be() -> None:
    with pytest.raises(InvalidArgumentError, match="where nothing enforces NOT NULL"):
        with_nullable(SCHEMA, ("a", "element", "x"), nullable=False)
    assert not field_at(with_nullable(SCHEMA, ("s", "x"), nullable=False), ("s", "x")).nullable
    with pytest.raises(InvalidArgumentError, match="expected SQL"):
        with_default(SCHEMA, ("id",), " ")
    with pytest.raises(InvalidArgumentError, match=r"refers to the columns \['ID'\]"):
        with_default(SCHEMA, ("s", "x"), "abs(ID) + 1")
    made = StructType((StructField("g", LONG, metadata={"delta.generationExpression": "1"}),))
    with pytest.raises(InvalidArgumentError, match="its values come from"):
        with_default(made, ("g",), "1")


WIDENINGS: list[tuple[DataType, DataType, bool, bool]] = [
    # from, to, whether a writer may, whether it may with Iceberg compatibility
    (BYTE, SHORT, True, True),
    (BYTE, LONG, True, True),
    (SHORT, DOUBLE, True, False),
    (INTEGER, LONG, True, True),
    (INTEGER, DOUBLE, True, False),
    (LONG, DOUBLE, False, False),
    (LONG, INTEGER, False, False),
    (FLOAT, DOUBLE, True, True),
    (INTEGER, FLOAT, False, False),
    (DATE, TIMESTAMP_NTZ, True, False),
    (DATE, TIMESTAMP, False, False),
    (BYTE, DecimalType(10, 0), True, False),
    (BYTE, DecimalType(9, 0), False, False),
    (BYTE, DecimalType(3, 0), False, False),
    (INTEGER, DecimalType(12, 2), True, False),
    (INTEGER, DecimalType(11, 2), False, False),
    (LONG, DecimalType(20, 0), True, False),
    (LONG, DecimalType(19, 0), False, False),
    (DecimalType(5, 2), DecimalType(7, 2), True, True),
    (DecimalType(5, 2), DecimalType(6, 3), True, False),
    (DecimalType(5, 2), DecimalType(5, 3), False, False),
    (DecimalType(5, 2), DecimalType(5, 1), False, False),
    (STRING, BOOLEAN, False, False),
    (LONG, LONG, False, False),
]


@pytest.mark.parametrize(("old", "new", "may", "may_with_iceberg"), WIDENINGS)
def test_types_become_wider(
    old: DataType, new: DataType, may: bool, may_with_iceberg: bool
) -> None:
    schema = StructType((StructField("c", old, metadata={"comment": "kept"}),))
    for for_iceberg, allowed in ((False, may), (True, may_with_iceberg)):
        if allowed:
            field = field_at(widen(schema, ("c",), new, for_iceberg=for_iceberg), ("c",))
            assert field.data_type == new
            assert field.metadata == {
                "comment": "kept",
                "delta.typeChanges": [{"fromType": str(old), "toType": str(new)}],
            }
        else:
            with pytest.raises(InvalidArgumentError, match="can't become"):
                widen(schema, ("c",), new, for_iceberg=for_iceberg)


def test_each_change_of_a_type_is_recorded_where_it_belongs() -> None:
    """As in the examples of the feature's section in later editions of the protocol."""
    inner = StructType((StructField("f", FLOAT),))
    schema = StructType(
        (StructField("e", MapType(SHORT, ArrayType(SHORT))), StructField("s", ArrayType(inner)))
    )
    for path, to in [
        (("e", "key"), INTEGER),
        (("e", "value", "element"), INTEGER),
        (("e", "value", "element"), LONG),
        (("s", "element", "f"), DOUBLE),
    ]:
        schema = widen(schema, path, to, for_iceberg=False)
    schema = parse_schema(schema_to_json(schema), "schema")
    assert field_at(schema, ("e",)) == StructField(
        "e",
        MapType(INTEGER, ArrayType(LONG)),
        metadata={
            "delta.typeChanges": [
                {"fromType": "short", "toType": "integer", "fieldPath": "key"},
                {"fromType": "short", "toType": "integer", "fieldPath": "value.element"},
                {"fromType": "integer", "toType": "long", "fieldPath": "value.element"},
            ]
        },
    )
    assert field_at(schema, ("s", "element", "f")).metadata == {
        "delta.typeChanges": [{"fromType": "float", "toType": "double"}]
    }
    assert field_at(schema, ("s",)).metadata == {}


def test_the_preview_of_type_widening_records_a_version() -> None:
    schema = StructType((StructField("c", SHORT),))
    changed = widen(schema, ("c",), LONG, for_iceberg=False, version=7)
    assert field_at(changed, ("c",)).metadata["delta.typeChanges"] == [
        {"fromType": "short", "toType": "long", "tableVersion": 7}
    ]


def test_made_values_keep_their_type() -> None:
    for key in ("delta.generationExpression", "delta.identity.start"):
        schema = StructType((StructField("c", INTEGER, metadata={key: 1}),))
        with pytest.raises(InvalidArgumentError, match="the type of c can't change"):
            widen(schema, ("c",), LONG, for_iceberg=False)


@pytest.mark.parametrize(
    ("expression", "columns"),
    [
        ("id > 0 AND part<'x'", {"id", "part"}),
        ("`a b`.`c``d` = `e`", {"a b.c`d", "e"}),
        ("s . x + s.y[0].z", {"s.x", "s.y", "0"}),
        ("abs(id) = 1 -- other\n and /* no\nmore */ b", {"id", "b", "1"}),
        ("'it''s id' = a or 'x\\'id' = b or \"id\" = c", {"a", "b", "c"}),
        ("d > date'2026-01-01'", {"d"}),
        ("at > now() - interval 1 day", {"at", "interval", "1"}),
        ("cast(a as date) = b::date", {"a", "b"}),
        ("id in (1, 2) and not (flag)", {"id", "flag"}),
        ("case when a then 'x' else b end", {"case", "a", "then", "b", "end", "when", "else"}),
    ],
)
def test_columns_in_sql(expression: str, columns: set[str]) -> None:
    """None is missed; words of the language and numbers may be taken for some."""
    words = {"and", "or", "not", "interval", "case", "when", "then", "else", "end", "in", "as"}
    numbers = {"0", "1", "2"}
    found = {".".join(name) for name in columns_in_sql(expression)}
    certain = columns - words - numbers
    assert certain <= found
    assert {name for name in found if name.lower() not in words | numbers} == certain


names = st.text("ab `.'", min_size=1, max_size=4)


@settings(max_examples=50)
@given(st.lists(st.lists(names, min_size=1, max_size=3), min_size=1, max_size=3))
def test_quoted_columns_are_always_found(columns: list[list[str]]) -> None:
    quoted = [".".join(f"`{part.replace('`', '``')}`" for part in column) for column in columns]
    assert columns_in_sql(" + ".join(quoted)) == {tuple(column) for column in columns}


DEPENDENT = StructType(
    (
        StructField("id", LONG),
        StructField("made", LONG, metadata={"delta.generationExpression": "s.x + 1"}),
        StructField("s", StructType((StructField("x", LONG), StructField("y", ArrayType(INNER))))),
        StructField(
            "i", LONG, metadata={"delta.invariants": '{"expression":{"expression":"i > 3"}}'}
        ),
        StructField("free", LONG),
    )
)
FEW = properties(**{"constraints.few": "ID < 9 AND s.y[0].x > 1"})


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        (("id",), r"the constraint 'few' \(ID < 9"),
        (("s", "x"), r"the generated column made \(s\.x \+ 1\)"),
        (("s",), "the constraint 'few' .*; the generated column made"),
        (("s", "y"), "the constraint 'few'"),
        (("s", "y", "element", "y"), "the constraint 'few'"),
        (("i",), "the invariant of the column i"),
        (("made",), None),
        (("free",), None),
    ],
)
def test_expressions_hold_their_columns(path: tuple[str, ...], reason: str | None) -> None:
    if reason is None:
        check_no_expressions(DEPENDENT, FEW, path, verb="renamed")
    else:
        with pytest.raises(InvalidArgumentError, match=f"can't be renamed: {reason}"):
            check_no_expressions(DEPENDENT, FEW, path, verb="renamed")


def test_a_very_long_expression_holds_every_column() -> None:
    """To cut it into tokens would take longer than anybody waits."""
    for length, held in ((1_000_000, False), (1_000_001, True)):
        long = properties(**{"constraints.long": "1 > 0".ljust(length)})
        if held:
            with pytest.raises(
                InvalidArgumentError, match="can't be renamed: the constraint 'long'"
            ):
                check_no_expressions(DEPENDENT, long, ("free",), verb="renamed")
        else:
            check_no_expressions(DEPENDENT, long, ("free",), verb="renamed")


def test_what_is_dropped_too_holds_nothing() -> None:
    leaving = [("made",), ("i",)]
    for path in [("s", "x"), ("i",)]:
        check_no_expressions(DEPENDENT, properties(), path, verb="dropped", leaving=leaving)
    with pytest.raises(InvalidArgumentError, match="'few'"):
        check_no_expressions(DEPENDENT, FEW, ("s",), verb="dropped", leaving=leaving)


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        (("id",), "the table is partitioned by it"),
        (("s", "x"), "the table is clustered by it"),
        (("s",), "the table is clustered by it"),
        (("a",), None),
        (("s", "y"), None),
    ],
)
def test_the_layout_holds_its_columns(path: tuple[str, ...], reason: str | None) -> None:
    def _check() -> None:
        check_not_in_layout(
            SCHEMA,
            properties(),
            path,
            partition_columns=["id"],
            clustering_columns=[("s", "x")],
        )

    if reason is None:
        _check()
    else:
        with pytest.raises(InvalidArgumentError, match=reason):
            _check()


def test_a_column_that_files_hold_themselves_is_left() -> None:
    schema = StructType((StructField("p", LONG), StructField("id", LONG)))
    with pytest.raises(InvalidArgumentError, match="only partition columns would be left"):
        check_not_in_layout(
            schema, properties(), ("id",), partition_columns=["p"], clustering_columns=[]
        )


@pytest.mark.parametrize(
    ("listed", "renamed", "dropped"),
    [
        ("id,s.x", "id,`t u`.x", "id"),
        ("`s`, S.y ,id", "`t u`,`t u`.y,id", "id"),
        ("id, other", "id, other", "id, other"),
        ("s", "`t u`", ""),
    ],
)
def test_the_list_of_columns_with_statistics_follows(
    listed: str, renamed: str, dropped: str
) -> None:
    key = "delta.dataSkippingStatsColumns"
    configuration = {key: listed, "x": "1"}
    assert rename_listed_column(configuration, ("s",), "t u") == {key: renamed, "x": "1"}
    assert drop_listed_column(configuration, ("s",)) == {key: dropped, "x": "1"}
    assert drop_listed_column({"x": "1"}, ("s",)) == {"x": "1"}


@pytest.mark.parametrize("character", " ,;{}()\n\t=")
def test_files_cannot_call_columns_so(character: str) -> None:
    inner = StructType((StructField(f"a{character}b", LONG),))
    schema = StructType((StructField("s", ArrayType(inner)),))
    with pytest.raises(InvalidTableError, match=r"delta\.columnMapping\.mode"):
        check_column_names(schema, table="tbl")
    check_column_names(SCHEMA, table="tbl")
