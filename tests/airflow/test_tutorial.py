"""The tutorial, step by step as the page has it: its programs, its DAG and its commands."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import sysconfig
from importlib.metadata import metadata
from pathlib import Path

import pytest
from deltalake import DeltaTable as Peer

from tests.cluster.test_secrets import connector
from tests.object_stores import new_place

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
FILES = re.findall(r"Save \w+(?: \w+)* as `([^`]+)`:\n\n```python\n(.*?)^```", PAGE, re.M | re.S)
LOCAL, S3 = (re.findall(r"^```bash\n(.*?)^```", part, re.M | re.S) for part in PAGE.split("## 6. "))
HERE = "https://s3.eu-west-1.amazonaws.com"
PACKAGES = "spark.jars.packages org.apache.hadoop:hadoop-aws:3.5.0"


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """After the steps that both parts begin with: an Airflow, and the files that the page has one save."""
    shell = Shell(tmp_path_factory.mktemp("trial"))
    shell.run(LOCAL[0])
    for name, code in FILES:
        (shell.directory / "tutorial" / name).write_text(code)
    return shell


class Shell:
    """A shell that knows nothing of this Airflow, and keeps its variables from step to step."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.variables = directory / "variables"
        self.variables.write_text("")

    def run(self, *commands: str) -> str:
        """What some commands print; all that they export is there for the next ones."""
        script = [
            f". {shlex.quote(str(self.variables))}",
            *commands,
            f"{{ export -p; echo cd {self._quoted('$PWD')}; }} >{shlex.quote(str(self.variables))}",
        ]
        path = f"{sysconfig.get_path('scripts')}{os.pathsep}{os.environ['PATH']}"
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("AIRFLOW", "AWS_", "SPARK_"))
        }
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", "\n".join(script)],
            cwd=self.directory,
            env={**kept, "PATH": path, "PYSPARK_PYTHON": sys.executable},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, (done.stdout + done.stderr)[-8000:]
        return done.stdout + done.stderr

    @staticmethod
    def _quoted(variable: str) -> str:
        return f"\\'\"{variable}\"\\'"


def rows_of(uri: str, options: dict[str, str] | None = None) -> list[tuple[int, str]]:
    found = Peer(uri, storage_options=options).to_pyarrow_table().to_pylist()
    return sorted((row["id"], row["city"]) for row in found)


ROWS = [(0, "Ulm"), (1, "Kiel"), (2, "Jena"), (3, "Ulm"), (4, "Kiel"), (5, "Jena")]


def test_the_tutorial_on_local_files(shell: Shell) -> None:
    assert [name for name, _ in FILES] == ["add_orders.py", "dags/orders.py"]
    _, table, run, look = LOCAL
    assert "version 1" in shell.run(table)
    assert f"version 2 was copied to {shell.directory}/tutorial/lake/orders_copy" in shell.run(run)
    assert "checkpoint" in shell.run(look)
    lake = shell.directory / "tutorial" / "lake"
    assert (lake / "orders" / "_delta_log" / f"{2:020}.checkpoint.parquet").exists()
    assert rows_of(str(lake / "orders")) == rows_of(str(lake / "orders_copy")) == ROWS


def test_the_tutorial_on_s3(shell: Shell, tmp_path: Path) -> None:
    """With the keys, the bucket and the endpoint of an emulator, and jars that are there already."""
    uri, options = new_place("s3", tmp_path)
    given = {
        "my-key": options["aws_access_key_id"],
        "my-secret": options["aws_secret_access_key"],
        "eu-west-1": options["aws_region"],
        "my-bucket": uri.removeprefix("s3://"),
    }
    commands = "\n".join(S3)
    assert HERE in commands
    assert PACKAGES in commands
    commands = commands.replace(HERE, options["aws_endpoint_url"])
    commands = commands.replace(PACKAGES, f"spark.jars {','.join(map(str, connector()))}")
    for name, value in given.items():
        assert name in commands
        commands = commands.replace(name, value)
    said = shell.run(commands)
    assert f"version 1 was copied to {uri}/orders_copy" in said
    assert rows_of(f"{uri}/orders_copy", {**options, "aws_allow_http": "true"}) == ROWS[:3]


def test_the_installation_names_what_the_project_has() -> None:
    project = metadata("airflow-delta")
    ((name, extras),) = re.findall(r"'([\w-]+)\[([\w,]+)\] @", PAGE)
    assert name == project["Name"]
    assert set(extras.split(",")) <= set(project.get_all("Provides-Extra") or ())
    assert "Python 3.10 to 3.13" in PAGE
    assert project["Requires-Python"] == ">=3.10"
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (airflow,) = set(re.findall(r"^(?:\$ )?AIRFLOW=([\d.]+)$", PAGE + readme, re.M))
    lock = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    assert f"apache-airflow=={airflow} " in lock
