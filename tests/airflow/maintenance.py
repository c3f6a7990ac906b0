"""Run the maintenance DAG as ``airflow dags test`` does, and look at what came of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

__all__ = ["checkpoint_only", "load_dag", "rows_by_peer", "run_dag"]


def load_dag() -> Any:
    """The DAG, from the folder that Airflow is configured with; anew for each run.

    A run in this process leaves its params behind in the DAG's object.
    """
    from airflow.dag_processing.dagbag import DagBag

    bag = DagBag()
    assert bag.import_errors == {}
    return bag.dags["delta_table_maintenance"]


def run_dag(dag: Any, **params: Any) -> tuple[str, dict[str, Any]]:
    """Run the DAG to its end: its state, and what each task returned."""
    run = dag.test(run_conf=params)
    instances = run.get_task_instances()
    returned = {
        instance.task_id: instance.xcom_pull(task_ids=instance.task_id) for instance in instances
    }
    return str(run.state), returned


def rows_by_peer(table: Path, version: int | None = None) -> list[dict[str, Any]]:
    """The rows of a table, as deltalake reads them."""
    rows: list[dict[str, Any]] = pa.table(
        DeltaTable(str(table), version=version).scan().read_all()
    ).to_pylist()
    return rows


def checkpoint_only(table: Path, version: int) -> None:
    """Take all commits up to a version away, so that its checkpoint must tell everything."""
    for commit in (table / "_delta_log").glob("*.json"):
        if int(commit.name[:20]) <= version:
            commit.unlink()
