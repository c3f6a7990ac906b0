"""The example DAGs are in the package, and the folder ``dags`` shows each of them to Airflow."""

from __future__ import annotations

from pathlib import Path

from airflow.dag_processing.dagbag import DagBag

import airflow_delta

PACKAGE = Path(airflow_delta.__file__).parent
EXAMPLES = PACKAGE / "example_dags"
SHOWN = PACKAGE.parent / "dags"


def names(folder: Path) -> set[str]:
    return {file.stem for file in folder.glob("*.py")} - {"__init__"}


def test_each_example_is_a_dag_of_its_files_name() -> None:
    bag = DagBag(dag_folder=EXAMPLES)
    assert bag.import_errors == {}
    assert set(bag.dags) == names(EXAMPLES)
    assert len(bag.dags) >= 7


def test_the_folder_of_dags_shows_the_examples_of_the_package() -> None:
    # With safe mode, as Airflow looks for DAGs: a file must have the words "dag" and "airflow" in it.
    bag = DagBag(dag_folder=SHOWN, safe_mode=True)
    assert bag.import_errors == {}
    assert set(bag.dags) == names(SHOWN) == names(EXAMPLES)
    for name, dag in bag.dags.items():
        # What a worker loads when it runs a task.
        assert dag.fileloc == str(SHOWN / f"{name}.py")
