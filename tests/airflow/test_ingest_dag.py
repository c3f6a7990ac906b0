"""The example DAG that writes, run whole."""

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path
from typing import Any

import pytest

from airflow_delta.engine import DeltaTable
from tests.airflow.maintenance import rows_by_peer, run_dag


@pytest.mark.deep
def test_a_run_appends_its_files_and_pins_the_version(
    airflow_database: Path, tmp_path: Path
) -> None:
    from airflow.dag_processing.dagbag import DagBag

    dag = DagBag().dags["delta_ingest"]
    table = tmp_path / "orders"
    state, returned = run_dag(dag, table_uri=str(table), landing_dir=f"{tmp_path}/landing/")
    assert state == "success"
    assert returned["write"]["metrics"].items() >= {"numFiles": 1, "numOutputRows": 3}.items()
    assert (returned["write"]["version"], returned["write"]["repeated"]) == (0, False)
    assert (returned["profile"]["version"], returned["profile"]["num_rows"]) == (0, 3)
    assert sorted((row["country"], row["amount"]) for row in rows_by_peer(table)) == [
        ("de", 1.25),
        ("de", 9.5),
        ("fr", 20.0),
    ]
    assert all(isinstance(row["day"], dt.date) for row in rows_by_peer(table))
    (app_id,) = DeltaTable(str(table)).snapshot().transactions
    assert app_id == "airflow:delta_ingest.write"


def test_the_dag_of_the_guide_can_be_loaded() -> None:
    page = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "write-with-spark.md"
    code = re.findall(r"^```python\n(.*?)^```", page.read_text("utf-8"), re.M | re.S)[-1]
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(code, str(page), "exec"), names)
    assert names["enrich"].upstream_task_ids == {"land", "customers"}
    assert names["score"].upstream_task_ids == {"enrich"}
