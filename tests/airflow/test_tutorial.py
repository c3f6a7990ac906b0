"""The tutorial, followed step by step: its own blocks, in a fresh home, on local files and in S3.

The blocks are taken from the page. What they print is compared with what the page says that one sees, and
deltalake reads what came of it.
"""

from __future__ import annotations

import re
import shutil
from ast import literal_eval
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable as Peer
from deltalake import write_deltalake
from packaging.requirements import Requirement

from tests.airflow.maintenance import checkpoint_only, rows_by_peer
from tests.airflow.test_triggering_event import event, started_by
from tests.airflow.tutorial_page import PAGE, Shell, all_blocks, blocks, check_output, files
from tests.object_stores import new_place

ROOT = PAGE.parents[1]
ORDERS = [{"id": 1, "city": "Ulm"}, {"id": 2, "city": "Kiel"}, {"id": 3, "city": "Ulm"}]


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """The shell of a reader who has done steps 2 to 4."""
    shell = Shell(tmp_path_factory.mktemp("home"))
    home, connection = blocks(2, "bash")
    (migrated,) = blocks(2, "text")
    check_output(shell.run(home), migrated)
    shell.run(connection)
    for name, text in files().items():
        (shell.directory / name).write_text(text, encoding="utf-8")
    (create,) = blocks(3, "bash")
    (created,) = blocks(3, "text")
    check_output(shell.run(create), created)
    return shell


@pytest.mark.deep
def test_the_dags_on_local_files(shell: Shell, tmp_path: Path) -> None:
    """In the page's order: each step reads tables that those before it wrote."""
    run, append, describe = blocks(5, "bash")
    waiting, appended, finished, described = blocks(5, "text")
    with shell.running(run) as dag_run:
        dag_run.wait_for(waiting)
        check_output(shell.run(append), appended)
        check_output(dag_run.finish(), waiting + finished)
    check_output(shell.run(describe), described)
    lake = shell.directory / "lake"
    assert sorted(rows_by_peer(lake / "orders_copy"), key=lambda row: row["id"]) == ORDERS
    table = Path(shutil.copytree(lake / "orders", tmp_path / "orders"))
    checkpoint_only(table, 1)
    assert sorted(rows_by_peer(table), key=lambda row: row["id"]) == ORDERS
    for step in (6, 7):
        (run,) = blocks(step, "bash")
        (ran,) = blocks(step, "text")
        check_output(shell.run(run), ran)


@pytest.mark.deep
def test_the_same_dag_in_s3(shell: Shell, tmp_path: Path) -> None:
    settings, connect, make, run = blocks(8, "bash")
    made, ran = blocks(8, "text")
    uri, options = new_place("s3", tmp_path)
    values = {
        "BUCKET": uri.removeprefix("s3://"),
        "AWS_REGION": options["aws_region"],
        "AWS_ACCESS_KEY_ID": options["aws_access_key_id"],
        "AWS_SECRET_ACCESS_KEY": options["aws_secret_access_key"],
    }
    assert re.findall(r"^export (\w+)=", settings, re.M) == list(values)
    values["AWS_ENDPOINT_URL"] = options["aws_endpoint_url"]
    shell.run("".join(f"export {name}={value}\n" for name, value in values.items()))
    shell.run(connect)
    for code, promised in ((make, made), (run, ran)):
        check_output(shell.run(code), promised)
    copy = Peer(f"{uri}/orders_copy", storage_options={**options, "aws_allow_http": "true"})
    rows = copy.to_pyarrow_table().to_pylist()
    assert sorted(rows, key=lambda row: row["id"]) == ORDERS


def test_the_tasks_use_the_version_of_the_event_and_no_later_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of both DAGs; without Spark the copy is one of the test's own."""
    monkeypatch.setenv("HOME", str(tmp_path))
    lake = tmp_path / "delta-tutorial" / "lake"
    for name in ("orders", "orders_copy"):
        for city in ("Ulm", "Kiel", "Bonn"):
            write_deltalake(lake / name, pa.table({"id": [1], "city": [city]}), mode="append")
    extra = {"from_trigger": True, "payload": {"version": 1, "after_version": 0}}
    events, cities = (example(f"airflow/dags/orders_{name}.py") for name in ("events", "cities"))
    for names in (events, cities):
        (asset,) = names["pin"].dag.timetable.asset_condition.objects
        started = started_by(event(extra, asset=asset))
        names["pinned"] = names["pin"].execute(started)
        assert (names["pinned"]["version"], names["pinned"]["after_version"]) == (1, 0)
    assert events["copy"].outlets[0].uri == asset.uri
    assert events["copy"].upstream_task_ids == {"pin", "checkpoint"}
    cities["count"].function(cities["pinned"]["version"])
    counted = capsys.readouterr().out.splitlines()[-1].removeprefix("orders by city: ")
    assert literal_eval(counted) == {"Ulm": 1, "Kiel": 1}


def example(file: str) -> dict[str, Any]:
    """The names of one of the page's files."""
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(files()[file], file, "exec"), names)
    return names


def test_what_is_installed_is_what_the_package_calls_itself() -> None:
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    (install,) = blocks(1, "bash")
    (text,) = re.findall(r"'([^']* @ [^']*)'", install)
    requirement = Requirement(text)
    assert re.findall(r'^name = "(.*)"$', project, re.M)[0] == requirement.name
    extras = project.partition("[project.optional-dependencies]")[2].partition("\n[")[0]
    assert requirement.extras == {"spark", "s3"}
    assert requirement.extras <= set(re.findall(r"^(\w+) = \[", extras, re.M))
    pythons = re.findall(r'Python :: (3\.\d+)"', project)
    assert f"Python {pythons[0]} to {pythons[-1]}" in PAGE.read_text("utf-8")
    (airflow,) = re.findall(r"^AIRFLOW=(.*)$", install, re.M)
    assert f"apache-airflow=={airflow} " in (ROOT / "constraints.txt").read_text("utf-8")
    (supported,) = re.findall(r'"(apache-airflow>=.*)"', project)
    assert airflow in Requirement(supported).specifier


def test_the_install_of_the_readme_is_the_same_but_for_the_extras() -> None:
    (install,) = blocks(1, "bash")
    readme = (ROOT / "README.md").read_text("utf-8")
    (known,) = re.findall(r"^```bash\n(AIRFLOW=.*?)^```", readme, re.M | re.S)
    assert install.endswith(known.replace("[s3]", "[spark,s3]"))


def test_every_block_of_the_page_is_followed() -> None:
    followed = {
        "bash": 1 + 2 + 1 + 3 + 1 + 1 + 4,
        "text": 1 + 1 + 4 + 1 + 1 + 2,
        "python": len(files()),
        "mermaid": 2,
    }
    found = [language for language, _ in all_blocks()]
    assert {language: found.count(language) for language in found} == followed
    assert [*files()] == [
        "create_orders.py",
        "append_orders.py",
        "airflow/dags/first_delta_dag.py",
        "airflow/dags/orders_events.py",
        "airflow/dags/orders_cities.py",
    ]
