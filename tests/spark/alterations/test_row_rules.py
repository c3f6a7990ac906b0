"""New rules for the rows of tables that have data."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_delta.engine import CommitResult, DeltaTable
from airflow_delta.engine.errors import (
    ConcurrentAppendError,
    ConstraintViolationError,
    InvalidArgumentError,
    StorageError,
)
from airflow_delta.engine.model.dv_descriptor import DeletionVectorDescriptor
from airflow_delta.engine.model.schema import (
    INTEGER,
    STRING,
    ArrayType,
    StructField,
    StructType,
)
from airflow_delta.spark import add_constraint, enable_iceberg_compat, set_not_null, write
from airflow_delta.spark.alterations import row_rules as alterations
from airflow_delta.spark.writer.log_actions import live_files, removal
from tests.engine.changes.logs import inline_vector
from tests.log_builder import commit_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = StructType(
    (
        StructField("id", INTEGER),
        StructField("s", StructType((StructField("x", INTEGER),))),
        StructField("l", ArrayType(INTEGER)),
        StructField("p", STRING),
    )
)
DDL = "id int, s struct<x: int>, l array<int>, p string"


def made_table(spark: SparkSession, root: Path, *rows: Any, **arguments: Any) -> DeltaTable:
    table = DeltaTable.create(str(root), SCHEMA, **arguments)
    write(spark.createDataFrame(list(rows), DDL).coalesce(1), str(root))
    return table


def actions(root: Path, version: int) -> dict[str, Any]:
    lines = commit_path(root, version).read_text(encoding="utf-8").splitlines()
    return {kind: value for line in lines for kind, value in json.loads(line).items()}


def delete_row(table: DeltaTable, index: int) -> None:
    """Delete a row of the table's only file by a deletion vector."""
    transaction = table.transaction("DELETE")
    (file,) = live_files(transaction.base.files())
    vector = inline_vector([index])
    assert vector
    descriptor = DeletionVectorDescriptor.from_json(vector, "test")
    transaction.remove_file(removal(file, data_change=True))
    transaction.add_file(replace(file, deletion_vector=descriptor, data_change=True))
    transaction.commit()


def test_add_constraint(spark: SparkSession, tmp_path: Path) -> None:
    table = made_table(
        spark, tmp_path, (1, None, None, "a"), (5, None, None, None), partition_by=["p"]
    )
    uri = str(tmp_path)
    with pytest.raises(
        ConstraintViolationError,
        match=r"constraint few, CHECK \(p = 'a'\): 1 row breaks this rule, for example {.p.:null,.id.:5",
    ) as caught:
        add_constraint(spark, uri, "Few", "p = 'a'")
    assert (caught.value.rule, caught.value.num_rows) == ("CHECK few", 1)
    assert table.latest_version() == 1
    commit = add_constraint(spark, uri, "Few", " ID < 9 ", txn=("app", 1))
    again = add_constraint(spark, uri, "Few", " ID < 9 ", txn=("app", 1))
    assert (commit.version, commit.repeated, again.version, again.repeated) == (2, False, 2, True)
    made = actions(tmp_path, 2)
    assert made["metaData"]["configuration"] == {"delta.constraints.few": "ID < 9"}
    assert made["protocol"] == {"minReaderVersion": 1, "minWriterVersion": 3}
    assert made["commitInfo"]["operation"] == "ADD CONSTRAINT"
    assert made["commitInfo"]["operationParameters"] == {"name": "Few", "expr": "ID < 9"}
    with pytest.raises(InvalidArgumentError, match="there is a constraint 'few' already"):
        add_constraint(spark, uri, "FEW", "id < 10")
    with pytest.raises(InvalidArgumentError, match="of the type int, and not boolean"):
        add_constraint(spark, uri, "other", "id + 1")


def test_set_not_null(spark: SparkSession, tmp_path: Path) -> None:
    table = made_table(spark, tmp_path, (1, (1,), [None], "a"), (2, None, [], "b"))
    uri = str(tmp_path)
    # A field of a null struct is null, as in Delta Spark.
    with pytest.raises(
        ConstraintViolationError, match=r"column s\.x, which is NOT NULL: 1 row breaks.*\"id\":2"
    ):
        set_not_null(spark, uri, ["s", "x"])
    with pytest.raises(InvalidArgumentError, match="array"):
        set_not_null(spark, uri, ["l", "element"])
    with pytest.raises(InvalidArgumentError, match="nobody"):
        set_not_null(spark, uri, "nobody")
    assert table.latest_version() == 1
    assert set_not_null(spark, uri, "id").version == 2
    assert table.snapshot().schema.fields[0] == StructField("id", INTEGER, nullable=False)
    assert actions(tmp_path, 2)["commitInfo"]["operation"] == "CHANGE COLUMN"
    with pytest.raises(ConstraintViolationError, match="null in the column id, which is NOT NULL"):
        write(spark.createDataFrame([(None, (1,), [], "c")], DDL), uri)


ALTERATIONS: dict[str, Callable[..., CommitResult]] = {
    "constraint": lambda spark, uri: add_constraint(spark, uri, "c", "id < 9"),
    "not null": lambda spark, uri: set_not_null(spark, uri, "id"),
}


def test_a_column_whose_name_is_the_path_of_another(spark: SparkSession, tmp_path: Path) -> None:
    inner = StructType((StructField("b", INTEGER, nullable=False), StructField("c", INTEGER)))
    DeltaTable.create(
        str(tmp_path), StructType((StructField("a.b", INTEGER), StructField("a", inner)))
    )
    write(
        spark.sql("SELECT CAST(NULL AS INT) AS `a.b`, struct(1 AS b, 2 AS c) AS a"), str(tmp_path)
    )
    with pytest.raises(ConstraintViolationError, match="NOT NULL"):
        set_not_null(spark, str(tmp_path), ["a.b"])
    assert DeltaTable(str(tmp_path)).snapshot().version == 1


@pytest.mark.parametrize("kind", ALTERATIONS)
def test_rows_that_come_after_the_scan_are_a_conflict(
    spark: SparkSession, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, uri = made_table(spark, tmp_path, (1, None, None, "a")), str(tmp_path)
    scan = alterations.violation

    def _scan_and_append(*arguments: Any, **named: Any) -> Any:
        found = scan(*arguments, **named)
        write(spark.createDataFrame([(100, None, None, "b")], DDL), uri)
        return found

    monkeypatch.setattr(alterations, "violation", _scan_and_append)
    with pytest.raises(ConcurrentAppendError):
        ALTERATIONS[kind](spark, uri)
    assert table.latest_version() == 2
    assert table.snapshot().properties.constraints == {}


def test_deleted_rows_and_physical_names(spark: SparkSession, tmp_path: Path) -> None:
    """Rows that a deletion vector deletes don't count; columns are read by their physical names."""
    rows = [(1, None, None, "a"), (None, None, None, "b"), (3, None, None, None)]
    table, uri = made_table(spark, tmp_path, *rows), str(tmp_path)
    table.alter.set_properties(
        {"delta.enableDeletionVectors": "true", "delta.columnMapping.mode": "name"}
    )
    table.alter.rename_column("id", "number")
    with pytest.raises(ConstraintViolationError, match="column number, which"):
        set_not_null(spark, uri, "number")
    delete_row(table, 1)
    assert set_not_null(spark, uri, "number").version == table.latest_version()
    with pytest.raises(ConstraintViolationError, match="1 row breaks"):
        set_not_null(spark, uri, "p")
    add_constraint(spark, uri, "odd", "number % 2 = 1")
    assert table.snapshot().properties.constraints == {"odd": "number % 2 = 1"}


READING = {**ALTERATIONS, "iceberg compatibility": enable_iceberg_compat}


@pytest.mark.parametrize("name", READING)
def test_a_missing_data_file_is_one_sentence(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    table = made_table(spark, tmp_path, (1, None, None, "a"))
    (file,) = table.snapshot().file_uris()
    Path(file).unlink()
    with pytest.raises(StorageError, match=Path(file).name) as caught:
        READING[name](spark, str(tmp_path))
    assert len(str(caught.value)) < 1500
    assert table.latest_version() == 1
