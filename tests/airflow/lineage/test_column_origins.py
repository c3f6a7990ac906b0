"""The columns that the columns of a changed table come from, by the text of its new values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.model.schema import LONG, STRING, StructField, StructType
from airflow_delta.hooks.delta import DeltaHook
from airflow_delta.hooks.lineage.column_origins import column_origins
from airflow_delta.hooks.lineage.columns import TableColumns
from airflow_delta.hooks.lineage.datasets import (
    Column,
    Lineage,
    LineageDataset,
    NewValues,
    RowChanges,
)

CITY = (Column("city", "string"), Column("zip", "long"))
COLUMNS = (
    Column("id", "long"),
    Column("Total", "long"),
    Column("year", "long"),
    Column("odd name", "long"),
    Column("address", "struct", fields=CITY),
    Column("next", "long", is_generated=True),
)
TABLE = LineageDataset("/table", 4, columns=COLUMNS)
SOURCE = LineageDataset(
    "/source",
    2,
    columns=(Column("ID", "long"), Column("amount", "long"), Column("total", "integer")),
)

Origins = dict[str, list[str]]


def origins(changes: RowChanges) -> Origins:
    """The origins of each column, each as ``dataset.column``, with a ``*`` if it is changed."""
    found: Origins = {}
    for one in column_origins(LineageDataset("/table", 4, columns=COLUMNS, row_changes=changes)):
        text = f"{one.uri[1:]}.{one.origin}{'' if one.is_unchanged else '*'}"
        found.setdefault(one.name, []).append(text)
    return found


def updated(value: Any, column: str = "id") -> list[str] | None:
    """The origins of a column of which all rows get a new value; None if they aren't certain."""
    found = origins(RowChanges((NewValues({column: value}),), is_of_all_rows=True))
    # The other columns are as they were.
    assert found["odd name"] == ["table.odd name"]
    return found.get("id")


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("Total", ["table.Total"]),
        (" total ", ["table.Total"]),
        ("`odd name`", ["table.odd name"]),
        ("total + id", ["table.Total*", "table.id*"]),
        ("CASE WHEN id > 1 THEN abs(TOTAL) ELSE 'year' END", ["table.Total*", "table.id*"]),
        ("CAST(id AS decimal(10, 2)) -- total", ["table.id*"]),
        ("address.zip", ["table.address*"]),
        ("address", ["table.address*"]),
        ("id IN (1, 2)", ["table.id*"]),
        ("total <=> id * 2", ["table.Total*", "table.id*"]),
        # Nothing comes from a column.
        ("DEFAULT", None),
        ("current_date()", None),
        ("'id'", None),
        (7, None),
        (None, None),
        (True, None),
        # A word that is a column, or a unit of time.
        ("timestampadd(YEAR, 1, id)", None),
        ("year", None),
        ("`year` + id", None),
        ("id + interval 1 year", ["table.id*"]),
        # Names that may be no columns.
        ("transform(xs, id -> id + 1)", None),
        ("f(id => 1)", None),
        ("CAST(x AS struct<id: int>)", None),
        ("extract(id FROM Total)", None),
        ("(SELECT max(id) FROM other)", None),
        ("id COLLATE total", None),
        ("struct(id total)", None),
        ("struct('a b', id AS other)", ["table.id*"]),
        ("struct( *)", None),
        ("to_json(struct(id, *))", None),
    ],
)
def test_the_origins_of_a_new_value(value: Any, found: list[str] | None) -> None:
    assert updated(value) == found


def test_rows_that_are_not_updated_keep_their_values() -> None:
    found = origins(RowChanges((NewValues({"id": "total", "address.zip": "id", "Total": 1}),)))
    assert found == {
        "id": ["table.Total", "table.id"],
        "Total": ["table.Total"],
        "year": ["table.year"],
        "odd name": ["table.odd name"],
        "address": ["table.address", "table.id*"],
    }
    # Of a struct of which a member is updated the others are kept.
    all_rows = RowChanges((NewValues({"address.zip": "id"}),), is_of_all_rows=True)
    assert origins(all_rows)["address"] == ["table.address", "table.id*"]


def test_rows_that_are_kept_have_the_same_columns() -> None:
    assert origins(RowChanges()) == {one.name: [f"table.{one.name}"] for one in COLUMNS}


def test_a_column_that_the_table_lacks_makes_all_origins_uncertain() -> None:
    assert origins(RowChanges((NewValues({"lost": "id"}),))) == {}
    assert origins(RowChanges((NewValues({"odd name, id": "id"}),))) == {}


def merged(*clauses: NewValues, source: LineageDataset | None = SOURCE, **given: Any) -> Origins:
    """The origins of columns that have been merged."""
    return origins(RowChanges(clauses, source, "source", "target", **given))


def test_a_merge_of_all_columns() -> None:
    every = NewValues(None, sees_table=False, sees_source=True)
    found = merged(every)
    assert found == {
        "id": ["source.ID", "table.id"],
        # The source has another type.
        "Total": ["source.total*", "table.Total"],
        "year": ["table.year"],
        "odd name": ["table.odd name"],
        "address": ["table.address"],
    }
    # The version before may have lacked columns.
    assert merged(every, keeps_rows=False) == {"id": ["source.ID"], "Total": ["source.total*"]}
    # The columns of files, of queries and of functions aren't known.
    assert merged(every, source=None) == {}


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("source.amount", ["source.amount", "table.id"]),
        ("SOURCE.`Amount` + target.id", ["source.amount*", "table.id*", "table.id"]),
        ("amount", ["source.amount", "table.id"]),
        ("3", ["table.id"]),
        # Both have it, or the row as a whole.
        ("total", None),
        ("hash(source)", None),
        ("hash(source.*)", None),
    ],
)
def test_a_merge_of_values(value: str, found: list[str] | None) -> None:
    clause = NewValues({"target.id": value}, sees_source=True)
    assert merged(clause).get("id") == found


def test_a_value_sees_only_the_rows_of_its_clause() -> None:
    inserted = NewValues({"id": "total"}, sees_table=False, sees_source=True)
    assert merged(inserted)["id"] == ["source.total*", "table.id"]
    assert merged(NewValues({"id": "total"}))["id"] == ["table.Total", "table.id"]
    # A value of a source whose columns aren't known.
    found = merged(NewValues({"id": "source.x"}, sees_source=True), source=None)
    assert ("id" in found, found["Total"]) == (False, ["table.Total"])


def test_a_column_with_the_name_of_an_alias_is_uncertain() -> None:
    struct = Column("source", "struct", fields=(Column("amount", "long"),))
    source = LineageDataset("/source", 2, columns=(struct, Column("amount", "long")))
    clause = NewValues({"id": "source.amount"}, sees_source=True)
    assert "id" not in merged(clause, source=source)


def test_the_columns_of_a_task_are_read_at_its_versions(tmp_path: Path) -> None:
    schema = StructType((StructField("id", LONG), StructField("note", STRING)))
    table, orders = str(tmp_path / "table"), str(tmp_path / "orders")
    DeltaTable.create(table, schema)
    DeltaTable.create(orders, StructType((StructField("id", LONG),)))
    source = LineageDataset(orders, 0)
    every = NewValues(None, sees_table=False, sees_source=True)
    output = LineageDataset(table, 0, row_changes=RowChanges((every,), source))
    (found,) = TableColumns(DeltaHook()).add(Lineage((source,), (output,))).outputs
    assert [(one.name, one.uri, one.origin) for one in found.origins] == [
        ("id", orders, "id"),
        ("id", table, "id"),
        ("note", table, "note"),
    ]
