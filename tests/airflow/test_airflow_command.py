"""``airflow delta …``."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import pytest
from airflow.cli import cli_parser

from airflow_delta.airflow_command import get_delta_commands, run


@pytest.fixture
def parser() -> argparse.ArgumentParser:
    """Airflow's parser of a command line with the command alone."""
    made = argparse.ArgumentParser(prog="airflow")
    commands = made.add_subparsers(dest="subcommand")
    for command in get_delta_commands():
        cli_parser._add_command(commands, command)
    return made


def test_airflow_finds_the_command() -> None:
    assert cli_parser.ALL_COMMANDS_DICT["delta"].func is run


def test_the_arguments_reach_the_command(
    parser: argparse.ArgumentParser, sales: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["delta", "describe", str(sales), "--json", "--version", "1"]
    arguments = parser.parse_args(words)
    with pytest.raises(SystemExit, match="0"):
        arguments.func(arguments)
    assert json.loads(capsys.readouterr().out)["version"] == 1
    arguments = parser.parse_args(["delta", "describe", str(sales / "nothing")])
    with pytest.raises(SystemExit, match="1"):
        arguments.func(arguments)


@pytest.mark.parametrize("words", [[], ["help"], ["vacuum", "--help"]])
def test_help(
    parser: argparse.ArgumentParser, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = parser.parse_args(["delta", *words])
    with pytest.raises(SystemExit, match="0"):
        arguments.func(arguments)
    assert capsys.readouterr().out.startswith("Usage: airflow delta")


def test_importing_the_command_costs_nothing() -> None:
    code = (
        "import sys; import airflow_delta.airflow_command; "
        "assert not {'airflow', 'click', 'pyarrow', 'airflow_delta.cli'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_logs_of_airflow_are_kept_out_of_the_results() -> None:
    code = (
        "import sys; log = sys.stdout; from airflow_delta import airflow_command\n"
        "print('a result')\n"
        "airflow_command._send_logs_to_standard_error()\n"
        "print('a log', file=log, flush=True); print('é')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("a result\né\n", "a log\n")
