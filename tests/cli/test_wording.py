"""The engine's advice in the words of the command line, and how errors and warnings are printed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from airflow_delta.cli.main import main
from airflow_delta.cli.wording import in_cli_words
from airflow_delta.engine import DeltaTable


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("set enforce_retention=False", "set --ignore-retention"),
        ("or set force=True", "or set --force"),
        ("the file force=True/a.parquet", "the file force=True/a.parquet"),
        ("the file a/force=True/b", "the file a/force=True/b"),
        ("Set backfill_first=True, run", "Set --backfill-first, run"),
        ("set truncate_history=True", "set --truncate-history"),
        ("leave truncate_history out", "leave --truncate-history out"),
        ("from: allowed_outside=['s3://a/b/'], or", "from: --allowed-outside 's3://a/b/', or"),
        ("their locations (allowed_outside)", "their locations (--allowed-outside)"),
        (
            "DeltaTable.checkpoint(version=7) or CheckpointOperator, where",
            "`airflow-delta checkpoint URI --version 7`, where",
        ),
        (
            "then DeltaTable.compact_log() or LogCompactionOperator",
            "then `airflow-delta compact-log URI`",
        ),
        ("table.checkpoint(version=3) writes", "`airflow-delta checkpoint URI --version 3` writes"),
        ("the table.checkpoint of", "the table.checkpoint of"),
        ("DeltaTable.convert_to_managed and x", "DeltaTable.convert_to_managed and x"),
    ],
)  # fmt: skip
def test_arguments_and_methods_become_options_and_verbs(text: str, expected: str) -> None:
    assert in_cli_words(text) == expected


OPTIONS = [
    (["vacuum", "--retention-hours", "1"], "--ignore-retention", "enforce_retention"),
    (["cleanup", "--older-than-hours", "1"], "--force", "force=True"),
    (["restore", "--version", "3"], "airflow-delta history", "DeltaTable"),
]


@pytest.mark.parametrize(("words", "option", "argument"), OPTIONS, ids=[o[0][0] for o in OPTIONS])
def test_errors_name_options_of_the_command_line(
    sales: Path,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    option: str,
    argument: str,
) -> None:
    """What an error names is an option of that very verb, or a verb."""
    verb, *others = words
    assert main([verb, str(sales), *others, "--dry-run"]) == 1
    captured = capsys.readouterr()
    assert option in captured.err
    assert argument not in captured.err
    assert captured.out == ""
    with pytest.raises(SystemExit):
        main([verb, "--help"] if option.startswith("--") else ["--help"])
    assert option.removeprefix("airflow-delta ") in capsys.readouterr().out


def error_of(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    captured = capsys.readouterr()
    assert captured.out == ""
    reported: dict[str, Any] = json.loads(captured.err)["error"]
    return reported


def test_errors_are_json_on_standard_error_with_json(
    sales: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["describe", str(sales), "--version", "9", "--json"]) == 1
    error = error_of(capsys)
    assert (error["type"], error["table_uri"]) == ("VersionNotFoundError", str(sales))
    assert error["facts"] == {"version": 9, "earliest": 0, "latest": 3}
    assert "version 9" in error["message"]
    assert main(["doctor", str(tmp_path), "--json"]) == 1
    assert error_of(capsys)["type"] == "TableNotFoundError"
    assert main(["vacuum", str(sales), "--retention-hours", "1", "--json"]) == 1
    error = error_of(capsys)
    assert error["facts"] == {"retention_ms": 3_600_000, "configured_ms": 604_800_000}
    assert "--ignore-retention" in error["message"]


def test_a_wrong_command_line_is_json_as_well(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["restore", "/t", "--json"])
    assert ended.value.code == 2
    error = error_of(capsys)
    assert error["type"] == "UsageError"
    assert "--version --timestamp" in error["message"]


@pytest.mark.parametrize("filters", ["default", "error", "ignore"])
@pytest.mark.parametrize("as_json", [False, True])
def test_a_warning_is_one_clean_line_once(sales_copy: Path, as_json: bool, filters: str) -> None:
    """In a process of its own, whose filters are those of Python, or what its user has set."""
    DeltaTable(sales_copy).checkpoint()
    hint = sales_copy / "_delta_log" / "_last_checkpoint"
    hint.write_text("{")
    words = ["describe", str(sales_copy), *(["--json"] if as_json else [])]
    code = "import sys; from airflow_delta.cli.main import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-W", f"{filters}::UserWarning", "-c", code, *words]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    (line,) = done.stderr.splitlines()
    if as_json:
        warning = json.loads(line)["warning"]
        assert warning["type"] == "DeltaWarning"
        assert json.loads(done.stdout)["version"] == 3
        line = f"airflow-delta: warning: {warning['message']}"
    assert line.startswith(f"airflow-delta: warning: {sales_copy}: _delta_log/_last_checkpoint")


def test_findings_name_verbs(sales_copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    DeltaTable(sales_copy).checkpoint()
    (sales_copy / "_delta_log" / "_last_checkpoint").unlink()
    assert main(["doctor", str(sales_copy)]) == 0
    out = capsys.readouterr().out
    assert "-> `airflow-delta checkpoint URI`" in out
    assert "Operator" not in out
    assert main(["doctor", str(sales_copy), "--json"]) == 0
    findings = {found["code"]: found for found in json.loads(capsys.readouterr().out)["findings"]}
    assert findings["hint-missing"]["remedy"] == "`airflow-delta checkpoint URI`"
