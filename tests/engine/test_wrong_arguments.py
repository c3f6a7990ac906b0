"""Arguments of the wrong kind: each is refused by its name, with what was expected and what was found.

Python asks for no types, and none of these may reach the log, or end as an error of Python's own.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_delta.engine import DeltaTable, OptimisticTransaction
from airflow_delta.engine.errors import InvalidArgumentError, UnsupportedFeatureError
from airflow_delta.engine.model.actions import AddFile
from airflow_delta.engine.model.schema import LONG, SHORT, ArrayType, StructField, StructType
from airflow_delta.engine.transaction.alter.table import TableAlteration

Q = StructField("q", LONG)
SCHEMA = StructType((StructField("id", SHORT), StructField("s", StructType((Q,)))))
MANY = StructType((*SCHEMA, StructField("many", ArrayType(LONG))))
BY_NAME = {"delta.columnMapping.mode": "name", "delta.enableTypeWidening": "true"}


def refused(problem: str, table: Path, call: Callable[[], Any]) -> None:
    with pytest.raises(InvalidArgumentError, match=problem) as caught:
        call()
    assert caught.value.table == str(table)


@pytest.mark.parametrize("uri", [None, 3, b"/t", ["/t"]])
def test_a_location(uri: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="uri: expected a path or a URI, found"):
        DeltaTable(uri)


def test_a_location_may_be_a_path(tmp_path: Path) -> None:
    made = DeltaTable.create(tmp_path / "t", SCHEMA)
    assert made.uri == str(tmp_path / "t")
    assert DeltaTable(tmp_path / "t").snapshot().schema == SCHEMA


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"schema": None}, "schema: expected a StructType, found None"),
        ({"schema": {"id": "long"}}, "schema: expected a StructType, found the dict"),
        ({"schema": [Q]}, "schema: expected a StructType, found the list"),
        ({"schema": pa.schema([("id", pa.int64())])}, "schema: expected .*, found the Schema id:"),
        (
            {"schema": StructType((StructField("q", "long"),))},  # type: ignore[arg-type]
            r"schema\.q: expected a type of .*, such as LONG, found the str 'long'",
        ),
        (
            {"schema": StructType((StructField("q", LONG, metadata={3: "c"}),))},  # type: ignore[dict-item]
            r"the keys of schema\.q\.metadata: expected a text, found the int 3",
        ),
        ({"properties": ["a"]}, "properties: expected a mapping .*, found the list"),
        ({"properties": []}, "properties: expected a mapping .*, found the list"),
        ({"properties": {3: "a"}}, "the keys of properties: expected a text, found the int 3"),
        ({"properties": {"a": 3}}, "the property a is 3: expected a text"),
        ({"properties": {"delta.appendOnly": "maybe"}}, "delta.appendOnly: .*'maybe'"),
        ({"partition_by": None}, "partition_by: expected a list of columns, .* found None"),
        ({"partition_by": "id"}, "partition_by: expected a list .* found the str 'id'"),
        ({"partition_by": [3]}, r"partition_by\[0\]: expected a text, found the int 3"),
        ({"cluster_by": None}, "cluster_by: expected a list of columns, .* found None"),
        ({"cluster_by": "id"}, "cluster_by: expected a list of columns, .* found the str 'id'"),
        ({"cluster_by": [3]}, "cluster_by=.*expected names of columns"),
        ({"name": 3}, "name: expected a text or None, found the int 3"),
        ({"description": 3}, "description: expected a text or None, found the int 3"),
        (
            {"storage_options": ["a"]},
            "storage_options: expected a mapping, or None, found the list",
        ),
    ],
)
def test_a_new_table(tmp_path: Path, arguments: dict[str, Any], problem: str) -> None:
    given: dict[str, Any] = {"schema": SCHEMA, **arguments}
    refused(problem, tmp_path, lambda: DeltaTable.create(str(tmp_path), **given))
    assert not (tmp_path / "_delta_log").exists()


ALTERATIONS: list[tuple[Callable[[Any], Any], str]] = [
    (lambda a: a.set_properties(["a"]), "properties: expected a mapping .* found the list"),
    (lambda a: a.set_properties("a"), "properties: expected a mapping .* found the str 'a'"),
    (lambda a: a.set_properties({3: "a"}), "the keys of properties: .* found the int 3"),
    (lambda a: a.set_properties({"delta.appendOnly": "maybe"}), "delta.appendOnly: .*'maybe'"),
    (lambda a: a.unset_properties("x"), "names: expected a list .* found the str 'x'"),
    (lambda a: a.unset_properties([3]), r"names\[0\]: expected a text, found the int 3"),
    (lambda a: a.add_feature(3), "name: expected a text, found the int 3"),
    (lambda a: a.add_columns("x"), "fields: expected a list of StructFields, found the str 'x'"),
    (lambda a: a.add_columns(Q), "fields: expected a list of StructFields, found the StructField"),
    (
        lambda a: a.add_columns([("q", "long")]),
        r"fields\[0\]: expected a StructField, found the tu",
    ),
    (lambda a: a.add_columns([StructField("q", "long")]), r"fields\.q: .* found the str 'long'"),  # type: ignore[arg-type]
    (lambda a: a.add_columns([Q], inside=3), "inside: 3 is no column's name"),
    (lambda a: a.add_columns([Q], after=3), "after=3: expected a column of the same struct"),
    (lambda a: a.add_columns([Q], first=True, after="id"), "expected only one of them"),
    (lambda a: a.rename_column("id", 3), "new_name: expected a text, found the int 3"),
    (lambda a: a.rename_column(3, "x"), "column: 3 is no column's name"),
    (lambda a: a.drop_columns(3), "columns: expected a list of columns to drop, found the int 3"),
    (lambda a: a.drop_columns([3]), r"columns\[0\]: 3 is no column's name"),
    (lambda a: a.drop_columns(["id", ["id"]]), "columns: id is listed twice"),
    (lambda a: a.drop_columns(["id", "s"]), "s can't be dropped: .* left of the table; keep one"),
    (lambda a: a.drop_columns([["s", "q"]]), r"s\.q can't be .* left of s; drop that instead"),
    (lambda a: a.change_type("id", "long"), "new_type: expected a type .* found the str 'long'"),
    (lambda a: a.change_type(None, LONG), "column: None is no column's name"),
    (lambda a: a.set_nullable(3), "column: 3 is no column's name"),
    (lambda a: a.set_comment("id", 3), "comment: expected a text or None, found the int 3"),
    (lambda a: a.set_default("id", 0), "expression: expected a text, found the int 0"),
    (lambda a: a.set_default("id", None), "expression: expected a text, found None"),
    (lambda a: a.move_column("id", first=True, after="s"), "expected only one of them"),
    (lambda a: a.add_constraint("x", 3), "expression: expected a text, found the int 3"),
    (lambda a: a.add_constraint(3, "x > 0"), "name: expected a text, found the int 3"),
    (lambda a: a.drop_constraint(3), "name: expected a text, found the int 3"),
    (lambda a: a.cluster_by(None), "columns: expected a list of columns, found None"),
    (lambda a: a.cluster_by("id"), "columns: expected a list of columns, found the str 'id'"),
    (lambda a: a.cluster_by([["s", 3]]), "expected names of columns, or lists of names"),
    (lambda a: a.set_name(3), "name: expected a text or None, found the int 3"),
    (lambda a: a.set_description(3), "description: expected a text or None, found the int 3"),
]


@pytest.mark.parametrize(("alter", "problem"), ALTERATIONS)
def test_an_alteration(
    tmp_path: Path, alter: Callable[[TableAlteration], Any], problem: str
) -> None:
    table = DeltaTable.create(str(tmp_path), SCHEMA, properties=BY_NAME)
    refused(problem, tmp_path, lambda: alter(table.alter))
    assert table.latest_version() == 0


def test_what_is_offered_to_cluster_by_can_be_chosen(tmp_path: Path) -> None:
    table = DeltaTable.create(str(tmp_path), MANY)
    refused(r"possible columns are id, s\.q$", tmp_path, lambda: table.alter.cluster_by(["x"]))


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"operation": None}, "operation: expected a text such as 'WRITE', found None"),
        ({"operation_parameters": ["a"]}, "operation_parameters: expected a mapping .* the list"),
        ({"operation_parameters": []}, "operation_parameters: expected a mapping .* the list"),
        ({"operation_parameters": "a"}, "operation_parameters: expected a mapping .* the str 'a'"),
        ({"enforces": None}, "enforces: expected a list of names of table features, .* found None"),
        ({"enforces": "checkConstraints"}, "enforces: expected .* the str 'checkConstraints'"),
        ({"enforces": [3]}, r"enforces\[0\]: expected a text, found the int 3"),
        ({"enforces": ["x"]}, r"enforces: expected a list of names .* found \['x'\]"),
    ],
)
def test_a_transaction(tmp_path: Path, arguments: dict[str, Any], problem: str) -> None:
    table = DeltaTable.create(str(tmp_path), SCHEMA)
    given: dict[str, Any] = {"operation": "WRITE", **arguments}
    refused(problem, tmp_path, lambda: table.transaction(**given))
    refused(problem, tmp_path, lambda: table.commit_once("app", 1, stage=lambda _: None, **given))


STAGES: list[tuple[Callable[[Any], Any], str]] = [
    (lambda t: t.add_files(None), "files: expected a list of AddFiles, found None"),
    (lambda t: t.add_files("f"), "files: expected a list of AddFiles, found the str 'f'"),
    (
        lambda t: t.add_files(AddFile("f", {}, 1, 1, data_change=True)),
        "files: expected a list of AddFiles, found the AddFile",
    ),
    (lambda t: t.add_cdc_files(None), "files: expected a list of AddCdcFiles, found None"),
    (lambda t: t.use_identity_values(["id"], 3), "column: expected a text, found the list"),
    (lambda t: t.set_transaction(3, 1), "a transaction identifier is a text and an integer"),
    (lambda t: t.transaction_version(["a"]), "app_id: expected a text, found the list"),
    (lambda t: t.read_domain(["a"]), "domain: expected a text, found the list"),
    (lambda t: t.set_domain(3, "x"), "domain: expected a text, found the int 3"),
    (lambda t: t.set_domain("d", 3), "configuration: expected a text, found the int 3"),
    (lambda t: t.remove_domain(3), "domain: expected a text, found the int 3"),
    (lambda t: t.set_protocol("3,7"), "protocol: expected a Protocol, found the str '3,7'"),
    (lambda t: t.set_metadata(None), "metadata: expected a Metadata, found None"),
    (lambda t: t.read_files(3), "predicate 3 is a int: expected a text"),
    (lambda t: t.commit(operation_metrics=["a"]), "operation_metrics: .* found the list"),
    (lambda t: t.commit(operation_metrics={3: 1}), "the keys of operation_metrics: .* the int 3"),
]


@pytest.mark.parametrize(("stage", "problem"), STAGES)
def test_what_is_staged(
    tmp_path: Path, stage: Callable[[OptimisticTransaction], Any], problem: str
) -> None:
    table = DeltaTable.create(str(tmp_path), SCHEMA)
    txn = table.transaction("WRITE")
    txn.add_file(AddFile("f", {}, 1, 1, data_change=True))
    refused(problem, tmp_path, lambda: stage(txn))
    # Nothing of it is left behind.
    assert txn.commit().num_files_added == 1
    assert table.snapshot().domains == {}


@pytest.mark.parametrize(
    ("stage", "problem"),
    [
        (None, "stage: expected a function of the transaction, found None"),
        ("x", "stage: expected a function of the transaction, found the str 'x'"),
        (lambda _: "x", "what stage returns: expected metrics, .* found the str 'x'"),
        (lambda _: 3, "what stage returns: expected metrics, .* found the int 3"),
    ],
)
def test_what_is_done_once(tmp_path: Path, stage: Any, problem: str) -> None:
    table = DeltaTable.create(str(tmp_path), SCHEMA)
    refused(problem, tmp_path, lambda: table.commit_once("app", 1, "WRITE", stage))
    assert table.latest_version() == 0


def test_the_remedy_for_v2_checkpoints_helps(tmp_path: Path) -> None:
    table = DeltaTable.create(str(tmp_path), SCHEMA)
    with pytest.raises(UnsupportedFeatureError, match="needs the table feature") as caught:
        table.checkpoint(policy="v2")
    remedy = caught.value.message.partition("; ")[2].partition(" adds it")[0]
    exec(remedy, {"table": table})
    assert table.checkpoint(policy="v2").plan.kind == "v2"
