"""The subcommands ``optimize`` and ``health``."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_delta.cli.main import main
from airflow_delta.engine import DeltaTable
from tests.cli.reports import report
from tests.row_tables import bag, random_table


def test_a_table_is_optimized(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = random_table(tmp_path / "t", 12, partition_by=("p",), num_files=8)
    planned = report(capsys, "optimize", made.path, "--dry-run")
    assert (planned["dry_run"], planned["commits"], planned["table_uri"]) == (
        True,
        0,
        str(made.path),
    )
    part = report(capsys, "optimize", made.path, "--where", "p = 'a'", "--dry-run")
    assert 0 < part["plan"]["files"] < planned["plan"]["files"]
    none = report(capsys, "optimize", made.path, "--max-bytes", "1", "--dry-run")
    assert none["plan"]["postponed_files"] == planned["plan"]["files"]
    small = ["--min-file-size", "1", "--max-file-size", "2", "--max-deleted-ratio", "1"]
    assert report(capsys, "optimize", made.path, *small)["plan"]["files"] == 0
    assert report(capsys, "optimize", made.path, "--purge")["files_removed"] > 0
    done = report(capsys, "optimize", made.path)
    assert done["commits"] == 1
    rows = DeltaTable(str(made.path)).snapshot().to_arrow().to_pylist()
    assert bag(rows) == bag(made.rows)


def test_rows_are_sorted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = random_table(tmp_path / "t", 12, num_files=4)
    words = ["optimize", made.path, "--z-order-by", "text, s.x"]
    planned = report(capsys, *words, "--dry-run")["plan"]
    assert (planned["z_order_by"], planned["files"], planned["full"]) == (["text", "s.x"], 4, False)
    assert report(capsys, *words)["files_removed"] == 4
    assert report(capsys, *words)["commits"] == 0
    assert report(capsys, *words, "--full", "--min-cube-size", "5")["commits"] == 1
    assert bag(DeltaTable(str(made.path)).snapshot().to_arrow().to_pylist()) == bag(made.rows)
    assert main(["optimize", str(made.path), "--z-order-by", "a b"]) != 0
    assert "--z-order-by: 'a b' is no list of column names" in capsys.readouterr().err


def test_health_is_numbers(sales_copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    facts = report(capsys, "health", sales_copy)
    assert (facts["version"], facts["files"], facts["small_files"]) == (3, 3, 3)
    assert facts["gains"]["optimize"]["files"] == 2
    assert main(["health", str(sales_copy)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("small files") and line.endswith(" 3") for line in lines)
    assert any(line.startswith("gain of optimize") and "files 2" in line for line in lines)
