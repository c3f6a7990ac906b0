"""The subcommand ``convert``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from airflow_delta.cli.main import main
from airflow_delta.engine import DeltaTable
from tests.engine.maintenance.convert.parquet_folders import write_parquet


@pytest.fixture
def days(tmp_path: Path) -> Path:
    for number in (1, 2):
        write_parquet(tmp_path / "t" / f"day={number}" / "0.parquet", {"id": [number]})
    return tmp_path / "t"


def test_a_directory_becomes_a_table(days: Path, capsys: pytest.CaptureFixture[str]) -> None:
    verb = ["convert", str(days), "--partition", "day:integer", "--property", "owner=a=b", "--json"]
    assert main([*verb, "--dry-run"]) == 0
    planned = json.loads(capsys.readouterr().out)
    assert (planned["dry_run"], planned["files"], planned["version"]) == (True, 2, None)
    assert not (days / "_delta_log").exists()
    assert main(verb) == 0
    done = json.loads(capsys.readouterr().out)
    assert done == {**planned, "version": 0, "converted": True, "dry_run": False}
    assert DeltaTable(days).snapshot().metadata.configuration == {"owner": "a=b"}
    assert main(["convert", str(days)]) == 0
    assert "the directory is a Delta table already" in capsys.readouterr().out


def test_a_file_lists_the_paths(
    days: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "paths").write_text("day=2/0.parquet\n\n", encoding="utf-8")
    verb = ["convert", str(days), "--partition", "day:integer", "--no-statistics"]
    assert main([*verb, "--files-from", str(tmp_path / "missing")]) == 1
    assert "can't be read" in capsys.readouterr().err
    assert main([*verb, "--files-from", str(tmp_path / "paths")]) == 0
    snapshot = DeltaTable(days).snapshot()
    assert (snapshot.num_files, snapshot.files()["stats"].to_pylist()) == (1, [None])


def test_errors_name_the_options(days: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", str(days)]) == 1
    assert "--partition has none" in capsys.readouterr().err
    (days / "x.parquet").write_bytes(b"no")
    assert main(["convert", str(days), "--partition", "day:integer"]) == 1
    assert "leave it out with --files-from" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main(["convert", str(days), "--partition", "day"])
    assert "expected a name, ':' and a value" in capsys.readouterr().err
