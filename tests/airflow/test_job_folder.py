"""Folders of submissions: gone at the end, and swept where a task was killed, but never another's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from airflow_delta.hooks import job_folder as module
from airflow_delta.hooks.job_folder import (
    LEFT_AFTER_SECONDS,
    PREFIX,
    job_folder,
    sweep_job_folders,
)

# A task that starts a job and hangs; the job inherits the lock.
TASK = """
import subprocess, sys, time
from airflow_delta.hooks.job_folder import job_folder
with job_folder() as folder:
    (folder.path / "parameters.json").write_text("{}")
    job = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"],
                           pass_fds=[folder.lock], stdout=subprocess.DEVNULL)
    print(folder.path, job.pid, flush=True)
    time.sleep(600)
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


def make_old(folder: Path) -> None:
    then = time.time() - LEFT_AFTER_SECONDS - 60
    os.utime(folder, (then, then))


def left(temporary: Path, name: str = "x") -> Path:
    """A folder as a killed task leaves it."""
    folder = temporary / f"{PREFIX}{name}"
    folder.mkdir()
    (folder / "in-use.lock").touch()
    (folder / "parameters.json").touch()
    make_old(folder)
    return folder


def test_a_folder_is_its_users_own_and_gone_at_the_end() -> None:
    with job_folder() as folder:
        assert folder.path.stat().st_mode & 0o777 == 0o700
        make_old(folder.path)
        assert sweep_job_folders() == [], "it is in use"
        assert folder.path.exists()
    assert not folder.path.exists()


def test_the_next_task_deletes_what_a_killed_one_has_left(temporary: Path) -> None:
    folder = left(temporary)
    with job_folder():
        assert not folder.exists()


def test_a_folder_is_in_use_as_long_as_task_or_job_is_there() -> None:
    task = subprocess.Popen([sys.executable, "-c", TASK], stdout=subprocess.PIPE, text=True)
    assert task.stdout is not None
    path, _, job = task.stdout.readline().strip().rpartition(" ")
    folder = Path(path)
    try:
        make_old(folder)
        assert sweep_job_folders() == []
        task.kill()  # as the kernel does for want of memory: nothing is cleaned up
        task.wait()
        assert sweep_job_folders() == [], "the job goes on, and serves its files"
    finally:
        os.kill(int(job), signal.SIGKILL)
        task.kill()
        task.wait()
    deadline = time.monotonic() + 10
    while not (swept := sweep_job_folders()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert swept == [folder]
    assert not folder.exists()


def test_a_young_folder_stays(temporary: Path) -> None:
    folder = left(temporary)
    os.utime(folder)
    assert sweep_job_folders() == []
    assert folder.exists()


def test_a_folder_that_was_not_made_here_stays(temporary: Path) -> None:
    without_lock = temporary / f"{PREFIX}report"
    without_lock.mkdir()
    make_old(without_lock)
    other_name = left(temporary).rename(temporary / "others-job-x")
    make_old(other_name)
    file = temporary / f"{PREFIX}file"
    file.touch()
    make_old(file)
    assert sweep_job_folders() == []
    assert without_lock.exists()
    assert other_name.exists()
    assert file.exists()


def test_links_are_not_followed(temporary: Path, tmp_path: Path) -> None:
    precious = left(tmp_path, "precious").rename(tmp_path / "precious")
    link = temporary / f"{PREFIX}link"
    link.symlink_to(precious)
    make_old(precious)
    # A lock that is a link.
    folder = temporary / f"{PREFIX}locked"
    folder.mkdir()
    (folder / "in-use.lock").symlink_to(precious / "in-use.lock")
    make_old(folder)
    # A folder that is deleted, with a link in it.
    swept = left(temporary, "swept")
    (swept / "files").symlink_to(precious)
    make_old(swept)
    assert sweep_job_folders() == [swept]
    assert sorted(file.name for file in precious.iterdir()) == ["in-use.lock", "parameters.json"]
    assert link.is_symlink()
    assert folder.exists()


def test_another_users_folder_stays(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = left(temporary)
    monkeypatch.setattr(module.os, "geteuid", lambda: os.getuid() + 1)
    assert sweep_job_folders() == []
    assert folder.exists()


def test_what_cannot_be_deleted_is_logged_and_stops_nothing(
    temporary: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = left(temporary)

    def refuse(path: Path) -> None:
        raise PermissionError(13, "denied", str(path))

    monkeypatch.setattr(module.shutil, "rmtree", refuse)
    with caplog.at_level("WARNING"):
        assert sweep_job_folders() == []
    assert f"the left-over folder {folder} can't be deleted" in caplog.text
