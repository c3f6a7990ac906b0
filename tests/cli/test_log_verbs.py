"""The subcommands that write into the log what readers would have to put together: no row changes."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable as PeerTable

from airflow_delta.cli.main import main
from airflow_delta.engine import DeltaTable
from airflow_delta.engine.commit.sql.owner import URL_VARIABLE
from tests.cli.reports import report


def log(table: Path) -> set[str]:
    return {file.name for file in (table / "_delta_log").iterdir()}


def test_checkpoint(sales_copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name, before = f"{3:020}.checkpoint.parquet", log(sales_copy)
    assert report(capsys, "checkpoint", sales_copy, "--if-needed")["written"] is False
    dry = report(capsys, "checkpoint", sales_copy, "--dry-run")
    assert (dry["version"], dry["written"], dry["dry_run"]) == (3, False, True)
    assert log(sales_copy) == before
    done = report(capsys, "checkpoint", sales_copy)
    assert (done["table_uri"], done["path"]) == (str(sales_copy), f"_delta_log/{name}")
    assert log(sales_copy) - before == {name, "_last_checkpoint", f"{3:020}.crc"}
    adds = pq.read_table(sales_copy / "_delta_log" / name)["add"].combine_chunks().drop_null()
    files = PeerTable(str(sales_copy)).file_uris()
    assert {Path(file).name for file in files} == {row["path"] for row in adds.to_pylist()}
    older = report(capsys, "checkpoint", sales_copy, "--version", "1")
    assert (older["version"], older["kind"]) == (1, "classic")
    assert main(["checkpoint", str(sales_copy), "--policy", "v2"]) == 1
    assert "v2Checkpoint" in capsys.readouterr().err


def test_compact_log(sales_copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    few = report(capsys, "compact-log", sales_copy)
    assert few["written"] is False
    assert "are worth a compaction" in few["reason"]
    words = ["compact-log", sales_copy, "--start", "1", "--end", "3"]
    before = log(sales_copy)
    assert report(capsys, *words, "--dry-run")["files"] == 3
    assert log(sales_copy) == before
    done = report(capsys, *words)
    assert (done["start"], done["end"], done["written"]) == (1, 3, True)
    assert log(sales_copy) - before == {f"{1:020}.{3:020}.compacted.json"}


def test_backfill(
    sales_copy: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["backfill", str(sales_copy)]) == 1
    assert "nothing to backfill" in capsys.readouterr().err
    monkeypatch.setenv(URL_VARIABLE, f"sqlite:///{tmp_path / 'owner.db'}")
    table = DeltaTable(sales_copy)
    table.convert_to_managed("sql", {"backfill": "on-request"})
    table.alter.set_properties({"a": "b"})
    assert main(["checkpoint", str(sales_copy), "--version", "5"]) == 1
    error = capsys.readouterr().err
    assert "--backfill-first" in error
    assert "`airflow-delta backfill URI`" in error
    commit = f"{5:020}.json"
    dry = report(capsys, "backfill", sales_copy, "--dry-run")
    assert (dry["ratified_version"], dry["lag"], commit in log(sales_copy)) == (5, 1, False)
    done = report(capsys, "backfill", sales_copy)
    assert (done["num_backfilled"], done["lag"], commit in log(sales_copy)) == (1, 0, True)
    table.alter.set_properties({"a": "c"})
    assert report(capsys, "checkpoint", sales_copy, "--backfill-first")["version"] == 6


def test_describe_shows_the_last_checkpoint_and_what_is_due(
    sales_copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All is of long ago; a vacuum and a cleanup leave nothing that is due."""
    for file in sales_copy.glob("*.parquet"):
        os.utime(file, (0, 0))
    commit = sales_copy / "_delta_log" / f"{3:020}.json"
    made = commit.stat().st_mtime
    commit.write_text(
        re.sub(r'"deletionTimestamp":\d+', '"deletionTimestamp":1', commit.read_text())
    )
    os.utime(commit, (made, made))
    status = report(capsys, "describe", sales_copy)["maintenance"]
    assert status["checkpoint"] == {
        "version": None,
        "commits_since": 4,
        "interval": 10,
        "due": False,
    }
    assert status["vacuum"]["vacuumed_version"] is None
    assert (status["vacuum"]["due"], status["cleanup"]["due"]) == (True, False)
    DeltaTable(sales_copy).checkpoint(2)
    report(capsys, "vacuum", sales_copy, "--yes")
    noted = (sales_copy / "_delta_log" / "_last_vacuum_info").stat().st_mtime_ns // 1_000_000
    status = report(capsys, "describe", sales_copy)["maintenance"]
    assert status["checkpoint"] == {"version": 2, "commits_since": 1, "interval": 10, "due": False}
    assert (status["cleanup"]["files"], status["cleanup"]["due"]) == (2, True)
    assert (status["vacuum"]["vacuumed_version"], status["vacuum"]["due"]) == (3, False)
    assert status["vacuum"]["noted_at"].endswith(f".{noted % 1000:03}Z")
    main(["describe", str(sales_copy)])
    lines = capsys.readouterr().out.splitlines()
    last = "checkpoint: not due, last at version 2, commits since: 1 of 10"
    assert any(line.endswith(last) for line in lines)
    assert any("cleanup: due, 2 files of the log could go" in line for line in lines)
    report(capsys, "cleanup", sales_copy, "--yes")
    assert report(capsys, "describe", sales_copy)["maintenance"]["cleanup"]["due"] is False
    DeltaTable(sales_copy).alter.set_properties({"delta.checkpointInterval": "1"})
    assert report(capsys, "describe", sales_copy)["maintenance"]["checkpoint"]["due"] is True
    assert report(capsys, "describe", sales_copy, "--version", "3")["maintenance"] is None


def test_describe_of_a_table_that_cant_be_maintained(
    sales_copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    commit = sales_copy / "_delta_log" / f"{4:020}.json"
    features = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["fromTheFuture"]}
    commit.write_text(json.dumps({"protocol": features}) + "\n")
    cleanup = report(capsys, "describe", sales_copy)["maintenance"]["cleanup"]
    assert (cleanup["files"], cleanup["due"]) == (None, None)
    assert "fromTheFuture" in cleanup["reason"]


@pytest.mark.parametrize(
    "words",
    [
        ["checkpoint", "/t", "--version", "-1"],
        ["checkpoint", "/t", "--policy", "v3"],
        ["compact-log", "/t", "--start", "one"],
        ["backfill", "/t", "--version", "1.5"],
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
