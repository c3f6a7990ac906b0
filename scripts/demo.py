"""The demo: Airflow maintains a Delta table, from nothing, in one command.

Makes a table with PySpark, runs the DAG ``delta_table_maintenance`` over it with ``airflow dags
test``, and prints what happened. All its files are below ``.demo/``, which each run replaces.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sqlite3
import subprocess
import sys
import sysconfig
import time
from pathlib import Path
from typing import Any

from airflow_delta.engine import DeltaTable

REPOSITORY = Path(__file__).resolve().parents[1]
DEMO = REPOSITORY / ".demo"
TABLE, COPY = DEMO / "sales", DEMO / "sales_copy"
AIRFLOW_HOME = DEMO / "airflow"
SCRIPTS = Path(sysconfig.get_path("scripts"))
DAG_ID = "delta_table_maintenance"

# What a Spark on one machine needs; every property counts for the table and for the DAG's job.
SPARK_DEFAULTS = """
spark.master                  local[2]
spark.ui.enabled              false
spark.driver.host             127.0.0.1
spark.driver.bindAddress      127.0.0.1
spark.sql.shuffle.partitions  2
spark.log.level               ERROR
"""


def main() -> int:
    """Run the demo; the exit status is 0 where every step went well."""
    shutil.rmtree(DEMO, ignore_errors=True)
    (DEMO / "spark").mkdir(parents=True)
    (DEMO / "spark" / "spark-defaults.conf").write_text(SPARK_DEFAULTS)
    (DEMO / "env.sh").write_text(shell_settings())
    conf = {"table_uri": str(TABLE), "target_uri": str(COPY)}
    steps = {
        "PySpark writes a table of 25 commits": [
            sys.executable,
            str(REPOSITORY / "scripts" / "demo_table.py"),
            str(TABLE),
        ],
        "Airflow makes its database": [str(SCRIPTS / "airflow"), "db", "migrate"],
        f"Airflow runs the DAG {DAG_ID}": [
            str(SCRIPTS / "airflow"),
            "dags",
            "test",
            DAG_ID,
            "--conf",
            json.dumps(conf),
        ],
    }
    for number, (title, command) in enumerate(steps.items(), 1):
        if not run_step(number, len(steps), title, command):
            return 1
    states = task_states()
    tell_tasks(states)
    if not states or any(state != "success" for state in states.values()):
        print(f"\nThe DAG run didn't succeed; its log: {log_of(len(steps))}")
        return 1
    tell_tables()
    tell_more()
    return 0


def settings() -> dict[str, str]:
    """What makes Airflow and Spark the demo's own."""
    java = {name: os.environ[name] for name in ("JAVA_HOME",) if os.environ.get(name)}
    return {
        **java,
        "AIRFLOW_HOME": str(AIRFLOW_HOME),
        "AIRFLOW__CORE__DAGS_FOLDER": str(REPOSITORY / "dags"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[2]"}),
        "SPARK_CONF_DIR": str(DEMO / "spark"),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }


def shell_settings() -> str:
    """The same as lines of a shell, to be read by one that knows nothing of the demo."""
    lines = [f"export {name}={shlex.quote(value)}" for name, value in settings().items()]
    return "\n".join(
        [*lines, f"export PATH={shlex.quote(str(SCRIPTS))}:$PATH", "unset SPARK_HOME", ""]
    )


def environment() -> dict[str, str]:
    """The environment of the steps: no other Airflow or Spark, whatever the machine has."""
    own = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("AIRFLOW") and name != "SPARK_HOME"
    }
    path = os.pathsep.join([str(SCRIPTS), os.environ.get("PATH", os.defpath)])
    return {**own, **settings(), "PATH": path}


def run_step(number: int, steps: int, title: str, command: list[str]) -> bool:
    """Run a command, its output kept in a file; whether it went well."""
    print(f"[{number}/{steps}] {title} …", end=" ", flush=True)
    began = time.monotonic()
    with log_of(number).open("wb") as log:
        done = subprocess.run(
            command, env=environment(), cwd=DEMO, stdout=log, stderr=subprocess.STDOUT, check=False
        )
    print(f"{time.monotonic() - began:.0f} s", flush=True)
    if done.returncode == 0:
        return True
    print(f"failed with exit status {done.returncode}; the end of {log_of(number)}:")
    print("\n".join(log_of(number).read_text(errors="replace").splitlines()[-30:]))
    return False


def log_of(number: int) -> Path:
    """Where the output of a step is kept."""
    return DEMO / f"step-{number}.log"


def query(statement: str) -> list[tuple[Any, ...]]:
    """Ask Airflow's database about the DAG's run."""
    database = sqlite3.connect(f"file:{AIRFLOW_HOME / 'airflow.db'}?mode=ro", uri=True)
    try:
        return database.execute(statement, {"dag": DAG_ID}).fetchall()
    finally:
        database.close()


def task_states() -> dict[str, str]:
    """The state of each task of the run, in the order in which they began."""
    rows = query(
        "SELECT task_id, state FROM task_instance WHERE dag_id = :dag "
        "ORDER BY start_date IS NULL, start_date"
    )
    return dict(rows)


def tell_tasks(states: dict[str, str]) -> None:
    """Print the tasks with what each of them pushed to XCom."""
    pushed = dict(
        query("SELECT task_id, value FROM xcom WHERE dag_id = :dag AND key = 'return_value'")
    )
    print(f"\nThe tasks of {DAG_ID}, and what each returned through XCom:")
    for task, state in states.items():
        print(f"  {task:<17} {state}")
        value = pushed.get(task)
        for _ in range(2):  # XCom values are JSON, in some releases inside a JSON text
            value = json.loads(value) if isinstance(value, str) else value
        for name, fact in (value or {}).items():
            print(f"      {name:<17} {shorter(fact)}")


def tell_tables() -> None:
    """Print what the engine sees in the table and in its copy."""
    for title, path in (("The table", TABLE), ("The copy", COPY)):
        snapshot = DeltaTable(str(path)).snapshot()
        print(f"\n{title}, {shorter(path)}:")
        print(
            f"  version {snapshot.version}: {snapshot.num_files} files, {snapshot.num_rows:,} rows, "
            f"{snapshot.size_in_bytes / 1e6:.1f} MB; "
            f"partitioned by {', '.join(snapshot.metadata.partition_columns) or 'nothing'}"
        )
        for file in sorted((path / "_delta_log").glob("*checkpoint*")):
            print(f"  {file.relative_to(path)}: {file.stat().st_size:,} bytes")


def tell_more() -> None:
    """Print how to go on."""
    command, airflow = shorter(SCRIPTS / "airflow-delta"), shorter(SCRIPTS / "airflow")
    print(
        f"""
Look further:
  {command} describe {shorter(TABLE)}
  {command} history {shorter(TABLE)} --limit 5
  . {shorter(DEMO)}/env.sh && {airflow} standalone     # Airflow's user interface
  the DAG: airflow_delta/example_dags/delta_table_maintenance.py
  the logs of this demo: {shorter(DEMO)}/step-*.log"""
    )


def shorter(value: Any) -> str:
    """A path below the repository relative to it, anything else as it is."""
    text = str(value)
    return text.removeprefix(f"{REPOSITORY}{os.sep}")


if __name__ == "__main__":
    sys.exit(main())
