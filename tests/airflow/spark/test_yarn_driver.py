"""Deploy mode ``cluster`` without a cluster: what reaches spark-submit, and what the worker does then.

A script in the place of spark-submit stands for Spark, as in `test_job`; tests/yarn has a real cluster.
"""

from __future__ import annotations

import inspect
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from airflow_delta.engine.transaction.task_run import TASK_RUN_VARIABLE
from airflow_delta.hooks.spark import job as spark_job
from airflow_delta.hooks.spark import yarn_driver
from airflow_delta.hooks.spark.job import SparkJobHook
from airflow_delta.version_compat import AirflowException, AirflowFailException

SECRET = "s3cr3t-value"
OPTIONS = {"aws_secret_access_key": SECRET}
URL = "postgresql://owner:pa55word@host/owner"

# The submission records what it was given, and then does as the test says. The other program of the worker
# reports what the driver has published.
SCRIPT = """
import json, os, signal, stat, sys, threading
folder = {folder!r}
program = next(text for text in sys.argv if text.endswith("_program.py"))
name = os.path.basename(program)[:-3]
conf = dict(text.split("=", 1) for flag, text in zip(sys.argv, sys.argv[1:]) if flag == "--conf")
files = [file for file in conf.get("spark.yarn.dist.files", "").split(",") if os.path.exists(file)]
record = {{"arguments": sys.argv[1:], "environment": dict(os.environ), "conf": conf,
          "files": {{os.path.basename(file): json.load(open(file)) for file in files}},
          "modes": [stat.S_IMODE(os.stat(file).st_mode) for file in files]}}
with open(os.path.join(folder, name + ".part"), "w") as written:
    json.dump(record, written)
os.rename(os.path.join(folder, name + ".part"), os.path.join(folder, name))
if name == "driver_program":
    {submission}
else:
    {client}
"""
REPORT = """open(sys.argv[-1], "w").write(json.dumps({report!r}))"""
APPLICATION = {
    "id": "application_1_0001",
    "state": "FINISHED",
    "final_status": "SUCCEEDED",
    "diagnostics": "",
    "tracking_url": "http://rm/proxy/application_1_0001/",
}
WAITS = "threading.Event().wait()"


@pytest.fixture(autouse=True)
def connection(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"conn_type": "spark", "host": "yarn", "extra": {"deploy-mode": "cluster"}}
    monkeypatch.setenv("AIRFLOW_CONN_YARN", json.dumps(given))


class Submissions:
    """The script, and what it has recorded."""

    def __init__(self, script: Path, folder: Path) -> None:
        self._script = script
        self._folder = folder

    def do(
        self,
        *,
        submission: str = "pass",
        client: str | None = None,
        result: Any = None,
        **changes: str,
    ) -> None:
        """Choose what the two programs do; the default is a success without a result."""
        report = {"applications": [{**APPLICATION, **changes}], "result": result}
        client = REPORT.format(report=report) if client is None else client
        folder = str(self._folder)
        self._script.write_text(SCRIPT.format(folder=folder, submission=submission, client=client))

    def record(self, name: str = "driver_program") -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self._folder / name).read_text())
        return found

    def wait_for(self, name: str = "driver_program") -> None:
        deadline, pause = time.monotonic() + 30, threading.Event()
        while not (self._folder / name).exists():
            assert time.monotonic() < deadline
            pause.wait(0.02)


@pytest.fixture
def submissions(fake_spark_submit: Path, tmp_path: Path) -> Submissions:
    folder = tmp_path / "submissions"
    folder.mkdir()
    return Submissions(fake_spark_submit, folder)


def run(hook: SparkJobHook, **parameters: Any) -> dict[str, Any]:
    return hook.run("delete", parameters, storage_options=OPTIONS, commit_owner_url=URL)


@pytest.mark.parametrize(
    ("host", "reason"),
    [
        ("spark://master:7077", "Spark's standalone clusters don't run Python drivers"),
        ("local[2]", r"the master local\[2\] has no such mode"),
    ],
)
def test_masters_without_the_mode_are_refused(
    host: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"conn_type": "spark", "host": host, "extra": {"deploy-mode": "cluster"}}
    monkeypatch.setenv("AIRFLOW_CONN_OTHER", json.dumps(given))
    message = f"^Spark connection 'other': .*'yarn' only: {reason}; use deploy mode 'client'$"
    with pytest.raises(AirflowFailException, match=message):
        SparkJobHook("other")


def test_kubernetes_is_refused() -> None:
    with pytest.raises(AirflowFailException, match="no way back to the worker; use deploy mode"):
        yarn_driver.check_cluster_mode("k8s://https://cluster:6443", connection_id="pods")


def test_a_task_chooses_the_mode(submissions: Submissions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_PLAIN", json.dumps({"conn_type": "spark", "host": "yarn"}))
    submissions.do(result={"version": 1})
    conf = {"spark.submit.deployMode": "cluster"}
    assert run(SparkJobHook("plain", conf=conf)) == {"version": 1}
    arguments = submissions.record()["arguments"]
    assert arguments[arguments.index("--deploy-mode") + 1] == "cluster"
    assert not [text for text in arguments if text.startswith("spark.submit.deployMode")]


def test_parameters_and_secrets_are_private_files(
    submissions: Submissions,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    submissions.do(result={"version": 7})
    with caplog.at_level("DEBUG"):
        assert run(SparkJobHook("yarn"), table_uri="/t", condition="id = 1") == {"version": 7}
    told = submissions.record()
    parameters, variables = told["files"].values()
    result_path = "airflow-delta-result.json"
    assert parameters == {"table_uri": "/t", "condition": "id = 1", "result_path": result_path}
    assert json.loads(variables["AIRFLOW_DELTA_STORAGE_OPTIONS"]) == OPTIONS
    assert variables["AIRFLOW_DELTA_COMMIT_OWNER_URL"] == URL
    assert told["modes"] == [0o600, 0o600]
    client = submissions.record("client_program")
    # Airflow writes the logs of tasks to the output.
    output = capsys.readouterr().out
    assert "Spark-Submit cmd" in caplog.text + output
    for record in (told, client):
        shown = json.dumps([record["arguments"], record["environment"]]) + caplog.text + output
        assert SECRET not in shown
        assert "pa55word" not in shown


def test_the_properties_of_the_submission(submissions: Submissions) -> None:
    given = {
        "spark.executor.memory": "3g",
        "spark.yarn.tags": "etl",
        "spark.yarn.dist.files": "/etc/a.conf",
    }
    submissions.do(result={})
    hook = SparkJobHook("yarn", conf=given)
    tags = []
    for _ in range(2):
        run(hook)
        conf = submissions.record()["conf"]
        assert conf["spark.executor.memory"] == "3g"
        assert conf["spark.yarn.maxAppAttempts"] == "1"
        assert conf["spark.yarn.submit.waitAppCompletion"] == "true"
        assert conf["spark.yarn.dist.files"].startswith("/etc/a.conf,")
        theirs, tag = conf["spark.yarn.tags"].split(",")
        assert theirs == "etl"
        assert tag == tag.lower()
        assert submissions.record()["arguments"][-2:] == ["delete", f"{tag}.json"]
        assert submissions.record("client_program")["arguments"][-2] == tag
        tags.append(tag)
    assert tags[0] != tags[1]
    run(SparkJobHook("yarn", conf={"spark.yarn.maxAppAttempts": "2"}))
    assert submissions.record()["conf"]["spark.yarn.maxAppAttempts"] == "2"


def test_the_driver_has_the_python_of_the_containers(
    submissions: Submissions, monkeypatch: pytest.MonkeyPatch
) -> None:
    submissions.do(result={})
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", "/of/the/worker/python")
    run(SparkJobHook("yarn"))
    told, client = submissions.record(), submissions.record("client_program")
    assert "PYSPARK_DRIVER_PYTHON" not in told["environment"]
    assert "spark.pyspark.driver.python" not in told["conf"]
    assert client["conf"]["spark.pyspark.driver.python"] == sys.executable
    assert client["environment"]["PYSPARK_DRIVER_PYTHON"] == sys.executable
    run(SparkJobHook("yarn", conf={"spark.pyspark.python": "./environment/bin/python"}))
    conf = submissions.record()["conf"]
    assert conf["spark.pyspark.driver.python"] == "./environment/bin/python"


def test_the_program_at_the_end_has_what_the_services_need(
    submissions: Submissions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {
        "conn_type": "spark",
        "host": "yarn",
        "extra": {"deploy-mode": "cluster", "principal": "etl@REALM", "keytab": "a2V5dGFi"},
    }
    monkeypatch.setenv("AIRFLOW_CONN_SECURE", json.dumps(given))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    submissions.do(result={})
    conf = {
        "spark.hadoop.yarn.resourcemanager.connect.max-wait.ms": "9000",
        "spark.yarn.stagingDir": "hdfs://nn/staging",
        "spark.archives": "/opt/environment.tar.gz",
        "spark.jars.packages": "a:b:1",
    }
    run(SparkJobHook("secure", conf=conf))
    told = submissions.record("client_program")
    arguments = told["arguments"]
    assert arguments[:4] == ["--master", "local[1]", "--deploy-mode", "client"]
    assert arguments[arguments.index("--principal") + 1] == "etl@REALM"
    assert Path(arguments[arguments.index("--keytab") + 1]).read_bytes() == b"keytab"
    assert told["conf"]["spark.hadoop.yarn.resourcemanager.connect.max-wait.ms"] == "9000"
    assert told["conf"]["spark.yarn.stagingDir"] == "hdfs://nn/staging"
    assert told["conf"]["spark.archives"] == told["conf"]["spark.jars.packages"] == ""


def test_a_task_has_to_wait_for_its_application() -> None:
    conf = {"spark.yarn.submit.waitAppCompletion": "false"}
    with pytest.raises(AirflowFailException, match="has to wait for the application's end"):
        SparkJobHook("yarn", conf=conf)


def test_the_error_of_the_job_comes_first(submissions: Submissions) -> None:
    failure = {"error": {"type": "VersionNotFoundError", "message": "/t: no version 9"}}
    submissions.do(
        submission="sys.exit(1)", result=failure, final_status="FAILED", diagnostics="status 1"
    )
    with pytest.raises(AirflowFailException) as caught:
        run(SparkJobHook("yarn"))
    assert str(caught.value).startswith(
        "VersionNotFoundError: /t: no version 9\n"
        "YARN application application_1_0001: FINISHED, FAILED\nstatus 1\n"
        "the driver's log: yarn logs -applicationId application_1_0001, or http://rm/proxy/"
    )


def test_an_application_that_somebody_else_has_killed(submissions: Submissions) -> None:
    submissions.do(submission="sys.exit(1)", state="KILLED", final_status="KILLED")
    with pytest.raises(AirflowException, match=r"^YARN application application_1_0001: KILLED"):
        run(SparkJobHook("yarn"))


def test_a_success_without_a_result(submissions: Submissions) -> None:
    submissions.do()
    message = r"(?s)^the Spark job 'delete' succeeded but left no result\nYARN application app"
    with pytest.raises(AirflowException, match=message):
        run(SparkJobHook("yarn"))


def test_a_result_that_cannot_be_fetched(submissions: Submissions) -> None:
    submissions.do(client="sys.exit('no ResourceManager answers')")
    message = r"(?s)left no result\n.*couldn't be fetched:\nno ResourceManager answers"
    with pytest.raises(AirflowException, match=message):
        run(SparkJobHook("yarn"))


@pytest.mark.parametrize("client", [None, WAITS], ids=["done", "goes on"])
def test_a_kill_ends_spark_submit_and_then_the_application(
    submissions: Submissions, monkeypatch: pytest.MonkeyPatch, client: str | None
) -> None:
    if client is not None:
        monkeypatch.setattr(spark_job, "_APPLICATION_WAIT_SECONDS", 0.1)
        monkeypatch.setattr(spark_job, "_END_SECONDS", 0.1)
    submissions.do(submission=WAITS, client=client, state="KILLED", final_status="KILLED")
    hook = SparkJobHook("yarn")
    failures: list[str] = []

    def submit() -> None:
        try:
            run(hook)
        except AirflowException as error:
            failures.append(str(error))

    task = threading.Thread(target=submit)
    task.start()
    submissions.wait_for()
    process = hook._submission.process
    assert process is not None
    driver = hook._driver
    hook.on_kill()
    assert process.poll() is not None
    if client is None:
        submissions.wait_for("client_program")
    # The task needn't wait again: it is about to be killed.
    task.join(timeout=50)
    assert len(failures) == 1
    expected = "isn't confirmed yet" if client else "application_1_0001: KILLED"
    assert expected in failures[0]
    assert isinstance(driver, yarn_driver.YarnDriver)
    assert driver._client is not None
    assert os.getpgid(driver._client.pid) == driver._client.pid if client else True
    driver._client.kill()
    driver._client.wait()


def test_a_kill_is_done_before_the_supervisor_kills_the_task() -> None:
    from airflow.sdk.execution_time.supervisor import WatchedSubprocess

    patience = inspect.signature(WatchedSubprocess.kill).parameters["escalation_delay"].default
    longest = spark_job._CLIENT_GRACE_SECONDS + spark_job._KILL_WAIT_SECONDS
    assert longest + spark_job._APPLICATION_WAIT_SECONDS < patience


def test_a_timeout_of_the_task_ends_the_application(submissions: Submissions) -> None:
    submissions.do(submission=WAITS, state="KILLED")

    class TimeoutOfTheTest(BaseException):
        """Airflow's timeouts are raised by a signal handler, in the middle of any statement."""

    def interrupt(number: int, frame: object) -> None:
        raise TimeoutOfTheTest

    def watch() -> None:
        submissions.wait_for()
        os.kill(os.getpid(), signal.SIGUSR1)

    previous = signal.signal(signal.SIGUSR1, interrupt)
    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        with pytest.raises(TimeoutOfTheTest):
            run(SparkJobHook("yarn"))
    finally:
        watcher.join()
        signal.signal(signal.SIGUSR1, previous)
    assert submissions.record("client_program")["arguments"]


def test_the_mode_of_spark_defaults_is_not_used(fake_spark_submit: Path) -> None:
    fake_spark_submit.write_text(
        "import json, sys\n"
        "path = json.load(open(sys.argv[-1]))['result_path']\n"
        "json.dump(sys.argv, open(path, 'w'))\n"
    )
    arguments: Any = run(SparkJobHook("spark_default"))
    assert arguments[arguments.index("--deploy-mode") + 1] == "client"


def test_the_driver_knows_the_run_of_the_task(
    submissions: Submissions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TASK_RUN_VARIABLE, '{"dag_id": "lake"}')
    submissions.do(result={"version": 3})
    run(SparkJobHook("yarn"))
    _, variables = submissions.record()["files"].values()
    assert variables[TASK_RUN_VARIABLE] == '{"dag_id": "lake"}'
