"""Numbers that somebody has written: into names of files, into hints, into properties.

Work and memory follow from what is there. What used to enumerate such a number ran out of memory, so the
operations run in a process that has little.
"""

from __future__ import annotations

import json
import shutil
import warnings
from pathlib import Path
from typing import Any

import pytest

from airflow_delta.engine import LONG, AddFile, DeltaTable, StructField, StructType
from airflow_delta.engine.errors import (
    ChangesNotAvailableError,
    CorruptLogError,
    DeltaError,
    DeltaWarning,
    InvalidTableError,
    VersionNotFoundError,
)
from airflow_delta.engine.features.column_changes import sql_columns
from airflow_delta.engine.features.column_changes.sql_columns import columns_in_sql
from airflow_delta.engine.log.completeness import missing_versions
from airflow_delta.engine.log.files import MAX_VERSION
from airflow_delta.engine.parquet import PyarrowFallback
from airflow_delta.engine.parquet.runs import read_runs
from tests.attacks.limited import run_limited
from tests.log_builder import add, commit_path, write_commit, write_table

BIG = 10**18

EVERY_OPERATION = """
import sys, warnings
from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import DeltaError
warnings.simplefilter("ignore")
table = DeltaTable(sys.argv[1])
for name, operation in {
    "snapshot": lambda: table.snapshot().files().num_rows,
    "version 1": lambda: table.snapshot(1).files().num_rows,
    "history": lambda: len(table.history()),
    "changes": lambda: table.changes(1).files.num_rows,
    "check": lambda: sorted({finding.code for finding in table.check(depth="log").findings}),
    "cleanup": lambda: bool(table.cleanup_metadata(dry_run=True)),
    "compaction": lambda: bool(table.compact_log(0, dry_run=True)),
    "vacuum": lambda: bool(table.vacuum(dry_run=True)),
    "lite vacuum": lambda: bool(table.vacuum(dry_run=True, mode="lite")),
    "drop": lambda: bool(table.drop_feature("v2Checkpoint", dry_run=True)),
    "restore": lambda: bool(table.restore(version=1, dry_run=True)),
}.items():
    try:
        print(name, operation())
    except DeltaError as error:
        print(name, type(error).__name__)
"""


def _table(root: Path, **options: Any) -> Path:
    return write_table(root, [], [add("a")], [add("b")], **options)


def _run(root: Path) -> dict[str, str]:
    out = run_limited(EVERY_OPERATION, str(root)).splitlines()
    names = ("version 1", "lite vacuum")
    found = {}
    for line in out:
        name = next((name for name in names if line.startswith(name)), line.split(" ")[0])
        found[name] = line.removeprefix(name).strip()
    return found


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What the operations say of the table before there is anything odd in it."""
    return _run(_table(tmp_path_factory.mktemp("undisturbed") / "t"))


@pytest.mark.parametrize(
    ("name", "code"),
    [
        (f"{2:020}.checkpoint.0000000001.9999999999.parquet", "checkpoint-incomplete"),
        (f"{BIG:020}.checkpoint.0000000001.9999999999.parquet", "checkpoint-incomplete"),
        (f"{1:020}.{BIG:020}.compacted.json", "compaction-damaged"),
        (f"{BIG:020}.crc", None),
        (f"{10**20 - 1}.json", None),
        (f"{10**20 - 1}.checkpoint.parquet", None),
        (f"_commits/{BIG:020}.3a0d65cd-4056-49b8-937b-95f9e3ee90e5.json", None),
    ],
)
def test_numbers_in_names_of_files_cost_nothing(
    tmp_path: Path, undisturbed: dict[str, str], name: str, code: str | None
) -> None:
    root, wanted = _table(tmp_path / "t"), dict(undisturbed)
    file = root / "_delta_log" / name
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(b"no such file\n")
    found = _run(root)
    assert (code or "_") in found.pop("check") or code is None
    wanted.pop("check")
    assert found == wanted


@pytest.mark.parametrize("version", [BIG, MAX_VERSION])
def test_a_made_up_version_is_an_error_and_not_a_search(tmp_path: Path, version: int) -> None:
    root = _table(tmp_path / "t")
    shutil.copy(commit_path(root, 2), commit_path(root, version))
    found = _run(root)
    assert found["snapshot"] == found["vacuum"] == found["compaction"] == "CorruptLogError"
    assert found["version 1"] == "1"
    assert "commit-missing" in found["check"]


@pytest.mark.parametrize("version", [BIG, MAX_VERSION])
def test_a_checkpoint_of_a_made_up_version_costs_nothing(tmp_path: Path, version: int) -> None:
    root = _table(tmp_path / "t")
    DeltaTable(str(root)).checkpoint(2)
    log = root / "_delta_log"
    shutil.copy(log / f"{2:020}.checkpoint.parquet", log / f"{version:020}.checkpoint.parquet")
    found = _run(root)
    assert found["snapshot"] == "2"
    # Cleanup, compaction and changes have no commits up to it.
    assert found["changes"] == "ChangesNotAvailableError"
    assert found["compaction"] == "VersionNotFoundError"
    with pytest.raises(ChangesNotAvailableError, match=f"commits from 3 to {version} are missing"):
        DeltaTable(str(root)).changes(1)
    with pytest.raises(VersionNotFoundError, match=f"deleted {version - 2} of them up to version"):
        DeltaTable(str(root)).compact_log(1, dry_run=True)


def test_nothing_is_committed_after_the_last_time_there_can_be(tmp_path: Path) -> None:
    schema = StructType((StructField("id", LONG),))
    DeltaTable.create(str(tmp_path), schema, properties={"delta.enableInCommitTimestamps": "true"})
    info = {"commitInfo": {"inCommitTimestamp": 2**63 - 1, "operation": "WRITE"}}
    write_commit(tmp_path, 1, info)
    with pytest.raises(InvalidTableError, match="version 1 has the highest possible in-commit"):
        DeltaTable(str(tmp_path)).alter.set_properties({"k": "v"})
    assert not commit_path(tmp_path, 2).exists()


def test_nothing_is_committed_after_the_last_version_there_can_be(tmp_path: Path) -> None:
    root = _table(tmp_path / "t")
    table, log = DeltaTable(str(root)), root / "_delta_log"
    table.checkpoint(2)
    shutil.copy(log / f"{2:020}.checkpoint.parquet", log / f"{MAX_VERSION:020}.checkpoint.parquet")
    before = sorted(log.iterdir())
    transaction = table.transaction("WRITE")
    transaction.add_file(AddFile("x", {}, 1, 0, data_change=True))
    with pytest.raises(InvalidTableError, match="is the highest possible one"):
        transaction.commit()
    assert sorted(log.iterdir()) == before


HINT = {"version": 2, "size": 4, "parts": None, "sizeInBytes": 5, "numOfAddFiles": 2}


@pytest.mark.parametrize("name", ["version", "size", "parts", "sizeInBytes", "numOfAddFiles"])
@pytest.mark.parametrize("number", [BIG, MAX_VERSION, 10**19, 10**30, -1])
def test_numbers_in_the_hint_are_hints(tmp_path: Path, name: str, number: int) -> None:
    root = _table(tmp_path)
    table = DeltaTable(str(root))
    table.checkpoint(2)
    hint = {key: value for key, value in {**HINT, name: number}.items() if value is not None}
    (root / "_delta_log" / "_last_checkpoint").write_text(json.dumps(hint))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeltaWarning)  # of a hint that makes no sense
        assert sorted(table.snapshot().file_uris())[1].endswith("/b")
        assert table.latest_version() == 2
    assert not [f for f in table.check(depth="log").findings if f.code == "version-unreadable"]


@pytest.mark.parametrize(
    "key",
    [
        "delta.checkpointInterval",
        "delta.dataSkippingNumIndexedCols",
        "delta.inCommitTimestampEnablementVersion",
        "delta.requireCheckpointProtectionBeforeVersion",
        "delta.columnMapping.maxColumnId",
        "delta.logRetentionDuration",
        "delta.deletedFileRetentionDuration",
    ],
)
@pytest.mark.parametrize(
    "value",
    [str(10**30), str(MAX_VERSION), "9" * 5000, "interval 99999999999 years", "interval 9e9 days"],
)
def test_numbers_in_properties_are_typed_errors_or_cost_nothing(
    tmp_path: Path, key: str, value: str
) -> None:
    table = DeltaTable(str(_table(tmp_path, configuration={key: value})))
    assert table.snapshot().files().num_rows == 2
    for operation in (
        table.checkpoint,
        lambda: table.cleanup_metadata(dry_run=True),
        lambda: table.vacuum(dry_run=True),
        lambda: table.version_at(10**15),
    ):
        try:
            operation()
        except DeltaError:
            continue


def test_missing_versions_are_ranges() -> None:
    far = 2**63
    assert missing_versions([5, 3, 3, 99], first=1, last=far) == [
        range(1, 3),
        range(4, 5),
        range(6, 99),
        range(100, far + 1),
    ]
    assert missing_versions([0, 1, 2, 7], first=1, last=2) == []
    assert missing_versions([], first=4, last=4) == [range(4, 5)]


@pytest.mark.parametrize("opening", ['\\"', "\\'", '"', "'", "`", "/*", "'\"", "/*\\\"'"])
def test_what_isnt_closed_is_looked_for_once(opening: str, monkeypatch: pytest.MonkeyPatch) -> None:
    searched = []
    for sign, closed in sql_columns._CLOSED.items():
        counting = _Counting(closed, searched)
        monkeypatch.setitem(sql_columns._CLOSED, sign, counting)
    columns = columns_in_sql(f"a > {opening * 5000} b")
    assert ("a",) in columns
    # Each kind may be looked for in vain once; what is found is taken, and never looked at again.
    assert sum(searched) < 6 * (len(opening) * 5000 + 10)


class _Counting:
    """A pattern that notes how many characters it may have looked at."""

    def __init__(self, pattern: Any, searched: list[int]) -> None:
        self._pattern = pattern
        self._searched = searched

    def match(self, text: str, place: int) -> Any:
        match = self._pattern.match(text, place)
        self._searched.append(len(text) - place if match is None else match.end() - place)
        return match


@pytest.mark.parametrize("packed", [True, False])
def test_a_page_of_millions_of_runs_is_left_to_pyarrow(packed: bool) -> None:
    if packed:  # a million groups of eight numbers, each other than the one before
        data = b"\x81\x89\x7a" + b"\xaa" * 1_000_000
        assert data[0] & 1
    else:
        data = b"\x02\x00\x02\x01" * 1_000_000
    with pytest.raises(PyarrowFallback, match="more than 250000 runs"):
        read_runs(data, bit_width=1, count=8_000_000 if packed else 2_000_000)


def test_a_gap_without_end_is_told_in_one_line(tmp_path: Path) -> None:
    root = _table(tmp_path)
    shutil.copy(commit_path(root, 2), commit_path(root, MAX_VERSION))
    with pytest.raises(CorruptLogError, match=f"commits 3 to {MAX_VERSION - 1} are missing"):
        DeltaTable(str(root)).snapshot()
