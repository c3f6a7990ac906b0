"""A whole Airflow (API server, scheduler, DAG processor, triggerer) on SQLite or PostgreSQL.

Its database is its own: rows that ``airflow dags test`` leaves behind would start triggers here.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from sqlalchemy import NullPool, create_engine, text

__all__ = ["LiveStack", "append_by_deltalake", "live_stack"]

_REPOSITORY = Path(__file__).resolve().parents[2]
_SERVICES = ("api-server", "scheduler", "dag-processor", "triggerer")
_PATIENCE_SECONDS = 400.0


_WRITER = """
import sys
import pyarrow as pa
from deltalake import write_deltalake
for number in range(int(sys.argv[2])):
    write_deltalake(sys.argv[1], pa.table({"id": [number]}), mode="append")
"""


def append_by_deltalake(table: Path, commits: int) -> None:
    """Have deltalake make commits, in a process of its own."""
    command = [sys.executable, "-c", _WRITER, str(table), str(commits)]
    subprocess.run(command, check=True, timeout=200)


class LiveStack:
    """The processes, and what they have written to the database."""

    def __init__(self, home: Path, dag: Path, environment: Mapping[str, str]) -> None:
        self.dag = dag
        self._home = home
        self._environment = {**os.environ, **environment}
        url = self._environment["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"]
        self._database = create_engine(url, poolclass=NullPool)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, service: str) -> None:
        """Start a service, in a process group of its own."""
        log = (self._home / f"{service}.log").open("ab")
        with log:
            self._processes[service] = subprocess.Popen(
                [sys.executable, "-m", "airflow", service],
                env=self._environment,
                cwd=self._home,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def kill(self, service: str, number: int = signal.SIGKILL) -> None:
        """Send a signal to a service and everything it has started, and forget it."""
        process = self._processes.pop(service)
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            return
        process.wait(30)

    def prepare(self) -> None:
        """Make the database."""
        self.run("db", "migrate")

    def process_id(self, service: str) -> int:
        """The process of a service."""
        return self._processes[service].pid

    def run(self, *arguments: str, exit_code: int = 0, **environment: str) -> str:
        """Run a command of Airflow's command line to its end, with more variables; return its output."""
        done = subprocess.run(
            [sys.executable, "-m", "airflow", *arguments],
            env={**self._environment, **environment},
            cwd=self._home,
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert done.returncode == exit_code, f"{arguments}: {done.stdout[-4000:]}"
        return done.stdout

    def stop(self) -> None:
        """End everything."""
        for service in [*self._processes]:
            self.kill(service)

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Call the API server, as the user interface does.

        Args:
            method: the HTTP method.
            path: the path, such as ``/api/v2/version``.
            body: what is sent, as JSON values; None: nothing.
        """
        server = f"http://127.0.0.1:{self._environment['AIRFLOW__API__PORT']}"
        with urllib.request.urlopen(f"{server}/auth/token", timeout=60) as answer:
            token = json.load(answer)["access_token"]
        request = urllib.request.Request(
            f"{server}{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
            method=method,
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{method} {path}: {error}: {error.read()[:4000]!r}") from error

    def wait_for_server(self) -> None:
        """Wait until the API server answers."""

        def answers() -> bool:
            try:
                self.call("GET", "/api/v2/version")
            except OSError:
                return False
            return True

        self.wait("the API server", answers)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Ask the database."""
        with self._database.connect() as connection:
            return [tuple(row) for row in connection.execute(text(query))]

    @property
    def events(self) -> list[dict[str, Any]]:
        """The payloads of the events of watchers, in the order of time."""
        rows = self.rows("SELECT extra FROM asset_event ORDER BY id")
        extras = [_decoded(extra) for (extra,) in rows]
        return [extra["payload"] for extra in extras if extra.get("from_trigger")]

    def results(self, task_id: str, *, dag_id: str = "%", runs: str = "%") -> list[Any]:
        """What a task has returned in all runs, or in those whose ids are like a pattern."""
        rows = self.rows(
            f"SELECT value FROM xcom WHERE task_id = '{task_id}' AND key = 'return_value' "
            f"AND dag_id LIKE '{dag_id}' AND run_id LIKE '{runs}'"
        )
        return [_decoded(value) for (value,) in rows]

    def wait(self, what: str, is_so: Callable[[], bool]) -> None:
        """Wait until something is so; a service that has ended is an error."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not is_so():
            ended = [
                name for name, process in self._processes.items() if process.poll() is not None
            ]
            assert not ended, f"{ended} ended while waiting for {what}: {self.log(ended[0])}"
            assert time.monotonic() < deadline, f"{what} hasn't come: {self.log('triggerer')}"
            time.sleep(0.5)

    def log(self, service: str) -> str:
        """The end of what a service has printed."""
        return (self._home / f"{service}.log").read_text(errors="replace")[-4000:]


def _decoded(value: Any) -> Any:
    """A value of a column of JSON, which may be JSON in JSON, and which some drivers decode themselves."""
    while isinstance(value, str | bytes):
        value = json.loads(value)
    return value


@contextmanager
def live_stack(
    home: Path,
    dag: Path,
    *,
    more_dags: Mapping[str, str] = MappingProxyType({}),
    database: str | None = None,
    services: Sequence[str] = _SERVICES,
    **environment: str,
) -> Iterator[LiveStack]:
    """Start an Airflow with a DAG file.

    Args:
        home: an empty folder for everything that it writes.
        dag: the file; `LiveStack.dag` is its copy that this Airflow reads.
        more_dags: the names and texts of further DAG files.
        database: the URL of an empty database, whose driver must be an asynchronous one, too; None: SQLite.
        services: the commands of the processes.
        environment: more variables of its processes.
    """
    dags = home / "dags"
    dags.mkdir(parents=True)
    read = dags / dag.name
    read.write_text(dag.read_text())
    for name, text_of_dag in more_dags.items():
        (dags / name).write_text(text_of_dag)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    secret = "of a test of its own, and long enough"
    stack = LiveStack(
        home,
        read,
        {
            "PYTHONPATH": str(_REPOSITORY),
            "AIRFLOW_HOME": str(home),
            "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
            "AIRFLOW__CORE__PARALLELISM": "2",
            "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
            "AIRFLOW__CORE__FERNET_KEY": "",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://127.0.0.1:{port}/execution/",
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": database or f"sqlite:///{home}/airflow.db",
            **({"AIRFLOW__DATABASE__SQL_ALCHEMY_CONN_ASYNC": database} if database else {}),
            "AIRFLOW__API__HOST": "127.0.0.1",
            "AIRFLOW__API__PORT": str(port),
            "AIRFLOW__API__WORKERS": "1",
            "AIRFLOW__API__SECRET_KEY": secret,
            "AIRFLOW__API_AUTH__JWT_SECRET": secret,
            "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(home / "logs"),
            "AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT": "0",
            "AIRFLOW__LOGGING__TRIGGER_LOG_SERVER_PORT": "0",
            "AIRFLOW__SCHEDULER__ENABLE_HEALTH_CHECK": "False",
            # A killed triggerer's watchers are given to the next one so much later.
            "AIRFLOW__TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "5",
            "AIRFLOW__TRIGGERER__JOB_HEARTBEAT_SEC": "2",
            **environment,
        },
    )
    stack.prepare()
    try:
        for service in services:
            stack.start(service)
        yield stack
    finally:
        stack.stop()
