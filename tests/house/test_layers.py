"""The walls of the house: what importing a layer must not load."""

from __future__ import annotations

import subprocess
import sys

import pytest


def loaded_after(statement: str) -> set[str]:
    """The top-level packages that a fresh interpreter has loaded after a statement."""
    code = (
        f"{statement}\nimport sys\nprint('\\n'.join({{m.partition('.')[0] for m in sys.modules}}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    return set(done.stdout.split())


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("import airflow_delta", {"airflow", "pyspark", "pyarrow", "numpy", "pandas"}),
        ("import airflow_delta.engine", {"airflow", "pyspark", "pyarrow", "numpy", "pandas"}),
        ("import airflow_delta.engine.errors", {"airflow", "pyspark", "pyarrow", "numpy"}),
        ("import airflow_delta.engine.table", {"airflow", "pyspark"}),
        ("import airflow_delta.provider", {"airflow", "pyspark", "pyarrow", "numpy"}),
        ("import airflow_delta.spark", {"airflow", "pyspark", "pyarrow", "pandas"}),
        ("import airflow_delta.cli.main", {"airflow", "pyspark", "pyarrow", "pandas"}),
    ],
)
def test_importing_loads_nothing_heavy(statement: str, absent: set[str]) -> None:
    assert not loaded_after(statement) & absent


@pytest.mark.parametrize(
    "module",
    [
        "operators.checkpoint",
        "operators.time_travel_snapshot",
        "sensors.table_version",
        "triggers.table_version",
    ],
)
def test_an_operator_module_loads_neither_engine_libraries_nor_spark(module: str) -> None:
    # Operators are imported whenever Airflow parses a DAG.
    assert not loaded_after(f"import airflow_delta.{module}") & {"pyarrow", "pyspark", "numpy"}
