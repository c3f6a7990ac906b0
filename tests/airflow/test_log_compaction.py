"""The compaction of logs as a task, and the example DAG around it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from airflow_delta.hooks.failures import TableFailure
from airflow_delta.operators.log_compaction import LogCompactionOperator
from airflow_delta.templates import optional
from airflow_delta.version_compat import AirflowSkipException
from tests.airflow.maintenance import rows_by_peer, run_dag


def compact(table: Path | str, **arguments: Any) -> dict[str, Any]:
    operator = LogCompactionOperator(task_id="compact", table_uri=str(table), **arguments)
    context: Any = {}
    return operator.execute(context)


def compactions(table: Path) -> list[Path]:
    return sorted((table / "_delta_log").glob("*.compacted.json"))


def test_arguments_are_rendered() -> None:
    operator = LogCompactionOperator(
        task_id="compact",
        table_uri="{{ params.uri }}",
        start="{{ params.start }}",
        end=optional("{{ params.end }}"),
        delta_conn_id="{{ params.conn }}",
    )
    params = {"uri": "s3://lake/t", "start": 4, "end": None, "conn": "lake"}
    operator.render_template_fields({"params": params})  # type: ignore[arg-type]
    found = (operator.table_uri, operator.start, operator.end, operator.delta_conn_id)
    assert found == ("s3://lake/t", "4", None, "lake")


@pytest.mark.parametrize("end", [3, "3", None])
def test_a_range_is_compacted(sales_copy: Path, end: Any) -> None:
    result = compact(sales_copy, start="1", end=end)
    (file,) = compactions(sales_copy)
    assert file == sales_copy / result["path"]
    assert file.name == f"{1:020}.{3:020}.compacted.json"
    assert result["bytes"] == file.stat().st_size
    # A pledge comes before the actions: two appends, and a deletion that rewrites a file.
    assert result["rows"] == len(file.read_text().splitlines()) - 1
    keys = ("table_uri", "version", "kind", "start", "end", "files")
    assert {key: result[key] for key in keys} == {
        "table_uri": str(sales_copy),
        "version": 3,
        "kind": "compaction",
        "start": 1,
        "end": 3,
        "files": 3,
    }
    assert result["written"] is True
    assert result["duration_ms"] >= 0
    assert json.loads(json.dumps(result)) == result, "XCom carries JSON"
    assert sorted(row["id"] for row in rows_by_peer(sales_copy)) == list(range(5, 30))


def test_with_little_to_do_the_task_is_skipped_and_says_why(sales_copy: Path) -> None:
    with pytest.raises(AirflowSkipException, match=r"4 commits up to version 3 .* at least 10"):
        compact(sales_copy)
    assert compactions(sales_copy) == []


def test_a_retry_finds_the_file_of_the_first_try(sales_copy: Path) -> None:
    compact(sales_copy, start=1)
    with pytest.raises(AirflowSkipException, match=r"compacted\.json exists already"):
        compact(sales_copy, start=1)


def test_a_dry_run_writes_nothing(sales_copy: Path) -> None:
    result = compact(sales_copy, start=1, dry_run=True)
    assert (result["written"], result["bytes"], result["rows"]) == (False, None, None)
    assert (result["start"], result["end"], result["files"]) == (1, 3, 3)
    assert compactions(sales_copy) == []


def test_airflows_own_dry_run_still_works() -> None:
    LogCompactionOperator(task_id="compact", table_uri="/t", dry_run=True).dry_run()


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"start": "first"}, ValueError, "start: expected a version"),
        ({"start": 1, "end": 9}, TableFailure, "covers versions 0 to 3"),
        ({"start": 3, "end": 1}, ValueError, "start=3 is after end=1"),
    ],
)
def test_what_is_no_range_fails(
    sales_copy: Path, arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        compact(sales_copy, **arguments)
    assert compactions(sales_copy) == []


def test_the_example_dag(airflow_database: Path, sales_copy: Path) -> None:
    from airflow.dag_processing.dagbag import DagBag

    bag = DagBag()
    assert bag.import_errors == {}
    state, returned = run_dag(
        bag.dags["delta_log_compaction"], table_uri=str(sales_copy), start=1, end=2
    )
    assert state == "success"
    assert sales_copy / returned["compact_log"]["path"] in compactions(sales_copy)
