"""The walls of the house: what importing a layer must not load."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from airflow_delta.engine import DeltaTable
from tests.log_builder import add, remove, write_table
from tests.row_tables import random_table


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
        ("import airflow_delta.engine.table", {"airflow", "pyspark", "pandas"}),
        ("import airflow_delta.provider", {"airflow", "pyspark", "pyarrow", "numpy"}),
        ("import airflow_delta.spark", {"airflow", "pyspark", "pyarrow", "pandas"}),
        ("import airflow_delta.cli.main", {"airflow", "pyspark", "pyarrow", "pandas"}),
    ],
)
def test_importing_loads_nothing_heavy(statement: str, absent: set[str]) -> None:
    assert not loaded_after(statement) & absent


READ_A_TABLE = """
from airflow_delta.engine import DeltaTable
table = DeltaTable({root!r})
snapshot = table.snapshot()
assert table.latest_version() == snapshot.version == 2
assert snapshot.files(columns=["path", "size"]).num_rows == 2
assert snapshot.files().num_rows == 2
assert len(table.history()) == 3
assert table.version_at(snapshot.timestamp) == 2
table.checkpoint()
"""

READ_ROWS = """
from airflow_delta.engine import DeltaTable
assert sum(batch.num_rows for batch in DeltaTable({root!r}).snapshot().scan()) == {rows}
"""


@pytest.mark.parametrize("checkpoint", [None, 1, 2])
def test_reading_a_table_does_not_load_pandas(tmp_path: Path, checkpoint: int | None) -> None:
    # It costs several times what opening a table does, and pyarrow loads it for many small things.
    vector = {"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "offset": 4,
              "sizeInBytes": 40, "cardinality": 6}  # fmt: skip
    write_table(
        tmp_path,
        [
            add("a", stats='{"numRecords":1}', tags={"k": "v"}),
            add("b", partitionValues={"p": None}),
        ],
        [remove("b"), add("file:///else/where/c"), remove("a"), add("a", deletionVector=vector)],
        [{"commitInfo": {"operation": "WRITE"}}],
    )
    if checkpoint is not None:
        DeltaTable(str(tmp_path)).checkpoint(checkpoint)
    assert "pandas" not in loaded_after(READ_A_TABLE.format(root=str(tmp_path)))


def test_reading_rows_does_not_load_pandas(tmp_path: Path) -> None:
    made = random_table(tmp_path / "t", 0, mode="name", partition_by=("p", "q"))
    code = READ_ROWS.format(root=str(made.path), rows=len(made.rows))
    assert "pandas" not in loaded_after(code)


def test_operator_modules_load_neither_the_engines_libraries_nor_spark() -> None:
    # Operators are imported whenever Airflow parses a DAG.
    modules = [
        "operators.checkpoint",
        "operators.log_compaction",
        "operators.time_travel_snapshot",
        "sensors.table_version",
        "triggers.table_version",
    ]
    statement = "\n".join(f"import airflow_delta.{module}" for module in modules)
    assert not loaded_after(statement) & {"pyarrow", "pyspark", "numpy"}
