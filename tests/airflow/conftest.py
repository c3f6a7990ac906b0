"""An Airflow of the tests' own: its home, database and connections.

Airflow reads its settings when it is first imported, so they are set here, before any test module
of this folder is. The database is made when the first test asks for it.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

_REPOSITORY = Path(__file__).resolve().parents[2]
_HOME = Path(tempfile.mkdtemp(prefix="airflow-delta-tests-"))
atexit.register(shutil.rmtree, _HOME, ignore_errors=True)

# The least that a Spark which reads tables of a few rows needs: starting up is most of its time.
_SPARK_DEFAULTS = """
spark.ui.enabled                  false
spark.driver.host                 127.0.0.1
spark.driver.bindAddress          127.0.0.1
spark.driver.memory               512m
spark.driver.extraJavaOptions     -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto
spark.sql.shuffle.partitions      1
spark.sql.catalogImplementation   in-memory
spark.sql.codegen.wholeStage      false
spark.sql.codegen.factoryMode     NO_CODEGEN
spark.log.level                   ERROR
"""

(_HOME / "spark").mkdir()
(_HOME / "spark" / "spark-defaults.conf").write_text(_SPARK_DEFAULTS)
os.environ.update(
    {
        "AIRFLOW_HOME": str(_HOME),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": str(_REPOSITORY / "airflow_delta" / "example_dags"),
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[1]"}),
        "SPARK_CONF_DIR": str(_HOME / "spark"),
        "PYSPARK_PYTHON": sys.executable,
    }
)


@pytest.fixture(scope="session")
def airflow_database() -> Path:
    """The home of an Airflow with an empty SQLite database."""
    from airflow.utils.db import initdb

    initdb()
    return _HOME


@pytest.fixture
def days(tmp_path: Path) -> Path:
    """A table of two partitions, with three files of each, which deltalake has written."""
    import pyarrow as pa
    from deltalake import write_deltalake

    table = tmp_path / "days"
    for number in range(3):
        rows = pa.table({"id": [number, number + 10], "day": ["mon", "tue"]})
        write_deltalake(str(table), rows, partition_by=["day"], mode="append")
    return table


@pytest.fixture(autouse=True)
def hasty_triggers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have triggers look at once. No scheduler runs here that must notice that a task is deferred."""
    monkeypatch.setattr("airflow_delta.triggers.table_poll.FIRST_LOOK_SECONDS", 0.0)


@pytest.fixture(autouse=True)
def no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look connections up as tasks do, without the database, also after a test of the command line."""
    monkeypatch.delenv("_AIRFLOW_PROCESS_CONTEXT", raising=False)


@pytest.fixture
def fake_spark_submit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A ``spark-submit`` that runs no Spark: it executes the script that a test puts at the path.

    The script gets the arguments of spark-submit, and runs with the interpreter of the tests.
    """
    folder = tmp_path / "bin"
    folder.mkdir()
    script = tmp_path / "fake_spark_submit.py"
    launcher = folder / "spark-submit"
    launcher.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{script}" "$@"\n')
    launcher.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    return script
