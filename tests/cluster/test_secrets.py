"""Credentials of a store on their way to a cluster: they arrive, and nobody else gets to see them.

Each job is looked at while an executor writes, as everybody on the machine can look at it: command lines,
Spark's user interface with all that its REST interface knows, the master's. Afterwards so are its event
log, the output of the executors, what Airflow has logged, and what the task returns.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import socket
import sysconfig
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.request import urlopen

import pyarrow.parquet as pq
import pyspark
import pytest

from airflow_delta.engine.storage.base import Storage
from airflow_delta.engine.storage.location import open_storage
from airflow_delta.hooks.spark.job import SparkJobHook
from airflow_delta.operators.checkpoint import CheckpointOperator
from tests.airflow.maintenance import checkpoint_only, rows_by_peer
from tests.airflow.run_context import context_of
from tests.cluster.conftest import BOTH_EXECUTORS
from tests.cluster.executor_python import packed
from tests.cluster.standalone import Cluster
from tests.object_stores import new_place
from tests.tampering_proxy import tampering_proxy

SECRETS = {
    "aws_access_key_id": "AKIAOFTHETESTS",
    "aws_secret_access_key": "s3cr3t+of/the=tests",
    "aws_session_token": "t0ken-of-the-tests",
}
OWNER_PASSWORD = "pa55word-of-the-owner"
CONNECTOR = Path(sysconfig.get_path("data")) / "hadoop-aws"
PAGES = ("jobs", "stages", "storage", "environment", "executors")
REST = ("environment", "jobs", "stages", "executors", "allexecutors")


@dataclass
class Looks:
    """What can be seen of a job from outside.

    Attributes:
        cluster: where it runs.
        page: the address of its user interface.
        events: the directory of its event log.
        commands: the command lines of all processes of the machine, at a moment when an executor wrote.
        environments: of the executors, and of what they have started.
        pages: what the web interfaces have shown then.
    """

    cluster: Cluster
    page: str
    events: Path
    commands: list[str] = field(default_factory=list)
    environments: list[str] = field(default_factory=list)
    pages: dict[str, str] = field(default_factory=dict)

    def at(self, method: str, path: str) -> None:
        """Look, at the first file that is written beside the log."""
        if self.commands or method != "PUT" or not path.endswith(".parquet"):
            return
        for process in Path("/proc").glob("[0-9]*"):
            try:
                self.commands.append((process / "cmdline").read_bytes().decode(errors="replace"))
            except OSError:
                continue
        for number in self.cluster.processes():
            told = Path(f"/proc/{number}/environ").read_bytes()
            self.environments.append(told.decode(errors="replace"))
        (application,) = self.cluster.state()["activeapps"]
        rest = f"{self.page}/api/v1/applications/{application['id']}"
        for url in (
            self.cluster.page,
            *(f"{self.page}/{name}/" for name in PAGES),
            *(f"{rest}/{name}" for name in REST),
        ):
            with urlopen(url, timeout=30) as answer:
                self.pages[url] = answer.read().decode()

    def afterwards(self) -> str:
        """The event log, and what the executors have on their output."""
        files = [file for file in self.events.rglob("*") if file.is_file()]
        files += self.cluster.executor_files(self.cluster.applications()[-1])
        return "\n".join(file.read_text() for file in files)


@pytest.fixture
def looks(cluster: Cluster, tmp_path: Path) -> Looks:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    events = tmp_path / "events"
    events.mkdir()
    return Looks(cluster, f"http://127.0.0.1:{port}", events)


@pytest.fixture
def conf(looks: Looks) -> dict[str, str]:
    """Spark properties that have it tell as much as it can."""
    return {
        "spark.ui.enabled": "true",
        "spark.ui.port": looks.page.rpartition(":")[2],
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": looks.events.as_uri(),
        "spark.eventLog.compress": "false",
        "spark.log.level": "INFO",
    }


@pytest.fixture
def place(looks: Looks, tmp_path: Path) -> Iterator[tuple[str, dict[str, str], Storage]]:
    """A bucket behind a proxy from which is looked: its URI, the options, and a way past the proxy."""
    uri, options = new_place("s3", tmp_path)
    with tampering_proxy(options["aws_endpoint_url"]) as proxy:
        proxy.watch = looks.at
        given = {**options, **SECRETS, "aws_endpoint_url": proxy.url}
        yield uri, given, open_storage(uri, options)


def connector() -> list[Path]:
    """The jars that ``make hadoop-aws`` has fetched."""
    jars = sorted(CONNECTOR.glob("*.jar"))
    if not jars:
        if os.environ.get("CI") and shutil.which("mvn"):
            pytest.fail("Spark's connector to S3 isn't there, though Maven is: make hadoop-aws")
        pytest.skip("Spark's connector to S3 isn't there; with Maven installed, `make hadoop-aws`")
    return jars


def upload(table: Path, storage: Storage, name: str) -> None:
    for file in table.rglob("*"):
        if file.is_file():
            storage.replace(f"{name}/{file.relative_to(table)}", file.read_bytes())


def download(storage: Storage, name: str, target: Path) -> Path:
    # Read here: a peer that waits for the store in this process would keep it from answering.
    for info in storage.walk(name):
        file = target / info.path.removeprefix(f"{name}/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(storage.read(info.path))
    return target


def logged(caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]) -> str:
    """The log of a task, which has the output of the job. Airflow may print it and pass no records on."""
    text = caplog.text + "".join(capsys.readouterr())
    assert "SparkSubmission" in text
    return text


def check(looks: Looks, told: Mapping[str, str]) -> None:
    """Nothing that was seen or told has a secret, and what had to be seen was."""
    told = {
        **told,
        "command lines": "\n".join(looks.commands),
        "environments of executors": "\n".join(looks.environments),
        "afterwards": looks.afterwards(),
        **looks.pages,
    }
    assert any("SparkSubmit" in text for text in looks.commands)
    assert any("ExecutorBackend" in text for text in looks.commands)
    assert looks.environments
    assert any("Hadoop Properties" in text for text in looks.pages.values())
    assert "SparkListenerEnvironmentUpdate" in told["afterwards"]
    assert "CoarseGrainedExecutorBackend" in told["afterwards"]
    shown = [
        (where, secret)
        for where, text in told.items()
        for secret in (*SECRETS.values(), OWNER_PASSWORD)
        if secret in text
    ]
    assert not shown


@pytest.mark.deep
def test_a_checkpoint_with_the_python_of_an_archive(
    looks: Looks,
    conf: dict[str, str],
    place: tuple[str, dict[str, str], Storage],
    submission: None,
    python_of_executors: Path,
    sales: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    uri, options, storage = place
    upload(sales, storage, "sales")
    archive = packed(python_of_executors, tmp_path / "environment.tar.gz")
    connection = json.dumps({"conn_type": "delta", "extra": options})
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", connection)
    monkeypatch.delenv("PYSPARK_PYTHON")
    task = CheckpointOperator(
        task_id="checkpoint",
        table_uri=f"{uri}/sales",
        delta_conn_id="lake",
        engine="spark",
        spark_conn_id="cluster",
        spark_conf={
            **conf,
            **BOTH_EXECUTORS,
            "spark.archives": f"{archive}#environment",
            "spark.pyspark.python": "./environment/bin/python",
        },
    )
    with caplog.at_level(logging.DEBUG):
        result = task.execute(context_of("checkpoint"))
    assert result["written"]
    assert any("./environment/bin/python" in text for text in looks.commands)
    told = {"log": logged(caplog, capsys), "XCom": json.dumps(result)}
    check(looks, told)

    # What is there now, without the commits.
    copy = download(storage, "sales", tmp_path / "sales")
    checkpoint_only(copy, 3)
    assert sorted(row["id"] for row in rows_by_peer(copy)) == list(range(5, 30))


def test_the_connector_is_that_of_sparks_hadoop() -> None:
    (client,) = (Path(pyspark.__file__).parent / "jars").glob("hadoop-client-api-*.jar")
    version = client.stem.removeprefix("hadoop-client-api-")
    pom = Path(__file__).with_name("pom.xml").read_text()
    assert f"<artifactId>hadoop-aws</artifactId>\n      <version>{version}</version>" in pom


@pytest.mark.deep
def test_a_copy_with_the_connector_of_spark(
    looks: Looks,
    conf: dict[str, str],
    place: tuple[str, dict[str, str], Storage],
    submission: None,
    sales: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    jars = connector()
    uri, options, storage = place
    upload(sales, storage, "sales")
    hook = SparkJobHook("cluster", conf={**conf, "spark.jars": ",".join(map(str, jars))})
    with caplog.at_level(logging.DEBUG):
        result = hook.run(
            "materialize",
            {
                "table_uri": f"{uri}/sales",
                "version": 3,
                "target_uri": f"{uri}/copy",
                "format": "parquet",
            },
            storage_options=options,
            commit_owner_url=f"postgresql://owner:{OWNER_PASSWORD}@127.0.0.1/owner",
        )
    assert result["num_rows"] == 25
    check(looks, {"log": logged(caplog, capsys), "result": json.dumps(result)})

    copy = download(storage, "copy", tmp_path / "copy")
    assert pq.read_table(copy)["id"].sort().to_pylist() == list(range(5, 30))
    assert not [info.path for info in storage.walk("") if "unfinished" in info.path]
