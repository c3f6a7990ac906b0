"""Row tracking is enabled by a task."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.operators.row_tracking import EnableRowTrackingOperator
from airflow_delta.results import RowTrackingResult
from tests.airflow.failures import fails_for_good
from tests.airflow.run_context import context_of
from tests.airflow.test_outputs import check


def enable(table: Path, **arguments: Any) -> dict[str, Any]:
    task = EnableRowTrackingOperator(task_id="track", table_uri=str(table), **arguments)
    result = task.execute(context_of("track"))
    assert json.loads(json.dumps(result)) == result, "XCom carries JSON"
    check(result, RowTrackingResult, "track")
    return result


def test_row_tracking_is_enabled_once(sales_copy: Path) -> None:
    files = DeltaTable(sales_copy).snapshot().num_files
    dry = enable(sales_copy, dry_run="True")
    assert (dry["version"], dry["enabled"], dry["num_commits"], dry["dry_run"]) == (
        3,
        False,
        0,
        True,
    )
    assert len(dry["steps"]) == 3
    done = enable(sales_copy)
    assert (done["version"], done["enabled"], done["num_commits"]) == (6, True, 3)
    assert (done["first_version"], done["last_version"]) == (4, 6)
    assert (done["files"], done["files_backfilled"]) == (files, files)
    again = enable(sales_copy)
    assert (again["version"], again["num_commits"], again["steps"]) == (6, 0, [])
    assert (again["first_version"], again["last_version"]) == (None, None)


def test_a_table_whose_row_tracking_is_suspended(sales_copy: Path) -> None:
    DeltaTable(sales_copy).alter.set_properties({"delta.rowTrackingSuspended": "true"})
    with fails_for_good(InvalidArgumentError, match="row tracking is suspended"):
        enable(sales_copy)
