"""The JSON Schema of what ``--json`` prints: what each subcommand prints is as it says, and complete."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from airflow_delta.cli.group import SUBCOMMANDS
from airflow_delta.cli.json_schema import OUTPUTS, schema_of
from airflow_delta.cli.main import main
from airflow_delta.cli.outputs.writing import ErrorLine
from airflow_delta.engine import DeltaTable
from airflow_delta.engine.commit.sql.owner import URL_VARIABLE

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "command-line.schema.json"


def test_every_subcommand_with_json_has_a_schema() -> None:
    assert set(OUTPUTS) == set(SUBCOMMANDS) - {"completion", "json-schema"}


def test_the_page_is_current(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["json-schema"]) == 0
    printed = capsys.readouterr().out
    assert PAGE.read_text(encoding="utf-8") == printed
    schema = json.loads(printed)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert main(["json-schema", "vacuum"]) == 0
    one = json.loads(capsys.readouterr().out)
    assert one["properties"] == schema["$defs"]["vacuum"]["properties"]


CASES = [
    *(["describe"], ["describe", "--version", "1"], ["history"], ["files"], ["health"], ["commits"]),
    *(["diff", "0"], ["diff", "2", "0", "--files"], ["doctor"], ["doctor", "--quick"]),
    *(["checkpoint", "--dry-run"], ["checkpoint"], ["checkpoint", "--if-needed"]),
    *(["compact-log"], ["compact-log", "--start", "1", "--end", "3"]),
    *(["cleanup"], ["cleanup", "--write-checkpoint", "--yes"], ["optimize", "--dry-run"], ["optimize"]),
    *(["vacuum"], ["vacuum", "--lite", "--yes"], ["restore", "--version", "1", "--dry-run"]),
    *(["restore", "--version", "1"], ["convert"]),
]  # fmt: skip


@pytest.mark.parametrize("words", CASES, ids=" ".join)
def test_what_is_printed_is_as_the_schema_says(
    sales_copy: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    check(capsys, words[0], str(sales_copy), *words[1:])


def check(capsys: pytest.CaptureFixture[str], name: str, uri: str, *words: str) -> list[Any]:
    capsys.readouterr()
    arguments = [name, words[0], uri, *words[1:]] if name == "alter" else [name, uri, *words]
    main([*arguments, "--json"])
    printed = capsys.readouterr().out
    assert printed, arguments
    lines = printed.splitlines() if name in ("history", "files") else [printed]
    schema = schema_of(OUTPUTS[name], is_closed=True)
    outputs = [json.loads(line) for line in lines]
    for output in outputs:
        jsonschema.validate(output, schema)
    return outputs


def test_what_is_printed_of_other_tables(
    sales_copy: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    uri = str(sales_copy)
    check(capsys, "scan", uri, "--output", str(tmp_path / "rows.csv"), "--columns", "id")
    check(capsys, "alter", uri, "set-properties", "a=b")
    check(capsys, "alter", uri, "set-properties", "delta.checkpointPolicy=v2")
    check(capsys, "drop-feature", uri, "v2Checkpoint", "--dry-run")
    check(capsys, "drop-feature", uri, "v2Checkpoint", "--truncate-history", "--yes")
    monkeypatch.setenv(URL_VARIABLE, f"sqlite:///{tmp_path / 'owner.db'}")
    DeltaTable(uri).convert_to_managed("sql", {"backfill": "on-request"})
    check(capsys, "alter", uri, "set-properties", "a=c")
    facts = check(capsys, "commits", uri)[0]
    assert facts["owner"] == "sql"
    (commit,) = (sales_copy / "_delta_log" / "_commits").glob(f"{facts['ratified_version']:020}.*")
    commit.rename(tmp_path / "lost")
    words = ("--accept-log", str(facts["backfilled_version"]))
    assert check(capsys, "commits", uri, *words)[0]["dry_run"]
    (tmp_path / "lost").rename(commit)
    check(capsys, "backfill", uri)
    moved = sales_copy.rename(sales_copy.with_name("moved"))
    assert "relocated_from" in check(capsys, "commits", str(moved), "--relocate")[0]
    (moved / "_delta_log" / "8.json").touch()
    assert check(capsys, "doctor", str(moved))[0]["findings"]


def test_errors_are_as_the_schema_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    schema = schema_of(ErrorLine, is_closed=True)
    assert main(["describe", str(tmp_path), "--json"]) == 1
    jsonschema.validate(json.loads(capsys.readouterr().err), schema)
    with pytest.raises(SystemExit, match="2"):
        main(["describe", "--json"])
    jsonschema.validate(json.loads(capsys.readouterr().err), schema)
