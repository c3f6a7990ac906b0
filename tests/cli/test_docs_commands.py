"""The commands ``airflow-delta …`` of all pages are right, and those on the pages' tables run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from airflow_delta.cli.group import airflow_delta
from airflow_delta.cli.main import main
from airflow_delta.engine import DeltaTable

ROOT = Path(__file__).resolve().parents[2]
# The tutorial is followed step by step in tests/airflow/test_tutorial.py.
PAGES = [path for path in sorted((ROOT / "docs").rglob("*.md")) if path.stem != "tutorial"]
BLOCK = re.compile(r"^ *```(?:bash|console)\n(.*?)^ *```", re.M | re.S)

TABLES = ("s3://lake/sales", "/data/sales", "s3://lake/events")
# The table of the tests has six versions.
NEWER = {"41": "3", "12": "2"}
PARSED_ONLY = {
    "--conn-id": "needs an Airflow with the connection; tests/cli/test_target.py",
    "--storage-option": "is an option of S3; tests/cli/test_target.py",
    "completion": "prints a script; tests/cli/test_completion.py",
    "commits": "needs a commit owner; tests/cli/test_commits.py",
}


def commands(page: Path) -> list[list[str]]:
    """The arguments of each ``airflow-delta`` in the shell blocks of a page."""
    found = []
    for block in BLOCK.findall(page.read_text("utf-8")):
        text = re.sub(r" +# .*$", "", block.replace("\\\n", " "), flags=re.M)
        lexer = shlex.shlex(text, posix=True, punctuation_chars=";|&<>()\n")
        lexer.whitespace, lexer.whitespace_split = " \t", True
        words: list[str] | None = None
        before = "\n"
        for token in lexer:
            if token == "airflow-delta" and re.search(r"[$;|&()\n]$", before):
                words = []
                found.append(words)
            elif re.fullmatch(r"[;|&<>()\n]+", token):
                words = None
            elif words is not None:
                words.append(token)
            before = token
    # What is left of ``2>file``.
    return [[word for word in words if word != "2"] for words in found]


WITH_COMMANDS = [page for page in PAGES if commands(page)]


@pytest.mark.parametrize("page", WITH_COMMANDS, ids=lambda page: page.stem)
def test_the_commands_of_a_page_can_be_parsed(page: Path) -> None:
    for name, *arguments in commands(page):
        command = airflow_delta.get_command(click.Context(airflow_delta), name)
        assert command is not None, name
        command.make_context(name, arguments)


@pytest.fixture
def table(tmp_path: Path) -> str:
    """A table with all columns of the pages, in six versions."""
    path = str(tmp_path / "table")
    for number in range(6):
        rows = {"id": [number], "day": ["2026-01-31"], "amount": [150], "customer": ["Ada"]}
        write_deltalake(path, pa.table(rows), mode="append", partition_by=["day"])
    return path


@pytest.fixture
def directory(tmp_path: Path) -> str:
    """A directory of Parquet files, with a partition column."""
    path = tmp_path / "files"
    (path / "day=2026-01-31").mkdir(parents=True)
    pq.write_table(pa.table({"id": [1]}), path / "day=2026-01-31" / "a.parquet")
    return str(path)


@pytest.mark.parametrize("page", WITH_COMMANDS, ids=lambda page: page.stem)
def test_the_commands_of_a_page_run(
    page: Path,
    table: str,
    directory: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:
    monkeypatch.chdir(tmp_path)
    for words in commands(page):
        if not set(words) & set(PARSED_ONLY) and set(words) & set(TABLES):
            location = directory if words[0] == "convert" else table
            values = {**dict.fromkeys(TABLES, location), **NEWER}
            assert main([values.get(word, word) for word in words]) == 0, words
    assert b"Traceback" not in capsysbinary.readouterr().err
    assert DeltaTable(table).snapshot().num_rows == 6


def test_most_commands_run() -> None:
    every = [words for page in WITH_COMMANDS for words in commands(page)]
    left = [w for w in every if set(w) & set(PARSED_ONLY) or not set(w) & set(TABLES)]
    assert len(every) > 20
    assert len(left) <= 10, left
