"""The examples of the documentation work."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyspark
import pytest

from airflow_delta.sensors.table_version import TableVersionSensor

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"


def example(page: Path) -> dict[str, Any]:
    """The names that the first Python example of a page defines."""
    code = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.M | re.S)[0]
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(code, str(page), "exec"), names)
    return names


@pytest.mark.parametrize("page", [DOCS / "how-to" / "maintain-a-table.md", ROOT / "README.md"])
def test_the_dag_of_the_page_can_be_loaded(page: Path) -> None:
    checkpoint = example(page)["checkpoint"]
    assert [task.task_id for task in checkpoint.dag.topological_sort()] == [
        "wait",
        "pin",
        "checkpoint",
    ]


def test_the_wait_of_the_guide_follows_the_run_before() -> None:
    template = example(DOCS / "how-to" / "maintain-a-table.md")["SEEN"]
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
    count_files = example(DOCS / "reference" / "operators.md")["count_files"]
    assert count_files.function.__name__ == "count_files"


def test_the_connectors_of_the_guide_fit_the_installed_spark() -> None:
    jars = Path(pyspark.__file__).parent / "jars"
    (client,) = jars.glob("hadoop-client-api-*.jar")
    version = client.stem.removeprefix("hadoop-client-api-")
    guide = (DOCS / "how-to" / "maintain-a-table.md").read_text()
    assert set(re.findall(r"hadoop-(?:aws|azure):([\w.]+)", guide)) == {version}
    assert f"{version} for PySpark {pyspark.__version__}" in guide
