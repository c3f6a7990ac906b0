"""``airflow-delta doctor``: what it prints, and its exit status."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from airflow_delta.cli.main import main
from airflow_delta.engine import DeltaTable
from tests.log_builder import add, write_commit, write_table


def lose_a_file(table: Path) -> None:
    """Delete a data file of the newest version; the directory has files of older ones as well."""
    (table / DeltaTable(str(table)).snapshot().files()["path"][0].as_py()).unlink()


def test_a_good_table(sales_copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--quick", str(sales_copy)]) == 0
    assert capsys.readouterr().out == "version 3: 0 errors, 0 warnings, 0 for information\n"


def test_a_damaged_table(sales_copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lose_a_file(sales_copy)
    (sales_copy / "_delta_log" / "8.json").touch()
    status = main(["doctor", str(sales_copy)])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("error    data-file-missing: 1 data file of the newest version")
    assert lines[1].startswith("         -> put them back from a backup")
    assert any(line.startswith("warning  name-ambiguous: 1 file") for line in lines)
    assert lines[-1].startswith("version 3: 1 error, 1 warning, ")
    assert status == 1


def test_without_a_listing_missing_files_arent_seen(sales_copy: Path) -> None:
    lose_a_file(sales_copy)
    assert main(["doctor", "--log", str(sales_copy)]) == 0
    assert main(["doctor", str(sales_copy)]) == 1


def test_json(sales_copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_commit(sales_copy, 5)
    assert main(["doctor", "--json", "--quick", str(sales_copy)]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["depth"] == "quick"
    assert report["ok"] is False
    assert report["num_errors"] == len(report["findings"])
    assert {"commit-missing", "commit-empty"} <= {each["code"] for each in report["findings"]}
    assert all(each["remedy"] == each["mend"] for each in report["findings"])


def test_where_there_is_no_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", str(tmp_path)]) == 1
    assert "there is no Delta table" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main(["doctor", "--quick", "--log", str(tmp_path)])


def test_files_outside_of_the_table_are_looked_for_where_that_is_allowed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "x.parquet").write_bytes(b"1")
    outside = add(f"file://{tmp_path}/other/x.parquet", size=1)
    table = write_table(tmp_path / "t", [outside])
    assert main(["doctor", str(table)]) == 1
    assert "path-refused" in capsys.readouterr().out
    allowed = ["--allowed-outside", "/nowhere", "--allowed-outside", f"{tmp_path}/other"]
    assert main(["doctor", *allowed, str(table)]) == 0
    assert main(["restore", *allowed, "--version", "0", "--dry-run", str(table)]) == 1
    assert "newest" in capsys.readouterr().err
    assert main(["doctor", "--allowed-outside", "other", str(table)]) == 1
    assert "--allowed-outside: expected" in capsys.readouterr().err
