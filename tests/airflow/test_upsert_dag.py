"""The example DAG that merges, run whole, and the DAGs of the guides."""

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tests.airflow.maintenance import rows_by_peer, run_dag

GUIDES = Path(__file__).resolve().parents[2] / "docs" / "how-to"


@pytest.mark.deep
def test_a_run_merges_its_files_and_appends_the_changes(
    airflow_database: Path, tmp_path: Path
) -> None:
    from airflow.dag_processing.dagbag import DagBag

    table, changes = tmp_path / "orders", tmp_path / "changes"
    before = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    rows = {
        "id": pa.array([1, 2, 4], pa.int32()),
        "status": ["open"] * 3,
        "changed_at": pa.array([before] * 3, pa.timestamp("us", "UTC")),
    }
    properties = {"delta.enableChangeDataFeed": "true"}
    write_deltalake(str(table), pa.table(rows), configuration=properties)
    state, returned = run_dag(
        DagBag().dags["delta_upsert"],
        table_uri=str(table),
        landing_dir=f"{tmp_path}/landing",
        changes_uri=str(changes),
    )
    assert state == "success"
    counts = {"Updated": 1, "Deleted": 1, "Inserted": 1}
    expected = {f"numTargetRows{name}": number for name, number in counts.items()}
    assert returned["upsert"]["metrics"].items() >= expected.items()
    assert (returned["upsert"]["version"], returned["upsert"]["repeated"]) == (1, False)
    statuses = {row["id"]: row["status"] for row in rows_by_peer(table)}
    assert statuses == {1: "paid", 3: "open", 4: "open"}
    assert returned["changes"]["counts"] == {
        "delete": 1,
        "insert": 4,
        "update_postimage": 1,
        "update_preimage": 1,
    }
    kinds = [
        (row["id"], row["_change_type"]) for row in rows_by_peer(changes) if row["_commit_version"]
    ]
    assert sorted(kinds) == [
        (1, "update_postimage"),
        (1, "update_preimage"),
        (2, "delete"),
        (3, "insert"),
    ]


@pytest.mark.parametrize(
    ("page", "task", "upstream"),
    [
        ("upsert.md", "expire", {"upsert"}),
        ("delete-personal-data.md", "vacuum", {"forget"}),
        ("keep-history.md", "keep", {"before", "changes"}),
    ],
)
def test_the_dags_of_the_guides_can_be_loaded(page: str, task: str, upstream: set[str]) -> None:
    code = re.findall(r"^```python\n(.*?)^```", (GUIDES / page).read_text("utf-8"), re.M | re.S)[-1]
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(code, page, "exec"), names)
    assert names[task].upstream_task_ids == upstream
