"""The example DAGs are in the package, and the folder ``dags`` shows each of them to Airflow."""

from __future__ import annotations

import re
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace

import pytest
import structlog
from airflow.dag_processing.dagbag import DagBag
from airflow.dag_processing.processor import DagFileParseRequest, _parse_file
from airflow.sdk.execution_time import macros
from airflow.sdk.execution_time.comms import _RequestFrame

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


@pytest.mark.parametrize("name", ["delta_ingest", "delta_upsert", "delta_version_copy"])
def test_runs_of_the_same_time_have_their_own_directories(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dag = DagBag(dag_folder=EXAMPLES / f"{name}.py").dags[name]
    found = []
    for run_id in ("manual__2026-01-31T12:00:00+00:00", "scheduled__a b/c", "scheduled__a b/c"):
        context = {
            "dag_run": SimpleNamespace(run_after=datetime(2026, 1, 31, 12, tzinfo=timezone.utc)),
            "run_id": run_id,
            "macros": macros,
            "params": {
                "landing_dir": str(tmp_path),
                "target_dir": str(tmp_path),
                "table_uri": "/data/sales/",
                "delta_conn_id": None,
            },
        }
        if name == "delta_version_copy":
            copy = dag.get_task("copy")
            found.append(copy.render_template(copy.target_uri, context))
        else:
            land = dag.get_task("land").python_callable
            monkeypatch.setitem(land.__globals__, "get_current_context", lambda c=context: c)
            found.append(land())
    first, second, again = found
    assert first != second == again
    for path in found:
        directory, _, last = path.removeprefix("file://").rpartition("/")
        assert directory == str(tmp_path)
        assert re.fullmatch(r"[\w-]*20260131T120000_[0-9a-f-]+", last)


@pytest.mark.parametrize("name", sorted(names(EXAMPLES)))
def test_the_dag_processor_can_send_what_it_has_parsed(name: str, airflow_database: Path) -> None:
    """It takes another way than ``airflow dags test``: messages that know no class but Python's own."""
    asked = DagFileParseRequest(
        file=str(EXAMPLES / f"{name}.py"), bundle_path=EXAMPLES, bundle_name="testing"
    )
    found = _parse_file(asked, structlog.get_logger())
    assert found is not None
    assert not found.import_errors
    assert [dag.dag_id for dag in found.serialized_dags] == [name]
    assert _RequestFrame(id=1, body=found.model_dump()).as_bytes()
