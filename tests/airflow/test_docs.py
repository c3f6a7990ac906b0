"""The examples of the documentation work."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from airflow_delta.sensors.table_version import TableVersionSensor

DOCS = Path(__file__).resolve().parents[2] / "docs"


def example(page: str) -> dict[str, Any]:
    """The names that the one Python example of a page defines."""
    (code,) = re.findall(r"^```python\n(.*?)^```", (DOCS / page).read_text(), re.M | re.S)
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(code, page, "exec"), names)
    return names


def test_the_dag_of_the_guide_can_be_loaded() -> None:
    checkpoint = example("how-to/maintain-a-table.md")["checkpoint"]
    assert [task.task_id for task in checkpoint.dag.topological_sort()] == [
        "wait",
        "pin",
        "checkpoint",
    ]


def test_the_wait_of_the_guide_follows_the_run_before() -> None:
    template = example("how-to/maintain-a-table.md")["SEEN"]
    for found, after in ((None, "-1"), ({"version": 24}, "24")):
        asked: list[dict[str, Any]] = []

        def xcom_pull(found: Any = found, asked: Any = asked, **arguments: Any) -> Any:
            asked.append(arguments)
            return found

        sensor = TableVersionSensor(task_id="wait", table_uri="t", after_version=template)
        context: Any = {"ti": SimpleNamespace(xcom_pull=xcom_pull)}
        sensor.render_template_fields(context)
        assert sensor.after_version == after
        assert asked == [{"task_ids": "wait", "include_prior_dates": True}]


def test_the_task_of_the_reference_can_be_loaded() -> None:
    count_files = example("reference/operators.md")["count_files"]
    assert count_files.function.__name__ == "count_files"
