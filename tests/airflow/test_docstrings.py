"""The code blocks in docstrings for authors of DAGs do what they say."""

from __future__ import annotations

import json
import re
import shlex
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import jinja2
import pyarrow as pa
import pytest
from airflow.sdk import AssetWatcher, task
from deltalake import CommitProperties, write_deltalake

from airflow_delta.assets import delta_asset
from airflow_delta.engine import DeltaTable
from airflow_delta.provider import get_provider_info
from airflow_delta.task_runs import commit_user_metadata
from airflow_delta.triggers.new_versions import DeltaTableVersionTrigger
from tests.airflow.dag_runs import new_dag, run_of
from tests.docstring_blocks import docstring_blocks

BLOCKS = docstring_blocks()
TASKS = [name for name in BLOCKS if ".operators." in name] + ["airflow_delta.templates"]
EXAMPLES = [name for name in BLOCKS if name.startswith("airflow_delta.example_dags")]


def operators() -> dict[str, Any]:
    """The operators by name."""
    groups = get_provider_info()["operators"]
    modules = [import_module(name) for group in groups for name in group["python-modules"]]
    return {name: getattr(module, name) for module in modules for name in module.__all__}


def run(name: str, number: int = 0, **given: Any) -> dict[str, Any]:
    """The names that a block defines, beside those that it is given."""
    names = {"__name__": "example", **given}
    exec(compile(BLOCKS[name][number], name, "exec"), names)
    return names


@pytest.mark.parametrize("name", TASKS)
def test_the_tasks_can_be_loaded(name: str) -> None:
    with new_dag() as dag:
        run(name, **operators())
    operator = name.rpartition(".")[2].replace("templates", "TimeTravelSnapshotOperator")
    assert operator in {type(each).__name__ for each in dag.tasks}
    if operator == "TimeTravelSnapshotOperator":
        assert dag.get_task("pin").table_uri


def test_a_task_takes_a_result() -> None:
    with new_dag() as dag:
        pin = operators()["TimeTravelSnapshotOperator"](task_id="pin", table_uri="/t")
        count = run("airflow_delta.results", task=task, pin=pin)["count"]
    assert dag.get_task("count").upstream_task_ids == {"pin"}
    assert count.function({"num_rows": 7}) == 7


def test_an_asset_has_the_uri() -> None:
    (block,) = BLOCKS["airflow_delta.assets"]
    (uri,) = re.findall("# its URI is (.*)", block)
    assert run("airflow_delta.assets")["SALES"].uri == uri


def test_a_watcher_watches_its_asset() -> None:
    given = {kind.__name__: kind for kind in (AssetWatcher, DeltaTableVersionTrigger)}
    name = f"{DeltaTableVersionTrigger.__module__}.DeltaTableVersionTrigger"
    asset = run(name, delta_asset=delta_asset, **given)["SALES"]
    (watcher,) = asset.watchers
    assert watcher.trigger.serialize()[1]["table_uri"] == asset.uri


def test_commits_record_the_task(airflow_database: Path, tmp_path: Path) -> None:
    name = "airflow_delta.task_runs.commit_user_metadata"
    frame = MagicMock()

    def commit() -> None:
        run(
            name,
            commit_user_metadata=commit_user_metadata,
            df=frame,
            write_deltalake=write_deltalake,
            CommitProperties=CommitProperties,
            uri=str(tmp_path / "table"),
            data=pa.table({"id": [1]}),
        )

    with new_dag() as dag:
        task(commit)()
    assert run_of(dag).state == "success"
    (info,) = DeltaTable(tmp_path / "table").history()
    assert info.task_run is not None
    assert info.task_run["task_id"] == "commit"
    (option,) = frame.write.format("delta").option.call_args_list
    assert json.loads(option.args[1])["airflow"] == info.task_run

    template = jinja2.Template(BLOCKS[name][1])
    ti = SimpleNamespace(**info.task_run)
    rendered = template.render(commit_user_metadata=commit_user_metadata, ti=ti)
    assert json.loads(rendered)["airflow"] == info.task_run


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_dag_is_run_with_its_params(name: str) -> None:
    (block,) = BLOCKS[name]
    if name == "airflow_delta.example_dags":
        assert run(name)["dag"].dag_id
        return
    command, *words = shlex.split(block.replace("\\\n", " "))
    if command == "export":
        source = Path(import_module(name).__file__ or "").read_text("utf-8")
        assert all(f'os.environ.get("{word.partition("=")[0]}"' in source for word in words)
        return
    dag = import_module(name).dag
    assert [command, *words[:-1]] == ["airflow", "dags", "test", dag.dag_id, "-c"]
    conf = json.loads(words[-1])
    assert {param: dag.params.get_param(param).resolve(conf[param]) for param in conf} == conf
