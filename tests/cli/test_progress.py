"""The progress of long work: on a terminal, and nowhere else."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from airflow_delta.cli.main import main
from airflow_delta.cli.output import print_line, print_note
from airflow_delta.cli.progress import show_progress
from airflow_delta.engine import DeltaTable, clock
from airflow_delta.engine.commit.sql.owner import URL_VARIABLE
from airflow_delta.engine.errors import StorageError
from airflow_delta.engine.maintenance.check import checking
from airflow_delta.engine.progress import report_progress
from tests.cli.reports import report
from tests.engine.maintenance.convert.parquet_folders import write_parquet

ERASED = "\x1b[2K"
CURSOR_SHOWN = "\x1b[?25h"


@contextmanager
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], str]]:
    """Make standard error a terminal; yield a function that returns what it was sent, after the block."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    master, slave = pty.openpty()
    found: list[bytes] = []

    def receive() -> None:
        while True:
            try:
                data = os.read(master, 1 << 16)
            except OSError:  # The other end is closed.
                return
            found.append(data)

    reader = threading.Thread(target=receive)
    reader.start()
    try:
        with os.fdopen(slave, "w", encoding="utf-8") as stream, monkeypatch.context() as patch:
            patch.setattr(sys, "stderr", stream)
            yield lambda: b"".join(found).decode()
    finally:
        reader.join()
        os.close(master)


def left(shown: str) -> str:
    """What stays on the screen: what was printed after the bar was erased the last time."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", shown.rpartition(ERASED)[2])


@pytest.fixture
def table(sales_copy: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    orphan = sales_copy / "orphan.parquet"
    orphan.write_bytes(b"12345")
    os.utime(orphan, (0, 0))
    now_ms = clock.now_ms()
    monkeypatch.setattr(clock, "now_ms", lambda: now_ms)
    return sales_copy


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for n in range(3):
        write_parquet(tmp_path / "folder" / f"{n}.parquet", {"id": [n]})
    return tmp_path / "folder"


LONG = {
    "vacuum": (["--yes"], "vacuum: deleted 1 of 1 files"),
    "optimize": ([], "optimize: rewrote "),
    "convert": ([], "convert: read the footers of 3 of 3 files"),
    "checkpoint": ([], "checkpoint: checkpointed "),
    "doctor": ([], "doctor: listed "),
    "health": ([], "health: listed "),
    "restore": (["--version", "1"], "restore: looked up "),
    "cleanup": (["--yes", "--write-checkpoint"], "cleanup: deleted 3 of 3 files"),
    "compact-log": (["--start", "0", "--end", "2"], "compact-log: read 3 of 3 commits"),
    "drop-feature": (["v2Checkpoint"], "drop-feature: checkpointed "),
    "history": (["--limit", "2"], "history: read 2 of 2 commits"),
    # The commit after a checkpoint interval writes a checkpoint.
    "alter set-properties": (
        ["delta.checkpointInterval=2"],
        "set-properties: checkpointed ",
    ),
    # These report no steps.
    "describe": ([], "describe"),
    "files": ([], "files"),
    "diff": (["0"], "diff"),
}


@pytest.mark.parametrize("verb", LONG)
def test_long_work_shows_its_progress_on_a_terminal_alone(
    table: Path,
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    verb: str,
) -> None:
    options, text = LONG[verb]
    root = folder if verb == "convert" else table
    if verb == "drop-feature":
        DeltaTable(table).alter.set_properties({"delta.checkpointPolicy": "v2"})
    words = [*verb.split(), str(root), *options]
    shutil.copytree(root, tmp_path / "kept")
    with terminal(monkeypatch) as get_shown:
        assert main(words) == 0
    out, shown = capsys.readouterr().out, get_shown()
    assert text in shown
    assert left(shown) == ""
    assert shown.rfind(CURSOR_SHOWN) > shown.rfind("\x1b[?25l")

    shutil.rmtree(root)
    shutil.copytree(tmp_path / "kept", root)
    assert main(words) == 0
    piped = capsys.readouterr()
    assert piped.err == ""
    if verb != "optimize":
        assert without_times(piped.out) == without_times(out)
    # The size of new files depends on the order in which threads read the old ones.
    assert re.sub(r"\d+", "N", piped.out) == re.sub(r"\d+", "N", out)


def test_a_backfill_shows_its_progress(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(URL_VARIABLE, f"sqlite:///{tmp_path}/owner.db")
    managed = DeltaTable(table)
    managed.convert_to_managed("sql", {"backfill": "on-request"})
    for number in range(3):
        managed.alter.set_properties({"number": str(number)})
    with terminal(monkeypatch) as get_shown:
        assert main(["backfill", str(table)]) == 0
    assert "backfill: backfilled 3 of 3 commits" in get_shown()
    assert left(get_shown()) == ""


def without_times(printed: str) -> str:
    """What was printed, without the lines with the time of a commit."""
    return re.sub(r"^timestamp.*\n", "", printed, flags=re.M)


def test_programs_get_no_progress(
    table: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with terminal(monkeypatch) as get_shown:
        assert report(capsys, "vacuum", table, "--yes")["num_deleted"] == 1
    assert get_shown() == ""


def test_short_work_shows_no_progress(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal(monkeypatch) as get_shown:
        assert main(["commits", str(table)]) == 0
    assert get_shown() == ""


def test_rows_that_are_written_to_a_file_are_counted(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    total = DeltaTable(table).snapshot().num_rows
    for number, (options, text) in enumerate(
        (
            ([], f"scan: read {total} of {total} rows"),
            (["--limit", "1"], "scan: read 1 of 1 rows"),
            (["--where", "id > 0"], "scan: read "),
        )
    ):
        output = str(tmp_path / f"{number}.csv")
        with terminal(monkeypatch) as get_shown:
            assert main(["scan", str(table), "--output", output, *options]) == 0
        assert text in get_shown()
        assert left(get_shown()) == ""
    with terminal(monkeypatch) as get_shown:
        assert main(["scan", str(table), "--format", "csv"]) == 0
    assert get_shown() == ""


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (KeyboardInterrupt(), 130, "airflow-delta: interrupted\n"),
        (StorageError("the store failed"), 1, "airflow-delta: the store failed\n"),
    ],
)
def test_nothing_is_left_of_it_after_an_error(
    table: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    status: int,
    message: str,
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        with report_progress("delete", "files", 10) as reporter:
            reporter.advance(4)
            raise error

    monkeypatch.setattr(DeltaTable, "vacuum", fail)
    with terminal(monkeypatch) as get_shown:
        assert main(["vacuum", str(table), "--yes"]) == status
    assert "vacuum: deleted 0 of 10 files" in get_shown()
    assert left(get_shown()) == message


def test_an_interrupt_is_json_if_results_are(
    table: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(DeltaTable, "vacuum", fail)
    assert main(["vacuum", str(table), "--yes", "--json"]) == 130
    captured = capsys.readouterr()
    facts = {"type": "Interrupted", "message": "interrupted", "table_uri": None, "facts": {}}
    assert (captured.out, json.loads(captured.err)) == ("", {"error": facts})


def test_it_makes_way_for_what_is_printed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with terminal(monkeypatch) as get_shown:
        with show_progress("[bold]work"):
            with report_progress("list", "files") as reporter:
                reporter.advance(40_000)
            print_note("half of it is done")
            print_line("a result")
            with report_progress("rewrite", "bytes", 1 << 20) as reporter:
                reporter.advance(1 << 20)
        print_note("the end")
    shown = get_shown()
    first, second, end = (
        shown.index(text)
        for text in ("[bold]work: listed 40,000 files", "half of it is done", "the end")
    )
    again = shown.index("[bold]work: rewrote 1.0 MiB of 1.0 MiB")
    assert first < second < again < end
    for printed, before in ((second, first), (end, again)):
        assert ERASED in shown[before:printed]
    assert re.search(r"[\d,]+ files/s", shown)
    assert re.search(r"[\d.]+ .iB/s", shown)
    assert capsys.readouterr().out == "a result\n"


def test_a_warning_in_the_middle_is_a_line_of_its_own(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def warn(*_: Any, **__: Any) -> Any:
        print("from a library", file=sys.stderr)
        return checking.CheckReport.of([], table=str(table), version=3, depth="quick")

    monkeypatch.setattr(DeltaTable, "check", warn)
    with terminal(monkeypatch) as get_shown:
        assert main(["doctor", str(table)]) == 0
    assert re.search(r"from a library *\r\n", get_shown())


def test_help_and_completion_have_no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal(monkeypatch) as get_shown, pytest.raises(SystemExit, match="0"):
        main(["vacuum", "--help"])
    assert get_shown() == ""
