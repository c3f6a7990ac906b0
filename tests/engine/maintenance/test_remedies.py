"""What errors and findings advise against damage agrees, can be done, and helps."""

from __future__ import annotations

import json
import re
import warnings
from pathlib import Path
from typing import Any

import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import (
    CorruptLogError,
    DeltaWarning,
    InvalidArgumentError,
)
from airflow_delta.engine.remedies import PUT_FILE_BACK, PUT_FILES_BACK
from tests.log_builder import add, metadata, remove, write_table

PUT_BACK = (PUT_FILE_BACK, PUT_FILES_BACK)


def log_file(root: Path, version: int) -> Path:
    return root / "_delta_log" / f"{version:020}.json"


def table_of(root: Path) -> DeltaTable:
    """Three versions, of which the newest has two files."""
    write_table(
        root,
        [metadata(), add("a", size=1, stats='{"numRecords":1}')][1:],
        [add("b", size=1, stats='{"numRecords":1}')],
        [add("c", size=1, stats='{"numRecords":1}'), remove("a")],
    )
    for name in "abc":
        (root / name).write_bytes(b"x")
    return DeltaTable(root)


def errors_of(table: DeltaTable) -> dict[str, str]:
    return {each.code: each.remedy for each in table.check().findings if each.severity == "error"}


LOG_DAMAGES: dict[str, tuple[int, bytes | None]] = {
    "a gap": (1, None),
    "no beginning": (0, None),
    "an empty commit": (1, b""),
    "an empty newest commit": (2, b""),
    "no JSON": (1, b"{\n"),
    "a wrong type": (1, b'{"add":{"path":7}}\n'),
    "the newest is no JSON": (2, b"[1]\n"),
}


@pytest.mark.parametrize("damage", LOG_DAMAGES)
def test_no_error_of_a_log_advises_what_the_same_error_refuses(tmp_path: Path, damage: str) -> None:
    version, content = LOG_DAMAGES[damage]
    table, commit = table_of(tmp_path), log_file(tmp_path, version)
    whole = commit.read_bytes()
    commit.unlink() if content is None else commit.write_bytes(content)
    with pytest.raises(CorruptLogError) as caught:
        table.snapshot().files()
    said = caught.value.message
    with pytest.raises(CorruptLogError) as again:
        table.restore(0)
    # Restoring is refused by the same error, so that nobody may advise it.
    assert again.value.message == said
    assert not re.search(r"DeltaTable\.restore|RestoreOperator|[Rr]estore the table", said)
    assert any(remedy in said for remedy in PUT_BACK)
    remedies = " ".join(errors_of(table).values())
    assert "DeltaTable.restore" not in remedies
    if damage != "no beginning":
        assert PUT_FILE_BACK in remedies
    commit.write_bytes(whole)
    assert errors_of(table) == {}
    table.restore(1)


def test_an_empty_newest_commit_may_be_deleted_as_is_advised(tmp_path: Path) -> None:
    table, commit = table_of(tmp_path), log_file(tmp_path, 2)
    commit.write_bytes(b"")
    with pytest.raises(CorruptLogError, match="or delete it, if it is the newest commit"):
        table.snapshot()
    assert "or delete it, if it is the newest commit" in errors_of(table)["commit-empty"]
    commit.unlink()
    assert table.snapshot().version == 1
    assert errors_of(table) == {}


def restored_away(root: Path, damage: str) -> str:
    """Damage the table beyond its log; the code of what a check finds then."""
    if damage == "a data file is gone":
        (root / "c").unlink()
        return "data-file-missing"
    if damage == "a data file is cut":
        (root / "c").write_bytes(b"")
        return "file-size-differs"
    stats = {"stats": '{"numRecords":1}', "size": 1}
    if damage == "a file is live twice":
        commit = [add("%63", **stats)]
    else:
        commit = [add("file:///elsewhere/x", **stats)]
    log_file(root, 3).write_text("".join(f"{json.dumps(action)}\n" for action in commit))
    return "file-twice" if damage == "a file is live twice" else "path-refused"


@pytest.mark.parametrize(
    "damage",
    ["a data file is gone", "a data file is cut", "a file is live twice", "a file is outside"],
)
def test_where_a_restore_is_advised_it_helps(tmp_path: Path, damage: str) -> None:
    table = table_of(tmp_path)
    code = restored_away(tmp_path, damage)
    assert "DeltaTable.restore()" in errors_of(table)[code]
    assert table.restore(1).to_dict()["files_missing"] == []
    assert errors_of(table) == {}


@pytest.mark.parametrize("content", [b"", b"no Parquet"])
def test_where_a_checkpoint_is_advised_it_helps(tmp_path: Path, content: bytes) -> None:
    table = table_of(tmp_path)
    path = tmp_path / table.checkpoint().path
    path.write_bytes(content)
    findings = {each.code: each.remedy for each in table.check().findings}
    assert any("DeltaTable.checkpoint(" in remedy for remedy in findings.values()), findings
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeltaWarning)
        table.checkpoint()
    assert errors_of(table) == {}
    assert table.snapshot().num_files == 2


# What a restore leaves behind.


def test_a_restore_names_the_files_that_stay_and_are_gone(tmp_path: Path) -> None:
    table = table_of(tmp_path)
    (tmp_path / "b").unlink()
    dry = table.restore(1, dry_run=True)
    assert dry.plan is not None
    assert dry.plan.missing == ("b",)
    done = table.restore(1)
    facts: dict[str, Any] = done.to_dict()
    assert (facts["committed"], facts["files_missing"]) == (True, ["b"])


def test_a_restore_of_a_whole_table_names_none_and_one_that_ignores_does_not_look(
    tmp_path: Path,
) -> None:
    table = table_of(tmp_path)
    assert table.restore(1).to_dict()["files_missing"] == []
    (tmp_path / "b").unlink()
    assert table.restore(2, ignore_missing_files=True).to_dict()["files_missing"] is None


def test_the_newest_version_is_refused_by_its_number_and_by_a_time(tmp_path: Path) -> None:
    table = table_of(tmp_path)
    newest = table.snapshot().timestamp
    for arguments in ({"version": 2}, {"timestamp": newest}, {"version": 2, "dry_run": True}):
        with pytest.raises(InvalidArgumentError, match="version 2 is the newest one"):
            table.restore(**arguments)
    assert table.snapshot().version == 2
