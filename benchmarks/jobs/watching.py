"""Jobs that watch many tables in Airflow's triggerer, and measure what a minute of it takes.

Each table has a `DeltaTableVersionTrigger` with the default interval, and gets no new versions. The
triggerer is a real one, with SQLite. The tables are in moto's S3, which runs in another process than the
triggerer, behind a proxy that counts the requests. ``watch-0`` is a triggerer without watchers.

The clock runs from the first check of all tables to the end of the next. There is no peer.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.job import Job, Outcome, ours
from benchmarks.measure import peak_mb, process_tree

__all__ = ["JOBS"]

_TABLES = (0, 50, 100, 500)
_CHECKS = 1
_IDLE_SECONDS = 60.0
_SETTLE_SECONDS = 5.0

_DAG = """
from airflow.sdk import DAG, AssetWatcher, task

from airflow_delta.assets import delta_asset
from airflow_delta.triggers.new_versions import DeltaTableVersionTrigger


def watched(uri):
    trigger = DeltaTableVersionTrigger(table_uri=uri, delta_conn_id="lake")
    return delta_asset(uri, watchers=[AssetWatcher(name="new", trigger=trigger)])


with DAG("watch", schedule=[watched(uri) for uri in {uris!r}] or None):

    @task
    def nothing():
        pass

    nothing()
"""


def _template(work: Path, _: int) -> Path:
    """The table that all watched tables are copies of."""
    from benchmarks.tables import json_log

    return json_log(work, 300, 3)


def _watch(tables: int) -> Callable[[str], Outcome]:
    def work(template: str) -> Outcome:
        """Start a triggerer, and measure it."""
        # The tests have the store and the Airflow.
        from tests.airflow.live_stack import live_stack
        from tests.object_stores import new_place
        from tests.tampering_proxy import tampering_proxy

        requests: list[str] = []
        with tempfile.TemporaryDirectory() as scratch:
            lake, options = new_place("s3", Path(scratch))
            uris = [
                _upload(template, f"{lake}/table-{number}", options) for number in range(tables)
            ]
            dag = Path(scratch, "watch.py")
            dag.write_text(_DAG.format(uris=uris))
            with tampering_proxy(options["aws_endpoint_url"]) as proxy:
                proxy.watch = lambda method, path: requests.append(f"{method} {path}")
                extra = {**options, "aws_endpoint_url": proxy.url}
                connection = json.dumps({"conn_type": "delta", "extra": extra})
                services = ("dag-processor", "triggerer")
                home = Path(scratch, "airflow")
                with live_stack(
                    home, dag, services=services, AIRFLOW_CONN_LAKE=connection
                ) as stack:
                    return _measure(stack, tables, requests)

    return work


def _measure(stack: Any, tables: int, requests: list[str]) -> Outcome:
    # The Variable with its mark is the last that a watcher stores when it begins.
    begun = "SELECT key FROM variable WHERE key LIKE 'airflow_delta.watch.%'"
    stack.wait("the DAG", lambda: bool(stack.rows("SELECT 1 FROM serialized_dag")))
    stack.wait("the watchers", lambda: len(stack.rows(begun)) == tables)
    stack.kill("dag-processor")
    time.sleep(_SETTLE_SECONDS)
    process, before = str(stack.process_id("triggerer")), len(requests)
    began = time.perf_counter()
    cpu = _cpu_seconds(process)
    if tables:
        stack.wait("the checks", lambda: len(requests) - before >= _CHECKS * tables)
    else:
        time.sleep(_IDLE_SECONDS)
    seconds = time.perf_counter() - began
    figures = {
        "CPU s per minute": (_cpu_seconds(process) - cpu) / seconds * 60,
        "requests per minute": (len(requests) - before) / seconds * 60,
    }
    return Outcome(tables, figures, seconds, peak_mb(process))


def _upload(template: str, uri: str, options: dict[str, str]) -> str:
    from airflow_delta.engine.storage.location import open_storage

    storage = open_storage(uri, options)
    for file in sorted(Path(template, "_delta_log").iterdir()):
        storage.replace(f"_delta_log/{file.name}", file.read_bytes())
    return uri


def _cpu_seconds(process: str) -> float:
    """The time on processors of a process and of those that it has started."""
    texts = [(folder / "stat").read_text(encoding="ascii") for folder in process_tree(process)]
    # The name of the program, in parentheses, may have spaces. Then: user and system time, and those of
    # processes that have ended.
    ticks = sum(int(tick) for text in texts for tick in text.rpartition(")")[2].split()[11:15])
    return ticks / os.sysconf("SC_CLK_TCK")


JOBS = tuple(
    Job(
        f"watch-{tables}",
        f"{tables} watched tables without news: a minute of Airflow's triggerer",
        _template,
        ours(_watch(tables), loads=()),
        only_by_name=True,
    )
    for tables in _TABLES
)
