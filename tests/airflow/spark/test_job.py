"""Submitting a job: what reaches spark-submit, what comes back, and what happens on a kill.

A script in the place of spark-submit stands for Spark; the jobs themselves, and a real submission,
are tested with the DAG.
"""

from __future__ import annotations

import inspect
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from airflow_delta.hooks.failures import POLICY, TableFailure
from airflow_delta.hooks.spark import job as spark_job
from airflow_delta.hooks.spark.job import SparkJobHook
from airflow_delta.hooks.spark.master import LIMIT_SECONDS
from airflow_delta.job_files import SparkStartError
from airflow_delta.version_compat import (
    AirflowException,
    AirflowFailException,
    AirflowNotFoundException,
)

SECRET = "s3cr3t-value"
OPTIONS = {"aws_secret_access_key": SECRET}

# Records what it was given and answers as a job would: through the file that its parameters name.
REPORTS = """
import json, os, sys
parameters = json.load(open(sys.argv[-1]))
json.dump({"arguments": sys.argv[1:], "environment": dict(os.environ), "parameters": parameters,
           "files": {name: os.path.exists(name) for name in sys.argv}},
          open(parameters["result_path"], "w"))
"""


def run(hook: SparkJobHook, **parameters: Any) -> dict[str, Any]:
    return hook.run("materialize", parameters, storage_options=OPTIONS)


def test_parameters_and_result_are_json_files(fake_spark_submit: Path) -> None:
    fake_spark_submit.write_text(REPORTS)
    uri = '/tables/it\'s "quoted"; $(touch x) {{}} ü'
    result = run(SparkJobHook(), table_uri=uri, version=7)
    result_path = result["parameters"].pop("result_path")
    assert result["parameters"] == {"table_uri": uri, "version": 7}
    assert uri not in " ".join(result["arguments"])
    assert not Path(result_path).exists(), "the files of a submission end with it"


def test_the_job_does_not_get_the_standard_input_of_the_task(fake_spark_submit: Path) -> None:
    """It is the connection to Airflow's supervisor, which waits until nobody has it open."""
    fake_spark_submit.write_text(
        REPORTS.replace(
            "for name in sys.argv}",
            'for name in sys.argv}, "input": os.readlink("/proc/self/fd/0")',
        )
    )
    own = os.dup(0)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        os.dup2(theirs.fileno(), 0)
        try:
            assert run(SparkJobHook())["input"] == os.devnull
        finally:
            os.dup2(own, 0)
            os.close(own)


def test_the_arguments_of_the_submission(fake_spark_submit: Path) -> None:
    fake_spark_submit.write_text(REPORTS)
    hook = SparkJobHook(conf={"spark.executor.memory": "3g"}, name="airflow:lake.copy")
    result = run(hook)
    arguments = result["arguments"]
    assert arguments[arguments.index("--master") + 1] == "local[1]"
    assert arguments[arguments.index("--name") + 1] == "airflow:lake.copy"
    assert "spark.executor.memory=3g" in arguments
    application = Path(arguments[-2])
    assert application.parts[-4:] == ("airflow_delta", "spark", "jobs", "materialize.py")
    assert application.is_file()


def test_no_job_hides_a_module_of_python() -> None:
    # Python looks in the directory of a script first: PySpark would import a job in place of a module.
    jobs = {file.stem for file in (spark_job._PACKAGE / "spark" / "jobs").glob("*.py")}
    assert len(jobs) > 5
    assert not jobs & sys.stdlib_module_names


def test_secrets_travel_in_the_environment_only(
    fake_spark_submit: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fake_spark_submit.write_text(REPORTS)
    with caplog.at_level("DEBUG"):
        result = run(SparkJobHook())
    assert SECRET not in " ".join(result["arguments"])
    assert SECRET not in json.dumps(result["parameters"])
    assert SECRET not in caplog.text
    carriers = [name for name, value in result["environment"].items() if SECRET in value]
    assert len(carriers) == 1
    assert json.loads(result["environment"][carriers[0]]) == OPTIONS
    assert SECRET not in "".join(os.environ.values()), "this process's environment is untouched"


def test_the_driver_is_this_interpreter_unless_told_otherwise(
    fake_spark_submit: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_spark_submit.write_text(REPORTS)
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.delenv("PYSPARK_DRIVER_PYTHON", raising=False)
    environment = run(SparkJobHook())["environment"]
    assert environment["PYSPARK_PYTHON"] == environment["PYSPARK_DRIVER_PYTHON"] == sys.executable
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", "/opt/python")
    assert run(SparkJobHook())["environment"]["PYSPARK_DRIVER_PYTHON"] == "/opt/python"


def test_executors_of_a_cluster_keep_their_own_python(
    fake_spark_submit: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_spark_submit.write_text(REPORTS)
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    with socket.create_server(("127.0.0.1", 0)) as master:
        port = master.getsockname()[1]
        connection = {"conn_type": "spark", "host": "spark://127.0.0.1", "port": port}
        monkeypatch.setenv("AIRFLOW_CONN_CLUSTER", json.dumps(connection))
        result = run(SparkJobHook("cluster"))
    assert "PYSPARK_PYTHON" not in result["environment"]
    assert f"spark://127.0.0.1:{port}" in result["arguments"]


def test_the_driver_keeps_its_python_when_executors_are_given_one(
    fake_spark_submit: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_spark_submit.write_text(REPORTS)
    monkeypatch.delenv("PYSPARK_DRIVER_PYTHON", raising=False)
    given = {"spark.pyspark.python": "./environment/bin/python"}

    def drivers_python(conf: dict[str, str]) -> list[str]:
        name = "spark.pyspark.driver.python="
        arguments = run(SparkJobHook(conf=conf))["arguments"]
        return [text.removeprefix(name) for text in arguments if text.startswith(name)]

    assert drivers_python({}) == []
    assert drivers_python(given) == [sys.executable]
    theirs = {**given, "spark.pyspark.driver.python": "/usr/bin/python3"}
    assert drivers_python(theirs) == ["/usr/bin/python3"]
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", "/opt/python")
    assert drivers_python(given) == ["/opt/python"]


def test_further_python_files_travel_along(fake_spark_submit: Path) -> None:
    fake_spark_submit.write_text(REPORTS)
    result = run(SparkJobHook(conf={"spark.submit.pyFiles": "/lib/a.py,/lib/b.zip"}))
    arguments = result["arguments"]
    package, *others = arguments[arguments.index("--py-files") + 1].split(",")
    assert package.endswith("/airflow_delta.zip")
    assert others == ["/lib/a.py", "/lib/b.zip"]
    assert not [text for text in arguments if text.startswith("spark.submit.pyFiles")]


def test_the_package_travels_along_and_works_from_its_zip(
    fake_spark_submit: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "shipped.zip"
    fake_spark_submit.write_text(
        REPORTS
        + "import shutil\n"
        + f"shutil.copy(sys.argv[sys.argv.index('--py-files') + 1], {str(copy)!r})\n"
    )
    run(SparkJobHook())
    names = zipfile.ZipFile(copy).namelist()
    assert "airflow_delta/engine/errors.py" in names
    assert not [name for name in names if "/hooks/" in name or "/operators/" in name]
    code = "import airflow_delta.engine.errors as e; print(e.__file__)"
    found = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(copy)},
    )
    assert found.stdout.startswith(str(copy))


def test_a_failed_job_tells_its_last_words(fake_spark_submit: Path) -> None:
    fake_spark_submit.write_text("import sys; print('ValueError: no such table'); sys.exit(3)")
    with pytest.raises(AirflowException, match=r"(?s)Error code is: 3.*no such table"):
        run(SparkJobHook())


@pytest.mark.parametrize("kill", ["os.kill(os.getpid(), 9)", "sys.exit(137)"])
def test_a_kill_by_the_system_says_what_it_means(fake_spark_submit: Path, kill: str) -> None:
    """137 is the exit code of spark-submit if its driver, a child, was killed."""
    fake_spark_submit.write_text(f"import os, sys; {kill}")
    found = r"(?s)^Spark connection 'spark_default': .*SIGKILL.*memory.*Error code is: (-9|137)"
    with pytest.raises(AirflowException, match=found):
        run(SparkJobHook())


# Fails as `airflow_delta.job_files` lets a job fail.
FAILS = """
import json, sys
path = json.load(open(sys.argv[-1]))["result_path"]
json.dump({{"error": {{"type": {type!r}, "message": {message!r}}}}}, open(path, "w"))
print("a long trace")
sys.exit(1)
"""


def test_the_error_of_the_job_comes_first(fake_spark_submit: Path) -> None:
    script = FAILS.format(type="StorageError", message="/t: the store is away")
    fake_spark_submit.write_text(script)
    with pytest.raises(AirflowException) as caught:
        run(SparkJobHook())
    assert str(caught.value).startswith("StorageError: /t: the store is away\n")
    assert "a long trace" in str(caught.value)
    assert not isinstance(caught.value, AirflowFailException), "another try may help"


DENIALS = ("AccessDeniedError", "WriteDeniedError")


@pytest.mark.parametrize("kind", DENIALS)
def test_credentials_that_expired_in_the_job_are_no_reason_to_give_up(
    fake_spark_submit: Path, kind: str
) -> None:
    fake_spark_submit.write_text(FAILS.format(type=kind, message="expired"))
    with pytest.raises(AirflowException, match=f"^{kind}: expired") as caught:
        run(SparkJobHook())
    assert not isinstance(caught.value, AirflowFailException), "the next try has others"


@pytest.mark.parametrize(
    "kind", [kind for kind, what in POLICY.items() if what == "fail" and kind not in DENIALS]
)
def test_what_another_try_would_find_again_is_not_tried_again(
    fake_spark_submit: Path, kind: str
) -> None:
    fake_spark_submit.write_text(FAILS.format(type=kind, message="no such format"))
    with pytest.raises(AirflowFailException, match=f"^{kind}: no such format"):
        run(SparkJobHook())


def test_a_spark_that_does_not_start_names_connection_and_master(fake_spark_submit: Path) -> None:
    kind, message = SparkStartError.__name__, "Spark couldn't be started: java.lang.Error: why"
    fake_spark_submit.write_text(FAILS.format(type=kind, message=message))
    told = f"Spark connection 'spark_default', master local[1]: {message}"
    with pytest.raises(AirflowException, match=f"^{re.escape(told)}\n") as caught:
        run(SparkJobHook())
    assert not isinstance(caught.value, AirflowFailException), "another try may help"


def test_a_master_that_is_not_there_is_told_before_anything_is_submitted(
    fake_spark_submit: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = tmp_path / "started"
    fake_spark_submit.write_text(f"open({str(started)!r}, 'w')")
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    connection = {"conn_type": "spark", "host": "spark://127.0.0.1", "port": port}
    monkeypatch.setenv("AIRFLOW_CONN_DEAD", json.dumps(connection))
    began = time.monotonic()
    told = rf"^Spark connection 'dead': the master spark://127.0.0.1:{port} can't be .*refused"
    with pytest.raises(AirflowException, match=told) as caught:
        run(SparkJobHook("dead"))
    assert not isinstance(caught.value, AirflowFailException), "it may be there for the next try"
    assert time.monotonic() - began < LIMIT_SECONDS
    assert not started.exists()


def test_a_worker_without_spark_submit_is_told_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(spark_job.sysconfig, "get_path", lambda _: str(tmp_path))
    with pytest.raises(AirflowFailException, match=r"no spark-submit .*airflow-delta\[spark\]"):
        run(SparkJobHook())


def test_a_driver_logs_warnings_unless_the_user_has_settings(
    fake_spark_submit: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_spark_submit.write_text(REPORTS)
    variable = "LOG4J_CONFIGURATION_FILE"

    def settings() -> str | None:
        found: str | None = run(SparkJobHook())["environment"].get(variable)
        return found

    monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    ours = settings()
    assert ours is not None
    assert "rootLogger.level = warn" in Path(ours).read_text()
    (tmp_path / "log4j2.properties").touch()
    assert settings() is None, "Spark finds the user's in its directory of settings"
    monkeypatch.setenv(variable, "/etc/log4j2.xml")
    assert settings() == "/etc/log4j2.xml"


def test_a_job_whose_spark_fails_after_its_result_has_failed(fake_spark_submit: Path) -> None:
    fake_spark_submit.write_text(REPORTS + "sys.exit(3)")
    with pytest.raises(AirflowException, match="Error code is: 3"):
        run(SparkJobHook())


def test_a_job_without_a_result_has_not_succeeded(fake_spark_submit: Path) -> None:
    fake_spark_submit.write_text("")
    with pytest.raises(AirflowException, match="'materialize' succeeded but left no result"):
        run(SparkJobHook())


def test_a_missing_connection_is_an_error_and_not_yarn() -> None:
    with pytest.raises(AirflowNotFoundException, match="'nowhere' isn't defined or can't be"):
        SparkJobHook("nowhere")


def test_a_connection_that_cannot_be_parsed_is_an_error_and_not_yarn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_BROKEN", "spark://local[*]")
    with pytest.raises(AirflowNotFoundException, match="'broken' isn't defined or can't be parsed"):
        SparkJobHook("broken")


def test_a_connection_without_a_master_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_EMPTY", '{"conn_type": "spark"}')
    with pytest.raises(TableFailure, match="'empty' names no master"):
        SparkJobHook("empty")


def test_a_master_of_kubernetes_needs_its_provider(
    fake_spark_submit: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.providers.apache.spark.hooks import spark_submit

    connection = {"conn_type": "spark", "host": "k8s://https://cluster", "port": 6443}
    monkeypatch.setenv("AIRFLOW_CONN_PODS", json.dumps(connection))
    provider = "airflow.providers.cncf.kubernetes.kube_client"
    monkeypatch.setitem(sys.modules, provider, None)
    with pytest.raises(TableFailure, match="pip install apache-airflow-providers-cncf-kubern"):
        SparkJobHook("pods")
    monkeypatch.setitem(sys.modules, provider, ModuleType(provider))
    monkeypatch.setattr(spark_submit, "kube_client", sys.modules[provider], raising=False)
    fake_spark_submit.write_text(REPORTS + "print('done')")
    assert "k8s://https://cluster:6443" in run(SparkJobHook("pods"))["arguments"]


# Starts a child, as spark-submit starts the driver's Python, and tells both process ids. The
# child ignores nothing and waits for its end.
HANGS = """
import os, subprocess, sys, threading
child = subprocess.Popen([sys.executable, "-c", "import threading; threading.Event().wait()"])
with open({pids!r}, "w") as pids:
    pids.write(f"{{os.getpid()}} {{child.pid}}")
threading.Event().wait()
"""


# The same, deaf to a polite end.
DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"

# Starts a child that stays when spark-submit itself is gone.
LEAVES_A_CHILD = """
import os, subprocess, sys
child = subprocess.Popen(
    [sys.executable, "-c", "import threading; threading.Event().wait()"], stdout=subprocess.DEVNULL,
    stderr=subprocess.DEVNULL
)
open({pids!r}, "w").write(str(child.pid))
sys.exit(1)
"""


def ended(process: int) -> bool:
    """Whether a process is gone, or a zombie that nobody has waited for."""
    try:
        state = Path(f"/proc/{process}/stat").read_text()
    except FileNotFoundError:
        return True
    return state.rpartition(")")[2].split()[0] == "Z"


@pytest.mark.parametrize("prelude", ["", DEAF], ids=["polite", "deaf"])
def test_a_kill_ends_spark_submit_and_what_it_started(
    fake_spark_submit: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prelude: str
) -> None:
    if prelude:
        monkeypatch.setattr(spark_job, "_KILL_GRACE_SECONDS", 0.1)
    pids = tmp_path / "pids"
    os.mkfifo(pids)
    fake_spark_submit.write_text(prelude + HANGS.format(pids=str(pids)))
    hook = SparkJobHook()
    failures: list[BaseException] = []

    def submit() -> None:
        try:
            run(hook)
        except AirflowException as error:
            failures.append(error)

    task = threading.Thread(target=submit)
    task.start()
    parent, child = map(int, pids.read_text().split())  # a pipe: waits for both to have started
    assert not ended(parent)
    assert not ended(child)
    hook.on_kill()
    task.join(timeout=30)
    assert not task.is_alive()
    assert ended(parent)
    assert ended(child)
    assert len(failures) == 1, "the task must not take a killed job for a successful one"


def test_a_child_that_outlives_spark_submit_is_ended_too(
    fake_spark_submit: Path, tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    fake_spark_submit.write_text(LEAVES_A_CHILD.format(pids=str(pids)))
    with pytest.raises(AirflowException, match="Error code is: 1"):
        run(SparkJobHook())
    assert ended(int(pids.read_text()))


def test_a_kill_is_done_before_the_supervisor_kills_the_task() -> None:
    from airflow.sdk.execution_time.supervisor import WatchedSubprocess

    patience = inspect.signature(WatchedSubprocess.kill).parameters["escalation_delay"].default
    assert spark_job._KILL_GRACE_SECONDS <= 3
    longest = spark_job._KILL_GRACE_SECONDS + spark_job._KILL_WAIT_SECONDS
    assert longest < patience


def test_a_timeout_of_the_task_does_not_leave_the_job_behind(
    fake_spark_submit: Path, tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    os.mkfifo(pids)
    fake_spark_submit.write_text(HANGS.format(pids=str(pids)))
    started: list[int] = []

    class TimeoutOfTheTest(BaseException):
        """Airflow's timeouts are raised by a signal handler, in the middle of any statement."""

    def interrupt(number: int, frame: object) -> None:
        raise TimeoutOfTheTest

    def watch() -> None:
        started.extend(map(int, pids.read_text().split()))
        os.kill(os.getpid(), signal.SIGUSR1)

    previous = signal.signal(signal.SIGUSR1, interrupt)
    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        with pytest.raises(TimeoutOfTheTest):
            run(SparkJobHook())
    finally:
        watcher.join()
        signal.signal(signal.SIGUSR1, previous)
    assert len(started) == 2
    assert all(map(ended, started))


def test_a_kill_while_the_process_starts_ends_it(
    fake_spark_submit: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pids = tmp_path / "pids"
    os.mkfifo(pids)
    fake_spark_submit.write_text(HANGS.format(pids=str(pids)))
    hook, popen = SparkJobHook(), subprocess.Popen
    started: list[int] = []

    def start(*arguments: Any, **named: Any) -> Any:
        """The signal arrives before anybody knows the process."""
        process = popen(*arguments, **named)
        started.extend(map(int, pids.read_text().split()))
        monkeypatch.setattr(subprocess, "Popen", popen)
        assert hook._submission.process is None
        hook.on_kill()
        return process

    monkeypatch.setattr(subprocess, "Popen", start)
    with pytest.raises(AirflowException):
        run(hook)
    assert len(started) == 2
    assert all(map(ended, started))
