"""The examples of the documentation work."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyspark
import pytest
from airflow.models import Connection
from deltalake import write_deltalake

from airflow_delta import results
from airflow_delta.engine import DeltaTable
from airflow_delta.engine.commit.sql.owner import SqlCommitOwner
from airflow_delta.engine.errors import (
    CommitStoreMissingError,
    CorruptLogError,
    TableNotFoundError,
)
from airflow_delta.sensors.table_version import TableVersionSensor
from airflow_delta.version_compat import BaseHook
from tests.airflow.dag_runs import run_of
from tests.airflow.failures import fails_for_good
from tests.airflow.managed_tables import commit, hand_over
from tests.docstring_blocks import docstring_blocks
from tests.log_builder import add, write_table

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"


MANAGED = DOCS / "how-to" / "managed-tables.md"


def code_of(page: Path) -> list[str]:
    """The Python examples of a page."""
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), re.M | re.S)


def example(page: Path, number: int = 0, **given: Any) -> dict[str, Any]:
    """The names that a Python example of a page defines, beside those that it is given."""
    code = code_of(page)[number]
    names: dict[str, Any] = {"__name__": "example", **given}
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


def wait_of_the_guide() -> str:
    return example(DOCS / "how-to" / "maintain-a-table.md")["SEEN"]


def wait_of_the_sensor() -> str:
    (block,) = docstring_blocks()[f"{TableVersionSensor.__module__}.TableVersionSensor"]
    return eval(f"dict({block})")["after_version"]


@pytest.mark.parametrize("get_template", [wait_of_the_guide, wait_of_the_sensor])
def test_the_wait_follows_the_run_before(get_template: Callable[[], str]) -> None:
    template = get_template()
    for found, after in ((None, "-1"), ({"version": 24}, "24")):
        asked: list[dict[str, Any]] = []

        def xcom_pull(found: Any = found, asked: Any = asked, **arguments: Any) -> Any:
            asked.append(arguments)
            return found

        sensor = TableVersionSensor(task_id="wait", table_uri="/t", after_version=template)
        context: Any = {"ti": SimpleNamespace(xcom_pull=xcom_pull)}
        sensor.render_template_fields(context)
        assert sensor.after_version == after
        # Without map_indexes Airflow 3.3 gives a list, once there are two earlier runs.
        assert asked == [{"task_ids": "wait", "map_indexes": -1, "include_prior_dates": True}]


def test_the_tasks_of_the_reference_can_be_loaded() -> None:
    page = DOCS / "reference" / "operators.md"
    examples = [example(page, number) for number in range(len(code_of(page)))]
    pinned, reported, newest, counted = examples
    pinned["pin"].render_template_fields({"params": {"version": None}})
    assert pinned["pin"].version is None
    assert reported["checkpoint"].upstream_task_ids == {"pin"}
    assert newest["newest_version"].function.__name__ == "newest_version"
    assert counted["count_files"].function.__name__ == "count_files"


def test_the_own_task_of_the_reference_goes_by_the_policy(tmp_path: Path) -> None:
    newest = example(DOCS / "reference" / "operators.md", 2)["newest_version"].function
    assert newest(str(write_table(tmp_path / "t", [add("a")], [add("b")]))) == 1
    with fails_for_good(TableNotFoundError):
        newest(str(tmp_path / "nothing"))


def test_the_reference_names_the_type_of_each_result() -> None:
    text = (DOCS / "reference" / "operators.md").read_text()
    parts = {"ChangesAppended", "CopyResult"}
    nested = {"CompactionReport", "FileCount", "OptimizePlanResult", "RestoreCheckpoint"}
    nested |= {"TruncatedHistory"}
    named = set(re.findall(r"`(\w+Result)`", text)) | {n for n in parts if f"`{n}`" in text}
    assert named == set(results.__all__) - nested


def test_the_dags_of_the_guide_to_events_can_be_loaded() -> None:
    page = DOCS / "how-to" / "events.md"
    examples = [example(page, number) for number in range(len(code_of(page)))]
    pin, restore = examples[0]["pin"], examples[0]["SALES"]
    assert (pin.version, restore.uri) == ("triggering_event", "s3://lake/sales")
    (watched,) = examples[1]["ORDERS"].watchers
    assert watched.trigger.serialize()[1]["delta_conn_id"] == "lake"
    assert examples[2]["load"].function.__name__ == "load"


def test_the_tasks_of_the_guide_record_their_run(airflow_database: Path, tmp_path: Path) -> None:
    page = DOCS / "how-to" / "who-wrote-a-version.md"
    table = tmp_path / "sales"
    write_deltalake(str(table), pa.table({"id": [0]}))
    (code,) = code_of(page)
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(code.replace("/data/sales", str(table)), str(page), "exec"), names)
    assert run_of(names["dag"]).state == "success"
    restored, written, created = (info.task_run for info in DeltaTable(table).history())
    assert restored is not None
    assert written is not None
    assert (restored["task_id"], written["task_id"]) == ("by_hook", "by_deltalake")
    assert created is None


def test_the_connectors_of_the_guide_fit_the_installed_spark() -> None:
    jars = Path(pyspark.__file__).parent / "jars"
    (client,) = jars.glob("hadoop-client-api-*.jar")
    version = client.stem.removeprefix("hadoop-client-api-")
    guide = (DOCS / "how-to" / "maintain-a-table.md").read_text()
    assert set(re.findall(r"hadoop-(?:aws|azure):([\w.]+)", guide)) == {version}
    assert f"{version} for PySpark {pyspark.__version__}" in guide


def test_the_example_of_managed_tables_prints_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    example(MANAGED)
    promised = re.findall(r"^print\(.*\)  # (.*)$", code_of(MANAGED)[0], re.M)
    assert len(promised) == 5
    assert capsys.readouterr().out.splitlines() == promised


def test_the_tasks_of_managed_tables_can_be_loaded() -> None:
    assert example(MANAGED, 1)["convert"].conf == {"backfill": "1"}
    released = example(MANAGED, 2)
    assert released["release"].table_uri == "s3://lake/sales"
    assert released["release"].keep_in_commit_timestamps
    again = example(MANAGED, 3, ConvertToFileSystemOperator=released["ConvertToFileSystemOperator"])
    assert not again["release"].keep_in_commit_timestamps


def test_a_commit_store_that_was_lost_is_begun_anew_as_the_guide_says(tmp_path: Path) -> None:
    orders = write_table(tmp_path / "orders", [add("a")])
    commit(orders, hand_over(orders, tmp_path / "lost.db", backfill="1"))
    owner = SqlCommitOwner(f"sqlite:///{tmp_path}/new.db")
    table = DeltaTable(orders, commit_owners={"sql": owner})
    with pytest.raises(CommitStoreMissingError, match=r"new\.db isn't there: make sure"):
        table.commit_status()
    example(MANAGED, 4, table=table)
    assert commit(orders, owner) == 3
    assert table.commit_status().lag == 0


def test_the_commit_store_of_a_cleaned_log_is_begun_with_version_0(tmp_path: Path) -> None:
    orders = write_table(tmp_path / "orders", [add("a")])
    commit(orders, hand_over(orders, tmp_path / "lost.db", backfill="1"), 2)
    DeltaTable(orders).checkpoint()
    for version in range(3):
        (orders / "_delta_log" / f"{version:020}.json").unlink()
    owner = SqlCommitOwner(f"sqlite:///{tmp_path}/new.db")
    table = DeltaTable(orders, commit_owners={"sql": owner})
    code = code_of(MANAGED)[4].replace("version=1", "version=0")
    exec(code, {"table": table})
    assert commit(orders, owner) == 4
    assert table.commit_status().lag == 0


def test_what_is_lost_is_given_up_as_the_guide_says(tmp_path: Path) -> None:
    orders = write_table(tmp_path / "orders", [add("a")])
    owner = hand_over(orders, tmp_path / "owner.db", backfill="1")
    last = commit(orders, owner, 3)
    for version in (last, last - 1):
        (orders / "_delta_log" / f"{version:020}.json").unlink()
    table = DeltaTable(orders, commit_owners={"sql": owner})
    with pytest.raises(CorruptLogError, match="--accept-log"):
        table.backfill()
    snippet = code_of(MANAGED)[5].replace("version=41", f"version={last - 2}")
    exec(snippet, {"table": table})
    assert commit(orders, owner) == last - 1


def test_the_owner_is_told_of_a_table_that_has_moved_as_the_guide_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders = write_table(tmp_path / "orders", [add("a")])
    owner = hand_over(orders, tmp_path / "owner.db")
    commit(orders, owner)
    moved = orders.rename(tmp_path / "moved")

    def there(_uri: str, **options: Any) -> DeltaTable:
        return DeltaTable(moved, **options)

    example(MANAGED, 6, DeltaTable=there, owner=owner)
    assert commit(moved, owner) == 3


def test_every_example_of_managed_tables_is_looked_at() -> None:
    assert len(code_of(MANAGED)) == 7


def test_the_tasks_that_optimize_can_be_loaded() -> None:
    page = DOCS / "how-to" / "optimize-a-table.md"
    nightly, large = example(page, 1), example(page, 2)["large"]
    assert nightly["OptimizeOperator"] is type(large)
    assert large.z_order_by == ["customer"]


def test_the_checkpoint_of_a_long_log_can_be_loaded() -> None:
    page = DOCS / "how-to" / "maintain-a-table.md"
    operator = example(page)["CheckpointOperator"]
    code = code_of(page)[1].replace("CheckpointOperator(", "checkpoint = CheckpointOperator(", 1)
    names: dict[str, Any] = {"CheckpointOperator": operator}
    exec(compile(code, str(page), "exec"), names)
    assert names["checkpoint"].spark_conn_id == "spark_cluster"


def test_the_blocks_of_the_guide_to_lineage_are_what_they_say() -> None:
    page = DOCS / "how-to" / "lineage.md"
    # The listener itself needs Maven's repositories.
    settings = example(page, 1)["LINEAGE"]
    assert all(name.startswith("spark.") for name in settings)
    (event,) = re.findall(r"^```json\n(.*?)^```", page.read_text("utf-8"), re.M | re.S)
    facets = json.loads(event)["inputs"][0]["facets"]
    rows = re.findall(r"^\| `(\w+)` \|", page.read_text("utf-8"), re.M)
    assert {*facets} <= {*rows}


PAGES = [*sorted(DOCS.rglob("*.md")), ROOT / "docker" / "README.md"]
SHELL = [
    (page.name, block.replace("\\\n", " "))
    for page in PAGES
    for block in re.findall(r"^ *```bash\n(.*?)^ *```", page.read_text("utf-8"), re.M | re.S)
]
TESTED = [
    (page, *found)
    for page, block in SHELL
    for found in re.findall(r"airflow dags test (delta_\w+)(?: +--conf +'([^']*)')?", block)
]
CONNECTIONS = [
    (page, name, text)
    for page, block in SHELL
    for name, text in re.findall(r"AIRFLOW_CONN_(\w+)='([^']*)'", block)
]


@pytest.mark.parametrize(("page", "dag_id", "conf"), TESTED)
def test_the_dags_that_a_page_runs_have_the_params(page: str, dag_id: str, conf: str) -> None:
    """Their runs are tests of the example DAGs."""
    dag = import_module(f"airflow_delta.example_dags.{dag_id}").dag
    assert dag.dag_id == dag_id
    assert set(json.loads(conf or "{}")) <= set(dag.params)


@pytest.mark.parametrize(("page", "name", "text"), CONNECTIONS)
def test_the_connections_of_a_page_are_some(page: str, name: str, text: str) -> None:
    connection = Connection(conn_id=name.lower(), **json.loads(text))
    assert connection.conn_type
    assert isinstance(connection.extra_dejson, dict)


def test_the_blocks_about_connections_set_them(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = [block for page, block in SHELL if page == "connections.md"]
    assert len(blocks) == 2
    for block in blocks:
        code = f"set -eu\n{block}printenv AIRFLOW_CONN_LAKE"
        run = subprocess.run(["bash", "-c", code], check=True, stdout=subprocess.PIPE, text=True)
        monkeypatch.setenv("AIRFLOW_CONN_LAKE", run.stdout)
        connection = BaseHook.get_connection("lake")
        set_to = json.loads(run.stdout)
        assert (connection.conn_type, connection.extra_dejson) == (
            set_to["conn_type"],
            set_to["extra"],
        )


def test_pages_run_dags_and_set_connections() -> None:
    assert (len(TESTED) >= 4, len(CONNECTIONS) >= 4) == (True, True), (TESTED, CONNECTIONS)
