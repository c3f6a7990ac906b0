"""Standard output or standard error that can't be written."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from airflow_delta.cli.main import main
from airflow_delta.engine import LONG, DeltaTable, StructField, StructType

FULL = "standard output can't be written: No space left on device"
COMMANDS = [
    ["describe"],
    ["describe", "--json"],
    ["files"],
    ["history", "--json"],
    ["scan", "--format", "csv"],
    ["scan", "--format", "arrow"],
    ["scan", "--json"],
]


# Not fixtures: pytest puts its own streams in place after them.
@contextmanager
def full_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Standard output on a disk that is full."""
    with open("/dev/full", "w", encoding="utf-8") as stream, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", stream)
        yield


@contextmanager
def closed_pipe(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Standard output as a pipe whose reader has gone."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w", encoding="utf-8") as stream, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", stream)
        yield


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_full_disk_is_an_error_and_a_reader_that_has_enough_is_none(
    sales: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
) -> None:
    command = [words[0], str(sales), *words[1:]]
    with full_disk(monkeypatch):
        assert main(command) == 1
    error = capsys.readouterr().err
    assert FULL in error
    assert error.count("\n") == 1
    with closed_pipe(monkeypatch):
        assert main(command) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("words", [["--help"], ["vacuum", "--help"], ["json-schema"]])
def test_a_help_that_cannot_be_printed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    with full_disk(monkeypatch):
        assert main(words) == 1
    assert FULL in capsys.readouterr().err
    with closed_pipe(monkeypatch):
        assert main(words) == 0
    assert capsys.readouterr().err == ""


def test_nothing_is_done_if_standard_output_is_closed(
    sales: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    assert main(["scan", str(sales), "--format", "arrow"]) == 1
    assert "standard output is closed, so nothing was done" in capsys.readouterr().err


def test_an_error_that_cannot_be_printed_is_not_among_the_results(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with open("/dev/full", "w", encoding="utf-8", buffering=1) as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        assert main(["describe", str(tmp_path)]) == 1
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())  # so that it can be closed
    monkeypatch.setattr(sys, "stderr", None)
    assert main(["describe", str(tmp_path)]) == 1
    assert capsys.readouterr().out == ""


def test_a_help_that_nobody_can_see_ends_like_one_that_is_seen() -> None:
    code = "import sys; from airflow_delta.cli.main import main; sys.exit(main())"
    with open("/dev/full", "w", encoding="utf-8") as stream:
        done = subprocess.run([sys.executable, "-c", code], stderr=stream, check=False)
    assert done.returncode == 2


def test_the_process_ends_without_a_traceback(sales: Path) -> None:
    code = "import sys; from airflow_delta.cli.main import main; sys.exit(main())"
    command = [sys.executable, "-c", code, "describe", str(sales)]
    with open("/dev/full", "w", encoding="utf-8") as stream:
        done = subprocess.run(
            command, stdout=stream, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (done.returncode, done.stderr) == (1, f"airflow-delta: {FULL}\n")


def test_a_character_that_the_terminal_lacks_is_escaped(tmp_path: Path) -> None:
    table = tmp_path / "täble"
    DeltaTable.create(str(table), StructType((StructField("id", LONG),)))
    script = "import sys; from airflow_delta.cli.main import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", script, "describe", str(table)]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = subprocess.run(command, env=environment, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert b"t\\xe4ble" in done.stdout
