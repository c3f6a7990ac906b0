"""Checks of live files: what the log says of them, and whether they are there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.maintenance.check import files_in_log
from tests.checked_tables import (
    HISTORY,
    NOW_MS,
    VECTOR,
    VECTOR_FILE,
    checked,
    codes,
    data_of,
    file,
    healthy,
    only,
)
from tests.log_builder import add, metadata, write_commit, write_table
from tests.table_builder import Action, Files, commits, states

DAY_MS = 24 * 60 * 60 * 1000


def appended(*actions: Action, first: tuple[Action, ...] = tuple(HISTORY[0])) -> Files:
    """The healthy table with another commit, all its data there."""
    history = [list(first), *HISTORY[1:], list(actions)]
    found = states(history)
    return commits(history) | data_of(found[-1])


def test_data_files_that_are_missing() -> None:
    files = healthy()
    del files["part=x/b b.parquet"], files["part=x/e.parquet"]
    report = checked(files)
    assert codes(report) == {"data-file-missing": "error"}
    message = only(report, "data-file-missing").message
    assert "2 data files" in message
    assert "part=x/b b.parquet" in message
    assert checked(files, depth="log").findings == ()


def test_deletion_vectors_that_are_missing() -> None:
    files = healthy()
    del files[VECTOR_FILE]
    report = checked(files)
    assert codes(report) == {"deletion-vector-missing": "error"}
    assert VECTOR_FILE in only(report, "deletion-vector-missing").message


def test_files_of_older_versions_may_be_missing() -> None:
    assert not [path for path in healthy() if "gone" in path]
    assert checked(healthy()).findings == ()


def test_files_of_another_size() -> None:
    report = checked(healthy() | {"part=x/c.parquet": bytes(7)})
    assert codes(report) == {"file-size-differs": "error"}
    message = only(report, "file-size-differs").message
    assert "1 live file (part=x/c.parquet)" in message
    assert "has 7 bytes, by the log 100 bytes" in message


@pytest.mark.parametrize(("size", "short"), [(0, True), (42, True), (43, False), (50, False)])
def test_deletion_vectors_that_are_cut(size: int, short: bool) -> None:
    report = checked(healthy() | {VECTOR_FILE: bytes(size)})
    assert codes(report) == ({"deletion-vector-cut": "error"} if short else {})


def test_what_a_vacuum_would_take() -> None:
    files = healthy() | {"part=x/orphan.parquet": bytes(11), "_hidden/x": b"1"}
    assert checked(files).findings == ()  # it is young
    report = checked(files, now_ms=NOW_MS + 8 * DAY_MS)
    assert codes(report) == {"vacuum-due": "info"}
    assert "1 file of 11 bytes" in only(report, "vacuum-due").message


def test_much_that_a_vacuum_would_take(tmp_path: Path) -> None:
    write_table(tmp_path, [])
    with (tmp_path / "big.parquet").open("wb") as sparse:
        sparse.truncate((1 << 30) + 1)
    os.utime(tmp_path / "big.parquet", (0, 0))
    report = DeltaTable(str(tmp_path)).check()
    assert codes(report, but=["cleanup-due"]) == {"vacuum-overdue": "warning"}


def test_files_elsewhere(tmp_path: Path) -> None:
    source, clone = tmp_path / "source", tmp_path / "clone"
    source.mkdir()
    (source / "a b.parquet").write_bytes(b"1")
    write_table(clone, [add(f"file://{source}/a%20b.parquet", size=1)])
    report = DeltaTable(str(clone)).check()
    assert f"{source}/a b.parquet" in only(report, "path-refused").message
    allowed = DeltaTable(str(clone), allowed_outside=[str(source)])
    assert "path-refused" not in codes(allowed.check())
    assert codes(allowed.check(), ["cleanup-due"])["files-outside"] == "info"
    (source / "a b.parquet").unlink()
    report = allowed.check()
    assert f"{source}/a b.parquet" in only(report, "data-file-missing").message


def test_files_that_are_live_twice() -> None:
    other = {**VECTOR, "offset": 50}
    files = appended(file("a", deletionVector=other)) | {VECTOR_FILE: bytes(92)}
    report = checked(files)
    assert codes(report) == {"file-twice": "error"}
    assert "1 data file (part=x/a.parquet)" in only(report, "file-twice").message
    # Two spellings of one file.
    assert codes(checked(appended(file("b%20b"), file("b b")), depth="log")) == {
        "file-twice": "error"
    }


def test_partition_values() -> None:
    report = checked(appended(file("f", partitionValues={})), depth="log")
    assert codes(report) == {"partition-value-missing": "warning"}
    assert "part=x/f.parquet" in only(report, "partition-value-missing").message
    assert checked(appended(file("f", partitionValues={"part": None})), depth="log").ok
    report = checked(appended(file("f", partitionValues={"part": "x", "day": "1"})), depth="log")
    assert codes(report) == {"partition-value-unknown": "error"}
    assert "day" in only(report, "partition-value-unknown").message


def test_statistics_that_are_missing() -> None:
    report = checked(appended(file("f", stats=None), file("g", stats="{}")), depth="log")
    assert codes(report) == {"statistics-missing": "info"}
    assert "2 of 6 live files" in only(report, "statistics-missing").message
    vectored = file("f", stats=None, deletionVector=VECTOR)
    assert codes(checked(appended(vectored)), but=["rows-deleted"]) == {
        "statistics-missing": "info",
        "statistics-missing-beside-vector": "warning",
    }


def tracked(mark: int, enabled: str, *files: Action) -> Files:
    """A table with row tracking, up to a high water mark."""
    named = ["domainMetadata", "rowTracking"]
    first = [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": named}},
        metadata(
            partition_columns=["part"],
            configuration={
                "delta.enableRowTracking": enabled,
                "delta.rowTracking.materializedRowIdColumnName": "_id",
                "delta.rowTracking.materializedRowCommitVersionColumnName": "_version",
            },
        ),
        {
            "domainMetadata": {
                "domain": "delta.rowTracking",
                "configuration": f'{{"rowIdHighWaterMark":{mark}}}',
                "removed": False,
            }
        },
    ]
    return commits([[*first, *files]])


def test_row_ids() -> None:
    ids: dict[str, Any] = {"baseRowId": 10, "defaultRowCommitVersion": 0}
    assert checked(tracked(18, "true", file("f", **ids)), depth="log").findings == ()
    report = checked(tracked(17, "true", file("f", **ids)), depth="log")
    assert codes(report) == {"row-ids-above-mark": "error"}
    report = checked(tracked(18, "true", file("f", **ids), file("g")), depth="log")
    assert codes(report) == {"row-ids-missing": "error"}
    assert checked(tracked(18, "false", file("g")), depth="log").findings == ()


def test_many_small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files_in_log, "_MANY_FILES", 5)
    report = checked(appended(file("f")), depth="log")
    assert codes(report) == {"files-small": "info"}
    large = [file(f"f{n}", size=1 << 30) for n in range(6)]
    history = [*HISTORY, large]
    assert checked(commits(history), depth="log").findings == ()


def test_many_deleted_rows() -> None:
    many = {**VECTOR, "pathOrInlineDv": VECTOR["pathOrInlineDv"], "offset": 60, "cardinality": 8}
    files = appended(file("f", deletionVector=many))
    report = checked(files, depth="log")
    assert codes(report) == {"rows-deleted": "info"}
    assert "10 of 45 rows (22%)" in only(report, "rows-deleted").message


def test_a_path_that_cant_be_decoded(tmp_path: Path) -> None:
    write_table(tmp_path, [add("a.parquet")])
    write_commit(tmp_path, 1, add("%ff.parquet"))
    for depth in ("log", "files"):
        report = DeltaTable(str(tmp_path)).check(depth=depth)
        assert "%ff.parquet" in only(report, "unreadable").message
