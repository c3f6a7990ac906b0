"""The subcommands that delete files, and the one that brings versions back."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from airflow_delta.cli.main import main
from airflow_delta.engine import DeltaTable
from tests.cli.reports import report


def commits(table: Path) -> list[int]:
    return sorted(int(file.stem) for file in (table / "_delta_log").glob("*[0-9].json"))


def test_cleanup_deletes_what_is_old(sales_copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stays = report(capsys, "cleanup", sales_copy)
    assert (stays["wanted_checkpoint"], stays["num_deleted"]) == (3, 0)
    DeltaTable(sales_copy).checkpoint(2)
    assert report(capsys, "cleanup", sales_copy, "--dry-run")["files"] == 2
    assert commits(sales_copy) == [0, 1, 2, 3]
    done = report(capsys, "cleanup", sales_copy, "--yes")
    assert (done["table_uri"], done["num_deleted"]) == (str(sales_copy), 2)
    assert (done["earliest_version"], done["dry_run"]) == (2, False)
    assert commits(sales_copy) == [2, 3]


def test_cleanup_may_write_the_checkpoint_that_it_needs(
    sales_copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = report(capsys, "cleanup", sales_copy, "--write-checkpoint", "--yes")
    assert (done["checkpoint"], done["num_deleted"], commits(sales_copy)) == (3, 3, [3])


def test_cleanup_of_less_than_the_table_keeps_must_be_meant(
    sales_copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    DeltaTable(sales_copy).checkpoint(2)
    words = ["cleanup", str(sales_copy), "--older-than-hours", "1"]
    assert main(words) == 1
    assert "delta.logRetentionDuration" in capsys.readouterr().err
    assert report(capsys, *words, "--force", "--yes")["num_deleted"] == 2


def test_vacuum_deletes_what_nobody_needs(
    sales_copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    orphan = sales_copy / "orphan.parquet"
    orphan.write_bytes(b"12345")
    os.utime(orphan, (0, 0))
    assert report(capsys, "vacuum", sales_copy, "--lite")["files"] == 0
    assert report(capsys, "vacuum", sales_copy, "--dry-run")["examples"] == ["orphan.parquet"]
    assert orphan.exists()
    done = report(capsys, "vacuum", sales_copy, "--yes")
    assert (done["num_deleted"], done["bytes_deleted"], orphan.exists()) == (1, 5, False)
    words = ["vacuum", str(sales_copy), "--retention-hours", "0"]
    assert main(words) == 1
    assert "delta.deletedFileRetentionDuration" in capsys.readouterr().err
    assert report(capsys, *words, "--ignore-retention", "--yes")["num_deleted"] == 1


@pytest.mark.parametrize("verb", ["vacuum", "cleanup"])
def test_nothing_is_deleted_without_yes(
    sales_copy: Path, capsys: pytest.CaptureFixture[str], verb: str
) -> None:
    DeltaTable(sales_copy).checkpoint(2)
    orphan = sales_copy / "orphan.parquet"
    orphan.write_bytes(b"12345")
    os.utime(orphan, (0, 0))
    before = sorted(sales_copy.rglob("*"))
    facts = report(capsys, verb, sales_copy)
    assert (facts["dry_run"], facts["num_deleted"]) == (True, 0)
    assert facts["files"] > 0
    assert main([verb, str(sales_copy)]) == 0
    captured = capsys.readouterr()
    assert "--yes" in captured.err
    assert main([verb, str(sales_copy), "--dry-run"]) == 0
    assert capsys.readouterr().err == ""
    assert sorted(sales_copy.rglob("*")) == before
    assert report(capsys, verb, sales_copy, "-y")["num_deleted"] == facts["files"]


def test_restore_brings_a_version_back(
    sales_copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dry = report(capsys, "restore", sales_copy, "--version", "1", "--dry-run")
    assert (dry["version"], dry["committed"], dry["files_removed"]) == (3, False, 2)
    done = report(capsys, "restore", sales_copy, "--version", "1")
    assert (done["version"], done["restored_version"]) == (4, 1)
    assert (sales_copy / "_delta_log" / f"{4:020}.checkpoint.parquet").exists()
    when = "2025-06-15T15:08:45Z"
    assert report(capsys, "restore", sales_copy, "--timestamp", when)["restored_version"] == 2
    assert DeltaTable(sales_copy).snapshot().num_rows == 30
    assert main(["restore", str(sales_copy), "--version", "5"]) == 1
    assert "nothing to restore" in capsys.readouterr().err


def test_for_people_a_fact_is_a_line(sales: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for verb in ("cleanup", "vacuum"):
        assert main([verb, str(sales), "--dry-run"]) == 0
        lines = [line.split() for line in capsys.readouterr().out.splitlines()]
        assert ["version", "3"] in lines
        assert ["dry", "run", "yes"] in lines
        assert ["num", "deleted", "0"] in lines


@pytest.mark.parametrize(
    "words",
    [
        ["vacuum", "/t", "--lite", "--inventory", "i.parquet"],
        ["vacuum", "/t", "--retention-hours", "-1"],
        ["vacuum", "/t", "--yes", "--dry-run"],
        ["cleanup", "/t", "--older-than-hours", "a-week"],
        ["restore", "/t"],
        ["restore", "/t", "--version", "1", "--timestamp", "2024-01-01T00:00:00Z"],
    ],
    ids=" ".join,
)
def test_a_wrong_command_line_is_status_2(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert "Usage: airflow-delta" in capsys.readouterr().err


def test_the_verbs_need_neither_airflow_nor_spark(sales: Path) -> None:
    code = (
        "import sys; from airflow_delta.cli.main import main; table = sys.argv[1]; "
        "[main([verb, table, '--dry-run']) for verb in ('cleanup', 'vacuum')]; "
        "main(['restore', table, '--version', '1', '--dry-run']); "
        "assert not {'airflow', 'pyspark'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code, str(sales)], check=True, stdout=subprocess.DEVNULL)
