"""The demo's environment: what its steps and a reader's shell get."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from scripts import demo


@pytest.fixture
def other_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with another Spark: its home, and a spark-submit on the PATH."""
    folder = tmp_path / "spark" / "bin"
    folder.mkdir(parents=True)
    for program in ("spark-submit", "airflow"):
        (folder / program).write_text("#!/bin/sh\nexit 1\n")
        (folder / program).chmod(0o755)
    monkeypatch.setenv("SPARK_HOME", str(folder.parent))
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    monkeypatch.setenv("JAVA_HOME", "/opt/a java")
    return folder


def test_the_steps_use_the_demos_own_spark(other_spark: Path) -> None:
    environment = demo.environment()
    assert "SPARK_HOME" not in environment
    assert environment["JAVA_HOME"] == "/opt/a java"
    own = shutil.which("spark-submit", path=environment["PATH"])
    assert own == str(demo.SCRIPTS / "spark-submit")


def test_a_shell_that_reads_the_settings_finds_the_demos_programs(
    other_spark: Path, tmp_path: Path
) -> None:
    (tmp_path / "env.sh").write_text(demo.shell_settings())
    script = f'. "{tmp_path}/env.sh"; command -v airflow spark-submit; echo "$JAVA_HOME"'
    script += '; echo "${SPARK_HOME-none}"; echo "$AIRFLOW_CONN_SPARK_DEFAULT"'
    done = subprocess.run(["sh", "-ec", script], check=True, capture_output=True, text=True)
    # POSIX lets a shell answer for the first name only.
    first, *_, java, spark, connection = done.stdout.splitlines()
    assert first == str(demo.SCRIPTS / "airflow")
    assert (java, spark) == ("/opt/a java", "none")
    assert connection == demo.settings()["AIRFLOW_CONN_SPARK_DEFAULT"]
