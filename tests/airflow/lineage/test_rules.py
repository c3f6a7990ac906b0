"""The datasets of every operator and sensor: what it is going to read and write, and what it has."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from airflow_delta.hooks.lineage.datasets import (
    Lineage,
    LineageDataset,
    NewValues,
    RowChanges,
    WrittenData,
)
from airflow_delta.operators.lineage.task import LineageTask, with_lineage
from airflow_delta.operators.table_task import TableTask
from airflow_delta.provider import get_provider_info
from airflow_delta.version_compat import AirflowTaskTimeout

SALES, COPY, OTHER = "s3://lake/sales", "s3://lake/copy", "s3://lake/orders"
SPARK = {"spark_conn_id": "spark"}
READ = LineageDataset(SALES, 4)
PLANNED = LineageDataset(SALES)
ORDERS = LineageDataset(OTHER, 24)
LANDED = LineageDataset("s3://landing/orders", is_table=False, file_format="json")
DONE = {"table_uri": SALES, "version": 4, "committed": True, "repeated": False, "metrics": {}}
WRITTEN = {"numFiles": 2, "numOutputRows": 30, "numOutputBytes": 900}
COPIED = {
    "table_uri": SALES,
    "version": 4,
    "target_uri": COPY,
    "target_version": 0,
    "target_num_files": 2,
    "target_num_rows": 30,
    "deleted_copies": ["s3://lake/old"],
}
APPENDED = {
    "table_uri": SALES,
    "end_version": 4,
    "target_uri": COPY,
    "target_version": 7,
    "appended": True,
    "num_changes": 30,
}
QUERY: dict[str, Any] = {"source_tables": {"orders": (OTHER, 24)}}
ON: dict[str, Any] = {"on": "true", "clauses": [{"when": "matched", "then": "delete"}]}

Case = tuple[str, Mapping[str, Any], Mapping[str, Any] | None, Lineage]


def reads(version: int | None) -> Lineage:
    return Lineage((LineageDataset(SALES, version),))


def writes(**facts: Any) -> Lineage:
    return Lineage(outputs=(replace(READ, **facts),))


ALTERED = writes(change="ALTER")
IDLE = {"table_uri": SALES, "version": 4, "last_version": None, "converted": False}

# The operator, its arguments, its result (None while it isn't known) and its datasets.
CASES: list[Case] = [
    ("BackfillOperator", {}, {"version": 4}, reads(4)),
    ("BackfillSensor", {}, {"version": 4}, reads(4)),
    ("CheckpointOperator", {"version": "4"}, None, reads(4)),
    ("CheckpointOperator", {}, None, reads(None)),
    ("CheckpointOperator", {}, {"version": 4}, reads(4)),
    ("LogCompactionOperator", {}, {"version": 4}, reads(4)),
    ("MetadataCleanupOperator", {}, {"version": 4}, reads(4)),
    ("TableProfileOperator", {"version": "triggering_event"}, None, reads(None)),
    ("TableProfileOperator", {}, {"version": 4}, reads(4)),
    ("TableVersionSensor", {"min_version": 9}, None, reads(None)),
    ("TableVersionSensor", {}, {"version": 4}, reads(4)),
    ("TruncationSensor", {"feature": "v2Checkpoint"}, {"version": 4}, reads(4)),
    ("VacuumOperator", {}, {"version": 4}, reads(4)),
    ("AddConstraintOperator", {"name": "n", "expression": "id > 0"}, {"version": 4}, ALTERED),
    ("AddConstraintOperator", {"name": "n", "expression": "id > 0"}, None, Lineage((), (PLANNED,))),
    ("SetNotNullOperator", {"column": "id"}, {"version": 4}, ALTERED),
    ("DropFeatureOperator", {"feature": "x"}, {"version": 5, "last_version": 4}, ALTERED),
    ("DropFeatureOperator", {"feature": "x"}, IDLE, reads(4)),
    ("EnableRowTrackingOperator", {}, {"version": 5, "last_version": 4}, ALTERED),
    ("EnableRowTrackingOperator", {}, IDLE, reads(4)),
    ("ConvertToManagedCommitOperator", {}, {"version": 4, "converted": True}, ALTERED),
    ("ConvertToManagedCommitOperator", {}, IDLE, reads(4)),
    ("ConvertToFileSystemOperator", {}, {"version": 4, "converted": True}, ALTERED),
    ("ConvertToFileSystemOperator", {}, IDLE, reads(4)),
    ("OptimizeOperator", {}, None, Lineage((PLANNED,), (PLANNED,))),
    (
        "OptimizeOperator",
        {},
        {"version": 4, "plan": {"version": 3}, "commits": 1, "files_added": 2, "bytes_added": 9},
        Lineage(
            (LineageDataset(SALES, 3),),
            (
                replace(
                    READ,
                    written=WrittenData(size=9, files=2),
                    copied_from=LineageDataset(SALES, 3),
                ),
            ),
        ),
    ),
    ("OptimizeOperator", {}, {"version": 4, "plan": {"version": 4}, "commits": 0}, reads(4)),
    ("RestoreOperator", {"version": 1}, None, Lineage((LineageDataset(SALES, 1),), (PLANNED,))),
    (
        "RestoreOperator",
        {"version": 1},
        {**DONE, "restored_version": 1, "bytes_restored": 9, "files_restored": 2},
        Lineage(
            (LineageDataset(SALES, 1),),
            (
                replace(
                    READ,
                    change="OVERWRITE",
                    written=WrittenData(size=9, files=2),
                    copied_from=LineageDataset(SALES, 1),
                ),
            ),
        ),
    ),
    (
        "RestoreOperator",
        {"version": 4},
        {**DONE, "restored_version": 4, "committed": False},
        reads(4),
    ),
    ("ConvertToDeltaOperator", {}, None, Lineage((), (PLANNED,))),
    (
        "ConvertToDeltaOperator",
        {},
        {"version": 4, "converted": True, "repeated": False, "rows": 30, "bytes": 9, "files": 2},
        writes(change="CREATE", written=WrittenData(30, 9, 2)),
    ),
    (
        "ConvertToDeltaOperator",
        {},
        {"version": None, "converted": False, "repeated": False},
        Lineage((LineageDataset(SALES, is_table=False, file_format="parquet"),)),
    ),
    ("DeleteOperator", {"condition": "id < 5"}, None, Lineage((), (PLANNED,))),
    (
        "DeleteOperator",
        {"condition": "id < 5"},
        {**DONE, "metrics": {"numAddedFiles": 1, "numAddedBytes": 9, "numCopiedRows": 8}},
        writes(written=WrittenData(8, 9, 1), row_changes=RowChanges()),
    ),
    ("DeleteOperator", {"condition": " TRUE"}, DONE, writes(change="TRUNCATE")),
    ("DeleteOperator", {"condition": "id < 5"}, {"version": 4, "num_files": 1}, reads(4)),
    (
        "UpdateOperator",
        {"set": {"id": "0"}, "condition": "true"},
        {
            **DONE,
            "metrics": {
                "numAddedFiles": 1,
                "numAddedBytes": 9,
                "numUpdatedRows": 2,
                "numCopiedRows": 8,
            },
        },
        writes(
            written=WrittenData(10, 9, 1),
            row_changes=RowChanges((NewValues({"id": "0"}),), is_of_all_rows=True),
        ),
    ),
    (
        "MergeOperator",
        {**ON, **QUERY, "source_query": "SELECT * FROM orders"},
        {
            **DONE,
            "metrics": {
                "numOutputRows": 10,
                "numTargetFilesAdded": 1,
                "numTargetBytesAdded": 9,
                "numTargetRowsCopied": 8,
            },
        },
        Lineage(
            (ORDERS,),
            writes(
                written=WrittenData(10, 9, 1),
                row_changes=RowChanges((), ORDERS, "source", "target"),
            ).outputs,
        ),
    ),
    (
        "MergeOperator",
        {
            "source_uri": "s3://landing/orders/",
            "source_alias": "s",
            "on": "true",
            "clauses": [
                {"when": "matched", "then": "update", "values": {"id": "s.id"}},
                {"when": "not_matched", "then": "insert"},
                {"when": "not_matched_by_source", "then": "update", "values": {"id": None}},
            ],
            "merge_schema": True,
        },
        DONE,
        Lineage(
            (replace(LANDED, uri="s3://landing/orders/", file_format="parquet"),),
            writes(
                row_changes=RowChanges(
                    (
                        NewValues({"id": "s.id"}, sees_source=True),
                        NewValues(None, sees_table=False, sees_source=True),
                        NewValues({"id": None}),
                    ),
                    source_alias="s",
                    table_alias="target",
                    keeps_rows=False,
                )
            ).outputs,
        ),
    ),
    (
        "WriteOperator",
        {"source_uri": "s3://landing/orders/day=*/part-*.json", "source_format": "JSON"},
        None,
        Lineage((LANDED,), (PLANNED,)),
    ),
    (
        "WriteOperator",
        {"source_uri": "s3://landing/orders/"},
        {**DONE, "metrics": WRITTEN},
        Lineage(
            (replace(LANDED, uri="s3://landing/orders/", file_format="parquet"),),
            writes(written=WrittenData(30, 900, 2)).outputs,
        ),
    ),
    (
        "WriteOperator",
        {**QUERY, "source_query": "select * from Orders", "mode": "overwrite"},
        {**DONE, "metrics": None},
        Lineage((ORDERS,), writes(change="OVERWRITE", copied_from=ORDERS).outputs),
    ),
    (
        "WriteOperator",
        {"source_tables": {"o": (OTHER, "triggering_event")}, "source_query": "SELECT * FROM o"},
        None,
        Lineage((LineageDataset(OTHER),), (PLANNED,)),
    ),
    (
        "WriteOperator",
        {**QUERY, "source_query": "SELECT * FROM orders LIMIT 5", "mode": "overwrite"}
        | {"replace_where": "id < 5"},
        DONE,
        Lineage((ORDERS,), writes().outputs),
    ),
    (
        "WriteOperator",
        {**QUERY, "source_query": "SELECT 1", "mode": "overwrite"}
        | {"partition_overwrite": "dynamic"},
        {**DONE, "version": 0},
        Lineage((ORDERS,), (LineageDataset(SALES, 0, change="CREATE"),)),
    ),
    (
        "WriteOperator",
        {"source_function": "rows:load", "mode": "ignore"},
        {**DONE, "committed": False},
        Lineage(),
    ),
    ("TimeTravelSnapshotOperator", {"version": 4}, None, reads(4)),
    ("TimeTravelSnapshotOperator", {}, {"version": 4}, reads(4)),
    (
        "TimeTravelSnapshotOperator",
        {"target_uri": COPY},
        None,
        Lineage((PLANNED,), (LineageDataset(COPY),)),
    ),
    (
        "TimeTravelSnapshotOperator",
        {"target_uri": COPY},
        COPIED,
        Lineage(
            (READ,),
            (
                LineageDataset(
                    COPY,
                    0,
                    change="CREATE",
                    written=WrittenData(30, files=2),
                    copied_from=READ,
                ),
                LineageDataset("s3://lake/old", is_table=False, change="DROP"),
            ),
        ),
    ),
    (
        "TimeTravelSnapshotOperator",
        {"target_uri": COPY, "target_format": "csv"},
        {**COPIED, "target_version": None, "deleted_copies": []},
        Lineage(
            (READ,),
            (
                LineageDataset(
                    COPY,
                    is_table=False,
                    written=WrittenData(30, files=2),
                    copied_from=READ,
                    file_format="csv",
                ),
            ),
        ),
    ),
    ("ChangeFeedOperator", {}, None, reads(None)),
    ("ChangeFeedOperator", {}, APPENDED, reads(4)),
    (
        "ChangeFeedOperator",
        {"target_uri": COPY},
        APPENDED,
        Lineage((READ,), (LineageDataset(COPY, 7, written=WrittenData(30), copied_from=READ),)),
    ),
    (
        "ChangeFeedOperator",
        {"target_uri": COPY},
        {**APPENDED, "target_version": None, "appended": False},
        reads(4),
    ),
    (
        "ChangeFeedOperator",
        {"target_uri": COPY, "target_format": "parquet"},
        None,
        Lineage((PLANNED,), (LineageDataset(COPY, is_table=False, file_format="parquet"),)),
    ),
]


def task_classes() -> Iterator[type[TableTask]]:
    """All operators and sensors of the provider."""
    info = get_provider_info()
    for kind in ("operators", "sensors"):
        for module in info[kind][0]["python-modules"]:
            names = importlib.import_module(module).__all__
            found = [getattr(importlib.import_module(module), name) for name in names]
            yield from (one for one in found if isinstance(one, type))


CLASSES = {found.__name__: found for found in task_classes()}


@pytest.mark.parametrize(
    ("name", "arguments", "result", "expected"),
    CASES,
    ids=[f"{number}-{case[0]}" for number, case in enumerate(CASES)],
)
def test_the_datasets_of_an_operator(
    name: str, arguments: Mapping[str, Any], result: Mapping[str, Any] | None, expected: Lineage
) -> None:
    task = CLASSES[name](task_id="task", table_uri=SALES, **arguments)
    assert task.datasets(result) == expected


def test_every_operator_has_a_case() -> None:
    assert {case[0] for case in CASES} == set(CLASSES)


@pytest.mark.parametrize("name", CLASSES)
def test_every_operator_collects_its_datasets(name: str) -> None:
    kind = CLASSES[name]
    assert issubclass(kind, LineageTask)
    # Airflow wraps the method once more.
    method: Any = kind.execute
    files = []
    while method is not None:
        files.append(method.__code__.co_filename)
        method = getattr(method, "__wrapped__", None)
    assert any(file.endswith("airflow_delta/operators/lineage/task.py") for file in files)


@pytest.mark.parametrize("failure", [AirflowTaskTimeout("late"), OSError("down")])
def test_what_fails_to_be_collected_fails_no_task(
    failure: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task may have committed, and the store is read once more."""

    def fail(*_: Any) -> Any:
        raise failure

    monkeypatch.setattr("airflow_delta.operators.lineage.task.is_openlineage_enabled", lambda: True)
    monkeypatch.setattr("airflow_delta.hooks.lineage.columns.TableColumns.add", fail)
    task = CLASSES["VacuumOperator"](task_id="task", table_uri=SALES)
    result = {"table_uri": SALES, "version": 3}
    assert with_lineage(lambda _: result)(task) == result
    assert task._lineage is not None
    assert task._lineage.inputs
