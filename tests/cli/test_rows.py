"""The subcommands that read: ``files`` and ``scan``."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_delta.cli.main import main
from airflow_delta.engine import DeltaTable, Snapshot
from tests.row_tables import bag, random_table

EVIL = "b\x1b[2J\nERROR forged"


@pytest.fixture
def table(tmp_path: Path) -> str:
    uri = str(tmp_path / "t")
    first = pa.table({"id": [1, 2, 3], "name": ["a", EVIL, None], "part": ["x", "x", "y"]})
    second = pa.table({"id": [4, 5], "name": ["", "é"], "part": ["y", "y"]})
    for rows in (first, second):
        deltalake.write_deltalake(uri, rows, mode="append", partition_by=["part"])
    return uri


def objects(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, Any]]:
    assert main([*words, "--json"]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def peers_rows(uri: str, version: int | None = None) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = deltalake.DeltaTable(uri, version).to_pyarrow_table().to_pylist()
    return sorted(rows, key=lambda row: row["id"])


def test_files_are_those_of_the_peer(table: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = objects(capsys, "files", table)
    actions = pa.table(deltalake.DeltaTable(table).get_add_actions(flatten=True)).to_pylist()
    assert {file["path"]: file["size_in_bytes"] for file in found} == {
        action["path"]: action["size_bytes"] for action in actions
    }
    assert {file["path"]: file["num_rows"] for file in found} == {
        action["path"]: action["num_records"] for action in actions
    }
    parts = [file["partition_values"]["part"] for file in found]
    assert sorted(parts) == ["x", "y", "y"]
    assert len(objects(capsys, "files", table, "--version", "0")) == 2
    assert len(objects(capsys, "files", table, "--where", "part = 'x'")) == 1
    assert len(objects(capsys, "files", table, "--limit", "2")) == 2
    assert main(["files", table]) == 0
    heading, *lines = capsys.readouterr().out.splitlines()
    assert heading.split()[:3] == ["path", "size", "rows"]
    assert len(lines) == 3


def test_files_count_the_rows_that_deletion_vectors_leave(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = random_table(tmp_path / "t", 3)
    found = objects(capsys, "files", str(made.path))
    assert sum(file["num_rows"] for file in found) == len(made.rows)
    assert sum(file["num_deleted_rows"] for file in found) > 0


def test_rows_are_those_of_the_peer(table: str, capsys: pytest.CaptureFixture[str]) -> None:
    rows = objects(capsys, "scan", table)
    assert sorted(rows, key=lambda row: row["id"]) == peers_rows(table)
    old = objects(capsys, "scan", table, "--version", "0")
    assert sorted(old, key=lambda row: row["id"]) == peers_rows(table, 0)
    chosen = objects(capsys, "scan", table, "--columns", "part,id", "--where", "id > 3")
    assert [list(row) for row in chosen] == [["part", "id"]] * 2
    assert {row["id"] for row in chosen} == {4, 5}
    assert len(objects(capsys, "scan", table, "--limit", "2")) == 2


def test_a_table_for_people_has_no_control_characters(
    table: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["scan", table]) == 0
    plain = capsys.readouterr().out
    heading, *lines = plain.splitlines()
    assert heading.split() == ["id", "name", "part"]
    assert len(lines) == 5
    assert all(line.isprintable() for line in plain.splitlines())
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    for words in (["scan", table], ["scan", table, "--format", "csv"], ["files", table]):
        assert main(words) == 0
        shown = capsys.readouterr().out.replace("\x1b[1m", "").replace("\x1b[0m", "")
        assert "\x1b" not in shown
        starts = [line.split()[0] for line in shown.splitlines() if line.split()]
        assert ("ERROR" in starts) == ("csv" in words)  # CSV has line breaks, in quotes.
    for name in ("parquet", "arrow"):
        with pytest.raises(SystemExit, match="2"):
            main(["scan", table, "--format", name])
        assert "--output" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["csv", "json", "parquet", "arrow"])
def test_a_file_has_the_rows(
    table: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    output = tmp_path / f"rows.{name}"
    assert main(["scan", table, "--output", str(output), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["num_rows"], report["format"]) == (5, name)
    assert report["bytes_written"] == output.stat().st_size
    rows = sorted(read(output, name), key=lambda row: int(row["id"]))
    expected = peers_rows(table)
    if name == "csv":
        expected = [{key: str(value or "") for key, value in row.items()} for row in expected]
    assert rows == expected
    assert main(["scan", table, "-o", str(output)]) == 1
    assert "--overwrite" in capsys.readouterr().err
    assert main(["scan", table, "-o", str(output), "--overwrite", "--limit", "1"]) == 0
    assert len(read(output, name)) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == [output.name, "t"]


def read(file: Path, name: str) -> list[dict[str, Any]]:
    if name == "csv":
        return list(csv.DictReader(io.StringIO(file.read_text(encoding="utf-8"), newline="")))
    if name == "json":
        return [json.loads(line) for line in file.read_text().splitlines()]
    if name == "parquet":
        return list(pq.read_table(file).to_pylist())
    return list(pa.ipc.open_file(file).read_all().to_pylist())


def test_a_pipe_gets_arrow_as_a_stream(table: str, capfdbinary: Any) -> None:
    assert main(["scan", table, "--format", "arrow"]) == 0
    rows = pa.ipc.open_stream(capfdbinary.readouterr().out).read_all().to_pylist()
    assert sorted(rows, key=lambda row: row["id"]) == peers_rows(table)


def test_rows_of_all_types_are_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = random_table(tmp_path / "t", 12, num_files=4)
    rows = objects(capsys, "scan", str(made.path))
    assert len(rows) == len(made.rows)
    kept = objects(capsys, "scan", str(made.path), "--columns", "text")
    texts = [{"text": row["text"]} for row in made.rows]
    assert bag(kept) == bag(texts)


def test_what_cannot_be_written(
    table: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["scan", table, "-o", str(tmp_path / "missing" / "x.csv")]) == 1
    assert "--output" in capsys.readouterr().err
    made = random_table(tmp_path / "nested", 12)
    assert main(["scan", str(made.path), "--format", "csv"]) == 1
    assert "CSV can't hold the columns" in capsys.readouterr().err
    for words in (["--format", "csv", "--json"], ["-o", "x"], ["-o", "x", "--format", "table"]):
        with pytest.raises(SystemExit, match="2"):
            main(["scan", table, *words])
    assert main(["scan", table, "--columns", "none"]) == 1
    assert "none" in capsys.readouterr().err
    assert DeltaTable(table).latest_version() == 1


def test_only_the_first_rows_are_shown(
    table: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_delta.cli.scan._MOST_SHOWN", 2)
    assert main(["scan", table]) == 0
    captured = capsys.readouterr()
    assert len(captured.out.splitlines()) == 3
    assert "only the first 2 rows" in captured.err
    assert main(["scan", table, "--limit", "5"]) == 0
    captured = capsys.readouterr()
    assert (len(captured.out.splitlines()), captured.err) == (6, "")


@pytest.mark.parametrize("where", [[], ["--where", "id >= 0"]])
def test_no_file_is_opened_after_the_last_wanted_row(
    table: str,
    where: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken: list[int] = []

    class Counted:
        def __init__(self, scan: Any) -> None:
            self._scan, self.schema = scan, scan.schema

        def __iter__(self) -> Iterator[pa.RecordBatch]:
            for batch in self._scan:
                taken.append(batch.num_rows)
                yield batch

    scan = Snapshot.scan
    monkeypatch.setattr(Snapshot, "scan", lambda *given, **named: Counted(scan(*given, **named)))
    first = next(iter(DeltaTable(table).snapshot().scan())).num_rows
    taken.clear()
    assert len(objects(capsys, "scan", table, "--limit", str(first), *where)) == first
    assert len(taken) == 1


def test_only_a_file_is_replaced(
    table: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pipe, kept, link = tmp_path / "pipe.csv", tmp_path / "kept.csv", tmp_path / "link.csv"
    os.mkfifo(pipe)
    assert main(["scan", table, "-o", str(pipe), "--overwrite"]) == 1
    assert "no regular file" in capsys.readouterr().err
    assert pipe.is_fifo()
    kept.write_text("old")
    kept.chmod(0o600)
    link.symlink_to(kept)
    assert main(["scan", table, "-o", str(link), "--overwrite"]) == 0
    assert link.is_symlink()
    assert len(read(kept, "csv")) == 5
    assert kept.stat().st_mode & 0o777 == 0o600
