"""Jobs that load what DAG files need: the operators, and the example DAGs.

The dag processor does this again and again, each time in a process that has loaded Airflow already. The
peers are Airflow itself, and DAG files of the same number of DAGs without operators of this package.
"""

from __future__ import annotations

import importlib
import os
from pathlib import Path

from benchmarks.job import Job, Outcome, Side
from benchmarks.measure import Stopwatch

__all__ = ["JOBS"]

_DAGS = Path(__file__).resolve().parents[2] / "dags"

_OTHER_DAG = """
import pendulum
from airflow.sdk import DAG, task

with DAG("other_{number}", schedule=None, start_date=pendulum.datetime(2026, 1, 1)):

    @task
    def nothing():
        pass

    nothing() >> nothing()
"""


def _home(work: Path, _: int) -> Path:
    """An empty folder for the settings of Airflow."""
    home = work / "loading"
    home.mkdir(exist_ok=True)
    return home


def _other_dags(work: Path, actions: int) -> Path:
    """A folder with as many DAG files as `dags/` has."""
    folder = _home(work, actions) / "other-dags"
    folder.mkdir(exist_ok=True)
    for number, _file in enumerate(sorted(_DAGS.glob("*.py"))):
        text = _OTHER_DAG.format(number=number)
        (folder / f"other_{number}.py").write_text(text, encoding="ascii")
    return folder


def _set_home(home: str) -> None:
    # Airflow reads it when it is imported. The settings of whoever measures don't matter.
    os.environ["AIRFLOW_HOME"] = home
    os.environ["AIRFLOW__CORE__LOAD_EXAMPLES"] = "False"


def _import_sdk() -> None:
    """Import `airflow.sdk` with the names that DAG files use: it loads each when it is first used."""
    from airflow.sdk import DAG, Asset, BaseOperator, task  # noqa: F401


def _after_sdk(home: str) -> list[str]:
    """The modules of all operators and sensors, when `airflow.sdk` is imported."""
    from airflow_delta.provider import get_provider_info

    _set_home(home)
    _import_sdk()
    info = get_provider_info()
    groups = [*info["operators"], *info["sensors"]]
    return [module for group in groups for module in group["python-modules"]]


def _import_operators(modules: list[str]) -> Outcome:
    watch = Stopwatch()
    for module in modules:
        importlib.import_module(module)
    return watch.stop()(1, {})


def _import_airflow(_: None) -> Outcome:
    watch = Stopwatch()
    _import_sdk()
    return watch.stop()(1, {})


def _after_airflow(folder: str) -> str:
    """The folder of DAGs, when the dag processor's modules are imported."""
    _set_home(str(Path(folder).parent))
    _import_sdk()
    importlib.import_module("airflow.dag_processing.dagbag")
    return folder


def _parse(folder: str) -> Outcome:
    """Parse all DAG files of a folder; the answer is the number of DAGs."""
    from airflow.dag_processing.dagbag import DagBag

    watch = Stopwatch()
    found = DagBag(dag_folder=folder)
    stopped = watch.stop()
    if found.import_errors:
        raise RuntimeError(f"{folder}: DAG files with errors: {found.import_errors}")
    return stopped(len(found.dags), {})


JOBS = (
    Job(
        "imports",
        "import all modules of operators and sensors after `airflow.sdk`",
        _home,
        Side("ours", _import_operators, _after_sdk, loads=()),
        (Side("airflow.sdk itself", _import_airflow, _set_home, loads=()),),
    ),
    Job(
        "parse-dags",
        "parse the DAG files of `dags/`",
        _other_dags,
        Side("ours", lambda _: _parse(str(_DAGS)), _after_airflow, loads=()),
        (Side("files of Airflow's own tasks", _parse, _after_airflow, loads=()),),
    ),
)
