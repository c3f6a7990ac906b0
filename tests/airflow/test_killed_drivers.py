"""Drivers that are killed while they change rows: all or nothing, and exactly once with the retry."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_delta.engine import AddFile, DeltaTable
from airflow_delta.engine.model.schema import LONG, StructField, StructType
from airflow_delta.operators.delete import DeleteOperator
from airflow_delta.operators.merge import MergeOperator
from airflow_delta.operators.update import UpdateOperator
from airflow_delta.version_compat import AirflowException
from tests.airflow.run_context import context_of

pytestmark = pytest.mark.deep

KILLED = '''
"""Python imports this module when it starts: that of the driver kills itself at one of its steps."""
import os
import signal
from airflow_delta.engine import OptimisticTransaction
from airflow_delta.engine.deletion_vectors import write as vectors

def killed(owner, name, after):
    function = getattr(owner, name)
    def kill(*arguments, **named):
        if after:
            function(*arguments, **named)
        open(os.environ["TEST_KILLED_MARK"], "x").close()
        os.kill(os.getpid(), signal.SIGKILL)
    setattr(owner, name, kill)

match os.environ["TEST_KILLED"]:
    case "after the deletion vectors":
        killed(vectors, "write_deletion_vectors", True)
    case "after the data files":
        from airflow_delta.spark.writer import file_writing
        killed(file_writing, "write_data_files", True)
    case "after the change data files":
        from airflow_delta.spark.dml import change_files
        killed(change_files, "write_data_files", True)
    case "before the commit":
        killed(OptimisticTransaction, "commit", False)
    case "after the commit":
        killed(OptimisticTransaction, "commit", True)
'''
NEW = [{"id": 3, "v": 30}, {"id": 4, "v": 40}, {"id": 50, "v": 50}]
KEPT = [(id_, 0) for id_ in range(10) if id_ not in (3, 4)]
CHANGES: dict[str, tuple[Any, dict[str, Any], list[tuple[int, int]]]] = {
    "delete": (DeleteOperator, {"condition": "id IN (3, 4)"}, []),
    "update": (
        UpdateOperator,
        {"set": {"v": "v + id"}, "condition": "id IN (3, 4)"},
        [(3, 3), (4, 4)],
    ),
    "merge": (
        MergeOperator,
        {
            "on": "target.id = source.id",
            "clauses": [
                {"when": "matched", "then": "update", "condition": "source.id = 3"},
                {"when": "matched", "then": "delete"},
                {"when": "not_matched", "then": "insert"},
            ],
        },
        [(3, 30), (50, 50)],
    ),
}
"""For each change the operator, and the rows beside `KEPT`."""
CASES = [
    *((change, "after the commit") for change in CHANGES),
    ("update", "before the commit"),
    ("merge", "after the deletion vectors"),
]
"""Every operator finds its commit again. A kill at any step before leaves nothing that the next try meets:
`tests/spark/dml/test_interrupted.py` has all those steps, of all changes, in one process."""


@pytest.mark.parametrize(("change", "step"), CASES)
def test_a_killed_driver_and_the_retry_change_the_rows_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str, step: str
) -> None:
    table = tmp_path / "table"
    write_table(table, has_vectors=change != "update")
    task, rows = change_task(change, table, tmp_path)
    with killed_at(step, tmp_path, monkeypatch):
        if step == "after the commit":
            assert task.execute(context_of("change"))["repeated"], "found by the try itself"
        else:
            with pytest.raises(AirflowException):
                task.execute(context_of("change"))
    made = step == "after the commit"
    assert DeltaTable(str(table)).latest_version() == 1 + made
    assert rows_of(table) == sorted([*KEPT, *rows] if made else [(n, 0) for n in range(10)])
    result = task.execute(context_of("change"))
    assert (result["version"], result["committed"], result["repeated"]) == (2, True, made)
    assert rows_of(table) == sorted([*KEPT, *rows])
    assert DeltaTable(str(table)).latest_version() == 2
    findings = Counter(f.severity for f in DeltaTable(str(table)).check(depth="files").findings)
    assert not findings.keys() - {"info"}


ORPHANS = [("update", "after the data files"), ("merge", "after the change data files")]


@pytest.mark.parametrize(("change", "step"), ORPHANS)
def test_a_vacuum_deletes_what_a_killed_driver_has_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str, step: str
) -> None:
    table = tmp_path / "table"
    write_table(table, has_vectors=False, keeps_feed=True)
    task, rows = change_task(change, table, tmp_path)
    before = data_files(table)
    with killed_at(step, tmp_path, monkeypatch), pytest.raises(AirflowException):
        task.execute(context_of("change"))
    orphans = data_files(table) - before
    assert orphans
    assert any("/_change_data/" in path for path in orphans) == ("change data" in step)
    assert DeltaTable(str(table)).latest_version() == 1
    assert task.execute(context_of("change"))["version"] == 2
    old = time.time() - 8 * 24 * 3600
    for path in orphans:
        os.utime(path, (old, old))
    kept = data_files(table) - orphans
    DeltaTable(str(table)).vacuum(dry_run=False)
    assert data_files(table) == kept
    assert rows_of(table) == sorted([*KEPT, *rows])
    findings = DeltaTable(str(table)).check(depth="files").findings
    assert not [finding for finding in findings if finding.severity != "info"]


def change_task(change: str, table: Path, folder: Path) -> tuple[Any, list[tuple[int, int]]]:
    """The task of a change, and the rows that there are then beside `KEPT`."""
    kind, arguments, rows = CHANGES[change]
    if change == "merge":
        source = folder / "new.json"
        source.write_text("\n".join(map(json.dumps, NEW)))
        arguments = {**arguments, "source_uri": str(source), "source_format": "json"}
    return kind(task_id="change", table_uri=str(table), **arguments), rows


@contextmanager
def killed_at(step: str, root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Drivers kill themselves at a step, the first one at least."""
    folder = root / "killed"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(KILLED)
    with monkeypatch.context() as patch:
        patch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
        patch.setenv("TEST_KILLED", step)
        patch.setenv("TEST_KILLED_MARK", str(folder / "mark"))
        yield
    assert (folder / "mark").exists(), "killed, and nothing else"


def data_files(table: Path) -> set[str]:
    """The files of rows below a table, also those of changed rows."""
    return {str(path) for path in table.rglob("*.parquet") if "_delta_log" not in path.parts}


def write_table(table: Path, *, has_vectors: bool, keeps_feed: bool = False) -> None:
    """Write a table of ten rows in one file; version 0 creates it."""
    schema = StructType((StructField("id", LONG), StructField("v", LONG)))
    properties = {
        "delta.enableDeletionVectors": str(has_vectors).lower(),
        "delta.enableChangeDataFeed": str(keeps_feed).lower(),
    }
    delta = DeltaTable.create(str(table), schema, properties=properties)
    pq.write_table(pa.table({"id": range(10), "v": [0] * 10}), table / "rows.parquet")
    transaction = delta.transaction("WRITE")
    size = (table / "rows.parquet").stat().st_size
    stats = json.dumps({"numRecords": 10})
    transaction.add_file(AddFile("rows.parquet", {}, size, 1, data_change=True, stats=stats))
    transaction.commit()


def rows_of(table: Path) -> list[tuple[int, int]]:
    found = DeltaTable(str(table)).snapshot().to_arrow()
    return sorted(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True))
